"""P5 and P6 on the core: a snapshot is the history as of its time, and with the deltas after it, of every later time.

What is read is a compacted version up to some frontier and pending batches of several writers beyond it, which reach
below it and across each other.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from slate_async.codec.arrays import mask_array
from slate_async.collections.core.answers import listened_rows, snapshot_rows
from slate_async.collections.core.bounds import Bounds
from slate_async.collections.core.consolidate import consolidate
from slate_async.collections.core.coverage import Taken, extend
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.merging import merge
from slate_async.collections.core.reading import to_restart_from
from slate_async.collections.core.times import Time, TimeKind, less_equal
from slate_async.collections.core.updates import UpdateSchema
from tests.property.collections.strategies import (
    KINDS,
    Update,
    chains,
    contents,
    frontiers,
    grid,
    rows_of,
    times,
    updates,
)


@dataclass
class Stored:
    """A collection as it lies in the store."""

    schema: UpdateSchema
    written: list[Update]
    merged: Bounds
    version: pa.RecordBatch
    pending: list[Bounds]

    def rows(self, bounds: Bounds) -> pa.RecordBatch:
        """What a pending batch holds."""
        everything = self.schema.batch(self.written)
        return everything.filter(mask_array(bounds.mask(self.schema.times(everything))))

    def taken(self, coverage: Frontier) -> tuple[Taken[Bounds], ...]:
        return extend(coverage, self.pending).taken


def stored(data: st.DataObject, kind: TimeKind, since: Frontier) -> Stored:
    schema, zero = UpdateSchema.of_bytes(kind), Frontier.minimum(kind)
    written = data.draw(updates(kind))
    chain = data.draw(chains(kind))
    pending = [
        Bounds(lower, upper, zero)
        for drawn in [chain, *data.draw(st.lists(chains(kind), max_size=2))]
        for lower, upper in itertools.pairwise(drawn)
    ]
    merged = Bounds(zero, data.draw(st.sampled_from(chain)), zero)
    found = Stored(schema, written, merged, schema.empty(), data.draw(st.permutations(pending)))
    rows = found.rows(merged)
    found.version = consolidate(schema.with_times(rows, since.advance_by(schema.times(rows))), schema)
    found.merged = merged.compacted(since)
    return found


def snapshot(found: Stored, as_of: Time) -> dict[bytes, int]:
    """By a merge of the version with every pending batch that was taken, each sorted."""
    schema, sources = found.schema, [snapshot_rows(found.version, found.schema, as_of)]
    for step in found.taken(found.merged.upper):
        rows = found.rows(step.batch)
        rows = rows.filter(mask_array(step.start.mask(schema.times(rows))))
        sources.append(consolidate(snapshot_rows(rows, schema, as_of), schema))
    merged = [
        row for piece in merge([[source] for source in sources], schema, Frontier([as_of])) for row in rows_of(piece)
    ]
    assert all(time == as_of for _, time, _ in merged)
    return {data: diff for data, _, diff in merged}


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
def test_a_snapshot_is_the_history_as_of_its_time(kind: TimeKind, data: st.DataObject) -> None:
    since = data.draw(frontiers(kind, done=False))
    found = stored(data, kind, since)
    coverage = extend(found.merged.upper, found.pending).coverage
    for as_of in grid(kind):
        if since.less_equal(as_of) and not coverage.less_equal(as_of):
            assert snapshot(found, as_of) == contents(found.written, as_of)


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
def test_a_snapshot_and_what_is_listened_to_are_the_contents_at_every_later_time(
    kind: TimeKind, data: st.DataObject
) -> None:
    as_of = data.draw(times(kind))
    since = data.draw(frontiers(kind, done=False))
    assume(since.less_equal(as_of))
    found = stored(data, kind, since)
    zero = Frontier.minimum(kind)
    seen = rows_of(snapshot_rows(found.version, found.schema, as_of))
    seen += rows_of(listened_rows(found.version, found.schema, zero, as_of))
    coverage = found.merged.upper
    for step in found.taken(coverage):
        assert step.start == coverage
        rows = found.rows(step.batch)
        fresh = rows.filter(mask_array(step.start.mask(found.schema.times(rows))))
        seen += rows_of(snapshot_rows(fresh, found.schema, as_of))
        delta = rows_of(listened_rows(rows, found.schema, step.start, as_of))
        assert all(less_equal(as_of, time) for _, time, _ in delta)
        seen += delta
        coverage = step.end
    for at in grid(kind):
        if less_equal(as_of, at) and not coverage.less_equal(at):
            assert contents(seen, at) == contents(found.written, at)


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
def test_a_restart_gives_what_was_written_beyond_where_it_left_off(kind: TimeKind, data: st.DataObject) -> None:
    """Where rule C2 lets it: nothing twice, nothing lost, at the times as they were written."""
    left_off = data.draw(frontiers(kind))
    since = data.draw(st.one_of(frontiers(kind, done=False), st.just(to_restart_from(left_off))))
    assume(not since.is_done)
    found = stored(data, kind, since)
    assume(found.merged.upper <= left_off or since.strictly_below(left_off))
    area_is_cut = not found.merged.upper <= left_off
    given_out: list[Update] = []
    coverage = left_off
    if area_is_cut:
        given_out += rows_of(listened_rows(found.version, found.schema, left_off, None))
        coverage = left_off.join(found.merged.upper)
    for step in found.taken(coverage):
        given_out += rows_of(listened_rows(found.rows(step.batch), found.schema, step.start, None))
        coverage = step.end
    expected = [row for row in found.written if left_off.less_equal(row[1]) and not coverage.less_equal(row[1])]
    assert _summed(given_out, found.schema) == _summed(expected, found.schema)


def _summed(rows: list[Update], schema: UpdateSchema) -> list[Update]:
    return rows_of(consolidate(schema.batch(rows), schema))
