"""Consolidation: sums per data and time, the order of every type, overflow, and what is left untouched."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from slate_async.collections.core.consolidate import consolidate, consolidate_unordered, sum_groups
from slate_async.collections.core.errors import SumError
from slate_async.collections.core.times import TimeKind
from slate_async.collections.core.updates import UpdateSchema

BYTES = UpdateSchema.of_bytes(TimeKind.U64)
LARGEST, SMALLEST = 2**63 - 1, -(2**63)
DAY = dt.date(2024, 1, 2)
NOON = dt.datetime(2024, 1, 2, 12)  # noqa: DTZ001 - a column without a zone


def test_updates_are_sorted_and_summed() -> None:
    rows = [(b"b", 1, 1), (b"a", 2, 3), (b"b", 1, 4), (b"a", 1, 2), (b"c", 5, 1), (b"c", 5, -1), (b"d", 0, 0)]
    expected = [(b"a", 1, 2), (b"a", 2, 3), (b"b", 1, 5)]
    found = consolidate(BYTES.batch(rows), BYTES)
    assert found.equals(BYTES.batch(expected))
    assert found.schema == BYTES.arrow
    assert consolidate(found, BYTES) is found
    unordered = consolidate_unordered(BYTES.batch(rows), BYTES)
    assert unordered.schema == BYTES.arrow
    assert consolidate(BYTES.batch(unordered), BYTES).equals(found)


@pytest.mark.parametrize("rows", [[], [(b"a", 1, 0)], [(b"a", 1, 1), (b"a", 1, -1)]])
def test_nothing_may_be_left(rows: list[Any]) -> None:
    for found in (consolidate(BYTES.batch(rows), BYTES), BYTES.batch(consolidate_unordered(BYTES.batch(rows), BYTES))):
        assert found.equals(BYTES.empty())


ORDERED: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [False, True],
    pa.int8(): [-128, -1, 0, 127],
    pa.uint64(): [0, 2**63, 2**64 - 1],
    pa.float16(): [np.float16(-np.inf), np.float16(-1), np.float16(-0.0), np.float16(0.0), np.float16(2)],
    pa.float32(): [-np.inf, -1.5, -0.0, 0.0, 1e-45, 2.5, np.inf],
    pa.float64(): [-np.inf, -1e300, -5e-324, -0.0, 0.0, 5e-324, 1e300, np.inf, np.nan],
    pa.string(): ["", "a", "a\0", "aa", "é", "😀"],
    pa.large_string(): ["", "b"],
    pa.binary(): [b"", b"\0", b"a", b"\xff"],
    pa.large_binary(): [b"", b"x"],
    pa.binary(2): [b"\0\0", b"ab", b"\xff\0"],
    pa.decimal128(9, 2): [Decimal("-1.50"), Decimal("0.00"), Decimal("2.25")],
    pa.decimal256(40, 2): [Decimal("-1.50"), Decimal("2.25")],
    pa.date32(): [DAY, DAY + dt.timedelta(1)],
    pa.date64(): [DAY, DAY + dt.timedelta(1)],
    pa.time32("s"): [dt.time(1), dt.time(2)],
    pa.time64("us"): [dt.time(1), dt.time(2)],
    pa.timestamp("us"): [NOON, NOON + dt.timedelta(1)],
    pa.timestamp("ns", "UTC"): [NOON, NOON + dt.timedelta(1)],
    pa.duration("ms"): [dt.timedelta(-1), dt.timedelta(0), dt.timedelta(1)],
}


@pytest.mark.parametrize("kind", ORDERED, ids=str)
def test_data_of_every_type_are_sorted_and_summed_with_nulls_last(kind: pa.DataType) -> None:
    schema = UpdateSchema(TimeKind.U64, pa.schema([("x", kind)]))
    values = pa.array([*ORDERED[kind], None], kind)
    rows = len(values)
    order = np.random.default_rng(5).permutation(np.repeat(np.arange(rows), 2))
    updates = pa.RecordBatch.from_arrays(
        [
            values.take(pa.array(order)),
            pa.array(np.full(2 * rows, 7, np.uint64)),
            pa.array(np.ones(2 * rows, np.int64)),
        ],
        schema=schema.arrow,
    )
    found = consolidate(updates, schema)
    assert _bits(found.column("x")) == _bits(values)
    assert found.column("_diff").to_pylist() == [2] * rows
    unordered = consolidate_unordered(updates, schema)
    assert unordered.schema == schema.arrow
    again = consolidate(schema.batch(unordered), schema)
    assert _bits(again.column("x")) == _bits(values)
    assert again.drop_columns("x").equals(found.drop_columns("x"))
    part = consolidate(updates.slice(1, rows), schema)
    assert sum(part.column("_diff").to_pylist()) == rows


def _bits(column: pa.Array) -> list[Any]:
    if column.type == pa.float64():
        return [None if value is None else struct.pack("<d", value) for value in column.to_pylist()]
    return [None if value is None else repr(value) for value in column.to_pylist()]


def test_every_nan_is_a_value_of_its_own() -> None:
    schema = UpdateSchema(TimeKind.U64, pa.schema([("x", pa.float64())]))
    bits = np.array([0x7FF8000000000001, 0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000001], np.uint64)
    columns = [pa.array(bits.view(np.float64)), pa.array([0] * 4, pa.uint64()), pa.array([1] * 4)]
    updates = pa.RecordBatch.from_arrays(columns, schema=schema.arrow)
    found = consolidate(updates, schema)
    ordered = [0xFFF8000000000000, 0x7FF8000000000000, 0x7FF8000000000001]
    assert found.column("x").to_numpy().view(np.uint64).tolist() == ordered
    assert found.column("_diff").to_pylist() == [1, 1, 2]
    assert consolidate(schema.batch(consolidate_unordered(updates, schema)), schema).column("_diff").to_pylist() == [
        1,
        1,
        2,
    ]


@pytest.mark.parametrize("diffs", [[LARGEST, 1], [SMALLEST, -1], [LARGEST] * 5, [2**62, 2**62, 2**62, 2**62]])
def test_a_sum_beyond_int64_is_an_error_that_names_the_row(diffs: list[int]) -> None:
    updates = BYTES.batch([(b"first", 3, 1), *((b"second", 4, diff) for diff in diffs)])
    for work in (consolidate, consolidate_unordered):
        with pytest.raises(SumError, match=f"does not fit int64: data=b'second', _time=4 add up to {sum(diffs)}"):
            work(updates, BYTES)


@pytest.mark.parametrize("diffs", [[LARGEST, 1], [SMALLEST, -1], [LARGEST] * 5, [LARGEST] * 2 + [-5], [SMALLEST] * 3])
def test_a_sum_beyond_int64_may_be_kept_in_several_updates(diffs: list[int]) -> None:
    rows = [(b"first", 3, 1), *((b"second", 4, diff) for diff in diffs), (b"third", 4, 0), (b"z", 9, 7)]
    kept = consolidate(BYTES.batch(rows), BYTES, keep=True)
    assert kept.schema == BYTES.arrow
    assert (kept.column("data")[0].as_py(), kept.column("data")[-1].as_py()) == (b"first", b"z")
    several = kept.filter(pc.equal(kept.column("data"), b"second"))
    assert sum(several.column("_diff").to_pylist()) == sum(diffs)
    assert 2 <= several.num_rows <= len(diffs)
    assert several.column("_time").to_pylist() == [4] * several.num_rows
    extreme = LARGEST if sum(diffs) > 0 else SMALLEST
    assert several.column("_diff").to_pylist()[:-1] == [extreme] * (several.num_rows - 1)
    assert consolidate(kept, BYTES, keep=True).equals(kept)
    back = BYTES.batch([(b"second", 4, -diff) for diff in diffs if diff != SMALLEST])
    rest = sum(diff for diff in diffs if diff == SMALLEST)
    if rest == 0:
        table = pa.Table.from_batches([kept, back]).combine_chunks().to_batches()[0]
        assert consolidate(table, BYTES).equals(BYTES.batch([(b"first", 3, 1), (b"z", 9, 7)]))


@pytest.mark.parametrize("diffs", [[LARGEST, 1, -1], [SMALLEST, LARGEST, 1], [SMALLEST], [LARGEST, -LARGEST, 5]])
def test_a_sum_that_fits_is_exact_whatever_it_passes_on_the_way(diffs: list[int]) -> None:
    updates = BYTES.batch([(b"x", 4, diff) for diff in diffs])
    expected = BYTES.batch([(b"x", 4, sum(diffs))] if sum(diffs) else [])
    assert consolidate(updates, BYTES).equals(expected)
    assert BYTES.batch(consolidate_unordered(updates, BYTES)).equals(expected)


def test_sums_of_groups() -> None:
    sums, wrong = sum_groups(np.array([1, 2, LARGEST, LARGEST, 3], np.int64), np.array([0, 2, 4]))
    assert wrong is not None
    assert (sums[0], sums[2], wrong.tolist()) == (3, 3, [False, True, False])
    assert sum_groups(np.array([SMALLEST], np.int64), np.array([0]))[1] is None


@pytest.mark.parametrize("rows", [300, 2000])
def test_rows_that_are_out_of_order_late_are_found(rows: int) -> None:
    """The first rows are looked at before all: their order does not decide."""
    updates = [(b"%05d" % n, 0, 1) for n in range(rows)]
    updates[-1] = (b"", 0, 1)
    found = consolidate(BYTES.batch(updates), BYTES)
    assert found.column("data").to_pylist() == sorted(data for data, _, _ in updates)


def test_pairs_of_times_are_sorted_by_both() -> None:
    schema = UpdateSchema.of_bytes(TimeKind.U64X2)
    rows = [(b"a", (2, 1), 1), (b"a", (1, 9), 1), (b"a", (2, 1), 1), (b"a", (1, 3), 1)]
    expected = [(b"a", (1, 3), 1), (b"a", (1, 9), 1), (b"a", (2, 1), 2)]
    assert consolidate(schema.batch(rows), schema).equals(schema.batch(expected))


@pytest.mark.parametrize("times", [1, 2, 40])
@pytest.mark.parametrize("prefix", ["", "a prefix of all/"])
@pytest.mark.parametrize(
    ("kind", "make"),
    [
        (pa.binary(), lambda text, number: f"{text}{number:03}".encode()),
        (pa.string(), lambda text, number: f"{text}{number % 50}é{number}"),
        (pa.binary(), lambda text, number: f"{text}{number % 7} and then {number}".encode()),
        (pa.binary(), lambda _, number: b"\0" * (number % 9)),
        (pa.int16(), lambda _, number: number - 100),
        (pa.uint64(), lambda _, number: 2**64 - 1 - number),
        (pa.float64(), lambda _, number: (number - 90) / 7),
        (pa.date32(), lambda _, number: DAY - dt.timedelta(number)),
        (pa.large_string(), lambda text, number: f"{text}{number}"),
    ],
)
def test_many_rows_are_sorted_as_few_are(kind: pa.DataType, make: Any, prefix: str, times: int) -> None:
    """By numbers where those differ, and by whole keys where they do not; each data at one time or at more."""
    schema = UpdateSchema(TimeKind.U64, pa.schema([("x", kind)]))
    rows = [(make(prefix, number), time, 1) for number in range(200) for time in range(times)]
    random = np.random.default_rng(len(rows))
    random.shuffle(rows)
    sums: dict[tuple[Any, int], int] = {}
    for data, time, diff in rows:
        sums[data, time] = sums.get((data, time), 0) + diff
    found = consolidate(schema.batch(rows), schema)
    assert list(zip(*(column.to_pylist() for column in found.columns), strict=True)) == [
        (*key, sums[key]) for key in sorted(sums)
    ]
