"""Keys of parts that only Python has: order, ranges, pinned bytes, and what is refused."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slate_async import keys
from slate_async.errors import InvalidError

PINNED = Path(__file__).parents[2] / "golden" / "packed-keys.txt"
MOST = 256**255 - 1
ZONES = st.sampled_from([UTC, timezone(timedelta(hours=-11)), timezone(timedelta(hours=5, minutes=30))])
TIMES = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=ZONES)  # noqa: DTZ001 - of some zone
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False) | st.decimals(-10, 10, places=2)
INTS = (
    st.integers()
    | st.integers(-300, 300)
    | st.integers(-MOST, MOST)
    | st.builds(lambda size, sign, more: sign * (256**size + more), st.integers(0, 12), st.sampled_from([1, -1]),
                st.integers(-1, 1))
)  # fmt: skip
KINDS: list[st.SearchStrategy[Any]] = [
    INTS,
    st.text(st.characters(exclude_categories=["Cs"])) | st.text("\0a\x01\xff"),
    st.binary() | st.lists(st.sampled_from([b"\0", b"\xff", b"a"])).map(b"".join),
    st.floats(),
    st.booleans(),
    TIMES,
    st.dates(),
    st.uuids(),
    DECIMALS,
]
COLUMNS = st.sampled_from(KINDS).map(lambda kind: st.none() | kind)
NESTED = st.recursive(
    COLUMNS,
    lambda inner: st.lists(inner, max_size=3).map(lambda kinds: st.none() | prefixes(kinds)),
    max_leaves=4,
)


def prefixes(kinds: Sequence[st.SearchStrategy[Any]]) -> st.SearchStrategy[tuple[Any, ...]]:
    """Tuples of some of the first kinds: shorter ones come before those that go on."""
    return st.integers(0, len(kinds)).flatmap(lambda size: st.tuples(*kinds[:size]))


ROWS = st.lists(NESTED, min_size=1, max_size=3).flatmap(lambda kinds: st.lists(prefixes(kinds), max_size=12))


def rank(part: Any) -> Any:
    """In the order of keys: ``None`` first, NaN last, tuples by their parts, text by code points."""
    if part is None:
        return (0,)
    if isinstance(part, tuple):
        return (1, tuple(map(rank, part)))
    if isinstance(part, float):
        return (1, math.isnan(part), 0.0 if math.isnan(part) else part)
    return (1, part)


@given(ROWS)
def test_bytes_sort_as_tuples_do_and_come_back(rows: list[tuple[Any, ...]]) -> None:
    packed = [keys.pack(*row) for row in rows]
    for row, key in zip(rows, packed, strict=True):
        assert rank(keys.unpack(key)) == rank(row)
        assert keys.pack(*keys.unpack(key)) == key
        for other, other_key in zip(rows, packed, strict=True):
            assert (key < other_key) == (rank(row) < rank(other))
            assert (key == other_key) == (rank(row) == rank(other))


@given(ROWS)
def test_a_range_holds_the_keys_that_begin_with_its_parts(rows: list[tuple[Any, ...]]) -> None:
    for first in rows:
        start, end = keys.prefix_range(*first)
        for row in rows:
            inside = start <= keys.pack(*row) < end
            assert inside == (rank(row[: len(first)]) == rank(first))


@given(st.binary(max_size=40))
def test_other_bytes_are_refused_or_are_a_key(data: bytes) -> None:
    try:
        parts = keys.unpack(data)
    except InvalidError:
        return
    assert keys.pack(*parts) == data


@pytest.mark.parametrize("time", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
def test_the_first_and_the_last_time_come_back(time: datetime) -> None:
    assert keys.unpack(keys.pack(time)) == (time,)


def test_bytes_are_those_of_foundationdb() -> None:
    """Of its documentation and its bindings."""
    assert keys.pack((b"foo\0bar", None, ())) == b"\x05\x01foo\0\xffbar\0\0\xff\x05\0\0"
    assert keys.pack(1 << 64) == b"\x1d\x09\x01" + bytes(8)
    assert keys.pack(-(1 << 64)) == b"\x0b\xf6\xfe" + b"\xff" * 8
    assert keys.pack((1 << 64) - 1) == b"\x1c" + b"\xff" * 8
    assert keys.pack(UUID(int=5)) == b"\x30" + UUID(int=5).bytes


SAMPLES: list[tuple[Any, ...]] = [
    (),
    (None, b"a\0b", "\u00e9\0", True, False),
    (0, 1, -1, 255, 256, -256, (1 << 63) - 1, -(1 << 63), 1 << 64, -(1 << 64)),
    (0.0, -1.5, math.inf, math.nan),
    (("a", None, (7,)), ()),
    (date(1, 1, 1), date(2026, 11, 23), datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)),
    (datetime(2026, 11, 23, 18, tzinfo=UTC),),
    (Decimal(0), Decimal("1.50"), Decimal("-1.5"), Decimal("1E+30"), Decimal("-0.001")),
    (UUID(int=1),),
]  # fmt: skip


def test_bytes_are_as_pinned() -> None:
    lines = "".join(f"{keys.pack(*sample).hex()} {sample!r}\n" for sample in SAMPLES)
    if os.environ.get("SLATE_REGEN_GOLDEN") == "1":
        PINNED.write_text(lines, encoding="utf-8")
    assert PINNED.read_text(encoding="utf-8") == lines


class Point(NamedTuple):
    x: int
    y: int


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    SMALL = 1


def test_subclasses_are_packed_as_their_base() -> None:
    assert keys.pack(Point(1, 2)) == keys.pack((1, 2))
    assert keys.pack(Colour.RED, Size.SMALL) == keys.pack("red", 1)
    assert keys.pack(1, Point(1, 2), Colour.RED) == keys.pack(1, (1, 2), "red")


def test_equal_parts_make_equal_keys() -> None:
    here = datetime(2026, 11, 23, 18, tzinfo=timezone(timedelta(hours=2)))
    assert keys.pack(here) == keys.pack(here.astimezone(UTC))
    assert keys.unpack(keys.pack(here)) == (datetime(2026, 11, 23, 16, tzinfo=UTC),)
    assert keys.pack(Decimal("1.0")) == keys.pack(Decimal("1")) == keys.pack(Decimal("0.1E1"))
    assert keys.pack(-0.0) == keys.pack(0.0)
    assert str(keys.unpack(keys.pack(Decimal("-12.340")))[0]) == "-12.34"


def nested(depth: int) -> tuple[Any, ...]:
    return () if depth == 1 else (nested(depth - 1),)


def test_tuples_are_sixteen_deep_at_most() -> None:
    assert keys.unpack(keys.pack(nested(16))) == (nested(16),)
    with pytest.raises(InvalidError, match="at most 16 deep"):
        keys.pack(nested(17))
    for data in (b"\x05" * 17 + b"\0" * 17, b"\x05" * 60_000):
        with pytest.raises(InvalidError, match="is no key of parts"):
            keys.unpack(data)


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (MOST + 1, "at most 255 bytes"),
        (-MOST - 1, "at most 255 bytes"),
        ("\ud800", "no Unicode text"),
        (("a", "\ud800"), "no Unicode text"),
        (datetime(2026, 11, 23), "has a time zone"),  # noqa: DTZ001 - what is refused
        (datetime.min.replace(tzinfo=timezone(timedelta(hours=14))), "years 1 to 9999"),
        (datetime.max.replace(tzinfo=timezone(-timedelta(hours=12))), "years 1 to 9999"),
        (Decimal("NaN"), "is a number, not NaN"),
        (Decimal("-Infinity"), "is a number"),
        (Decimal("1E+3000000000"), "exponent of 32 bits"),
        ([1], "not list"),
        (object(), "not object"),
        (bytearray(b"a"), "not bytearray"),
    ],
)
def test_other_parts_make_no_key(part: Any, said: str) -> None:
    with pytest.raises(InvalidError, match=said):
        keys.pack("first", part)


@pytest.mark.parametrize(
    "key",
    ["30" + "00" * 15, "40000000", "4000000000", "40ffffffff", "41" + "ff" * 8, "41" + "00" * 8, "42", "4203", "4202",
     "420280000001", "42028000000100", "4202800000013000", "420280000001313000", "4202800000013a00", "05", "0500ff",
     "051500", "1d", "1d09", "0b", "217fffffffffffffff", "21ffffffffffffffff", "210000000000000000",
     "21fff8000000000001"],
)  # fmt: skip
def test_damaged_keys_are_refused(key: str) -> None:
    with pytest.raises(InvalidError, match="is no key of parts"):
        keys.unpack(bytes.fromhex(key))


def test_a_key_is_bytes() -> None:
    assert keys.unpack(memoryview(keys.pack("a"))) == ("a",)
    with pytest.raises(InvalidError, match="not str"):
        keys.unpack("a")  # type: ignore[arg-type]
