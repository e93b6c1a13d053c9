"""P15: skipping row groups by their statistics, and filtering before sums are taken, change nothing."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slate_async.collections.codec.merged import encode_merged
from slate_async.collections.codec.merged_read import decode_merged
from slate_async.collections.codec.statistics import group_ranges
from slate_async.collections.core.consolidate import consolidate
from slate_async.collections.core.filtering import conditions_of, filtered, may_pass
from slate_async.collections.core.merging import merge
from slate_async.collections.core.times import TimeKind
from slate_async.collections.core.updates import UpdateSchema
from tests.property.collections.strategies import KINDS, frontiers, times

COLUMNS = pa.schema([("n", pa.int16()), ("x", pa.float64()), ("s", pa.string())])
NUMBERS, TEXTS = st.integers(-3, 3), st.sampled_from(["", "a", "ab", "é"])
FLOATS = st.sampled_from([-0.0, 0.0, 1.5, -1.5, float("inf"), float("nan")])
DATA = st.tuples(st.none() | NUMBERS, st.none() | FLOATS, st.none() | TEXTS)
VALUES: dict[str, st.SearchStrategy[Any]] = {"n": NUMBERS, "x": FLOATS, "s": TEXTS}


@st.composite
def conditions(draw: st.DrawFn) -> Any:
    column = draw(st.sampled_from(sorted(VALUES)))
    sign = draw(st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "in", "is null", "is not null"]))
    if sign.startswith("is"):
        return (column, sign)
    return (column, sign, draw(st.lists(VALUES[column], max_size=3) if sign == "in" else VALUES[column]))


@pytest.mark.parametrize("kind", KINDS)
@given(st.data(), st.lists(conditions(), max_size=3), st.integers(1, 6))
def test_skipping_row_groups_and_filtering_first_change_nothing(
    kind: TimeKind, data: st.DataObject, given_: list[Any], size: int
) -> None:
    schema = UpdateSchema(kind, COLUMNS)
    rows = data.draw(st.lists(st.tuples(DATA, times(kind), st.sampled_from([-1, 1, 2])), max_size=24))
    since = data.draw(frontiers(kind, done=False))
    passing = conditions_of(given_, schema)
    batch = consolidate(schema.batch(rows), schema)
    groups = [encode_merged(batch.slice(at, size), schema) for at in range(0, batch.num_rows, size)]
    read = []
    for group in groups:
        known = group_ranges(pq.read_metadata(pa.BufferReader(group.data)), 0, schema, set(VALUES))
        table = decode_merged(group.data, group.part, schema, object_name="group")
        kept = [filtered(piece, passing) for piece in table.to_batches()]
        if may_pass(passing, known):
            read += kept
        else:
            assert not any(piece.num_rows for piece in kept)
    merged = pa.Table.from_batches(merge([read], schema, since), schema.arrow)
    everything = pa.Table.from_batches(merge([[batch]], schema, since), schema.arrow)
    expected = [filtered(piece, passing) for piece in everything.to_batches()]
    assert _bits(merged) == _bits(pa.Table.from_batches(expected, schema.arrow))


def _bits(table: pa.Table) -> list[str]:
    """Rows as text: NaN is NaN, and -0.0 is not 0.0."""
    return [repr(row) for row in table.to_pylist()]
