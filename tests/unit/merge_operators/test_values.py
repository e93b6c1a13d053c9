from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slate_async.errors import InvalidError
from slate_async.merge_operators.registry import merge_operator
from slate_async.merge_operators.values import pack_i64, pack_set, unpack_i64, unpack_set


@given(number=st.integers(-(2**63), 2**63 - 1))
def test_numbers_come_back(number: int) -> None:
    assert unpack_i64(pack_i64(number)) == number


def test_sums_wrap() -> None:
    add = merge_operator("add_i64")
    assert unpack_i64(add.apply(pack_i64(2**63 - 1), [pack_i64(1)])) == -(2**63)
    assert pack_i64(-1) == pack_i64(2**64 - 1) == b"\xff" * 8
    assert add.apply(None, [pack_i64(2), pack_i64(-5)]) == pack_i64(-3)


@pytest.mark.parametrize("number", ["1", 1.5, None])
def test_what_is_no_number_is_refused(number: Any) -> None:
    with pytest.raises(InvalidError, match="pack_i64 takes an int"):
        pack_i64(number)


@pytest.mark.parametrize("members", [b"ab", "ab", ["a"], [1, b"a"]])
def test_what_is_no_set_of_byte_strings_is_refused(members: Any) -> None:
    with pytest.raises(InvalidError, match="pack_set takes byte strings"):
        pack_set(members)


@pytest.mark.parametrize("operand", [b"", b"1", b"\0" * 7, b"\0" * 9])
def test_other_lengths_are_no_number(operand: bytes) -> None:
    add = merge_operator("add_i64")
    with pytest.raises(ValueError, match=f"has 8 bytes, not {len(operand)}"):
        add.check(operand)
    with pytest.raises(ValueError, match="has 8 bytes"):
        add.apply(operand, [pack_i64(1)])


def test_highest_and_lowest_are_of_bytes() -> None:
    assert merge_operator("max").apply(b"9", [b"10", b"8"]) == b"9"
    assert merge_operator("min").apply(None, [b"b", b"a", b"aa"]) == b"a"
    assert merge_operator("min").apply(b"", [b"a"]) == b""


def test_append_keeps_the_order() -> None:
    assert merge_operator("append").apply(b"a", [b"b", b"", b"c"]) == b"abc"


@given(members=st.sets(st.binary(max_size=5), max_size=5))
def test_sets_come_back_in_order(members: set[bytes]) -> None:
    assert unpack_set(pack_set(members)) == sorted(members)


def test_a_union_has_each_member_once() -> None:
    union = merge_operator("set_union")
    unordered = b"\1\0\0\0b\1\0\0\0a\1\0\0\0b"
    union.check(unordered)
    assert union.apply(None, [unordered]) == pack_set([b"a", b"b"])
    assert union.apply(pack_set([b"c"]), [unordered]) == pack_set([b"a", b"b", b"c"])


@pytest.mark.parametrize("operand", [b"\1", b"\1\0\0", b"\1\0\0\0", b"\2\0\0\0a", b"\0\0\0\0\xff\xff\xff\xff"])
def test_half_a_set_is_none(operand: bytes) -> None:
    with pytest.raises(ValueError, match="ends within a member"):
        merge_operator("set_union").check(operand)
