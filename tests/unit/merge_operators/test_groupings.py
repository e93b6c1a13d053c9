"""Whatever the groups in which operands are folded and applied, the value is the same: for every operator."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slate_async.merge_operators.protocol import MergeOperator
from slate_async.merge_operators.registry import merge_operator
from tests.unit.merge_operators.operands import OPERANDS


def grouped(data: st.DataObject, operator: MergeOperator, operands: list[bytes]) -> list[bytes]:
    """``operands`` with some neighbours folded, and of the result again some, as often as is drawn."""
    while len(operands) > 1 and data.draw(st.booleans(), label="fold"):
        low = data.draw(st.integers(0, len(operands) - 2), label="from")
        stop = data.draw(st.integers(low + 1, len(operands)), label="to")
        folded = operator.fold(operands[low:stop])
        if folded is None:
            return operands
        operands = [*operands[:low], folded, *operands[stop:]]
    return operands


def applied(data: st.DataObject, operator: MergeOperator, base: bytes | None, operands: Sequence[bytes]) -> bytes:
    """``operands`` onto ``base``, some at a time."""
    value = base
    while True:
        stop = data.draw(st.integers(1, len(operands)), label="apply")
        value = operator.apply(value, operands[:stop])
        operands = operands[stop:]
        if not operands:
            return value


@pytest.mark.parametrize("name", sorted(OPERANDS))
@given(data=st.data())
def test_any_grouping_gives_the_same_value(name: str, data: st.DataObject) -> None:
    operator = merge_operator(name)
    operands = data.draw(st.lists(OPERANDS[name], min_size=1, max_size=6), label="operands")
    base = data.draw(st.none() | OPERANDS[name], label="base")
    for operand in operands:
        operator.check(operand)
    wanted = operator.apply(base, operands)
    assert applied(data, operator, base, grouped(data, operator, operands)) == wanted


@pytest.mark.parametrize("name", sorted(set(OPERANDS) - {"json_merge_patch"}))
@given(data=st.data())
def test_what_was_folded_is_an_operand(name: str, data: st.DataObject) -> None:
    operator = merge_operator(name)
    folded = operator.fold(data.draw(st.lists(OPERANDS[name], min_size=1, max_size=4)))
    assert folded is not None
    operator.check(folded)
    assert operator.fold([folded]) == folded


def test_this_finds_an_operator_whose_groups_differ() -> None:
    class Averages:
        name = "averages"

        def fold(self, operands: Sequence[bytes]) -> bytes:
            return bytes([sum(operand[0] for operand in operands) // len(operands)])

        def apply(self, base: bytes | None, operands: Sequence[bytes]) -> bytes:
            return self.fold(operands if base is None else [base, *operands])

    operator = Averages()
    one, two, nine = b"\1", b"\2", b"\11"
    assert operator.apply(None, [operator.fold([one, two]), nine]) != operator.apply(None, [one, two, nine])


def test_patches_do_not_compose() -> None:
    patches = merge_operator("json_merge_patch")
    first, second = b'{"a":null}', b'{"a":{"b":1}}'
    base = b'{"a":{"c":2}}'
    assert patches.fold([first, second]) is None
    assert patches.apply(base, [first, second]) == b'{"a":{"b":1}}'
    assert patches.apply(base, [second]) == b'{"a":{"c":2,"b":1}}'  # so the second alone does not stand for both
