"""A merge in slices is the consolidation of all sources at once, whatever the slices are."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slate_async.collections.core.consolidate import consolidate
from slate_async.collections.core.merging import merge
from slate_async.collections.core.times import TimeKind
from slate_async.collections.core.updates import UpdateSchema
from tests.property.collections.strategies import KINDS, frontiers, rows_of, updates


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
def test_a_merge_in_slices_is_one_of_all_at_once(kind: TimeKind, data: st.DataObject) -> None:
    schema, since = UpdateSchema.of_bytes(kind), data.draw(frontiers(kind))
    sources = [
        consolidate(schema.batch(rows), schema)
        for rows in data.draw(st.lists(updates(kind, 20), min_size=1, max_size=4))
    ]
    sliced = []
    for source in sources:
        cuts = sorted(data.draw(st.lists(st.integers(0, source.num_rows), max_size=6)))
        edges = [0, *cuts, source.num_rows]
        sliced.append([source.slice(low, high - low) for low, high in itertools.pairwise(edges)])
    given_out = list(merge(sliced, schema, since))
    rows = schema.batch([row for source in sources for row in rows_of(source)])
    expected = consolidate(schema.with_times(rows, since.advance_by(schema.times(rows))), schema)
    assert [row for piece in given_out for row in rows_of(piece)] == rows_of(expected)
    assert all(piece.num_rows and piece.schema == schema.arrow for piece in given_out)


@given(st.data())
def test_floats_and_nulls_are_merged_in_their_order(data: st.DataObject) -> None:
    schema = UpdateSchema(TimeKind.U64, pa.schema([("x", pa.float64()), ("y", pa.string())]))
    values = st.tuples(
        st.none() | st.sampled_from([-0.0, 0.0, 1.5, float("nan"), float("-inf")]), st.none() | st.sampled_from("ab")
    )
    rows = st.lists(st.tuples(values, st.integers(0, 3), st.integers(-2, 2)), max_size=12)
    sources = [consolidate(schema.batch(drawn), schema) for drawn in data.draw(st.lists(rows, min_size=1, max_size=3))]
    size = data.draw(st.integers(1, 5))
    sliced = [[source.slice(at, size) for at in range(0, source.num_rows, size)] for source in sources]
    pieces = list(merge(sliced, schema, data.draw(frontiers(TimeKind.U64))))
    table = pa.Table.from_batches(pieces, schema.arrow).combine_chunks()
    if not table.num_rows:
        return
    merged = table.to_batches()[0]
    assert consolidate(merged, schema) is merged
