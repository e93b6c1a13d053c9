"""P12 and P1: consolidation is a dictionary of sums, and compaction changes no answer at or beyond its since."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slate_async.codec.arrays import mask_array
from slate_async.collections.core.bounds import Bounds, spanning
from slate_async.collections.core.consolidate import consolidate, consolidate_unordered
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.times import TimeKind
from slate_async.collections.core.updates import UpdateSchema
from slate_async.errors import InvalidError
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

INT64 = range(-(2**63), 2**63)
DIFFS = st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1), st.sampled_from([2**62, -(2**62), 2**63 - 1]))
VALUES = st.one_of(st.sampled_from([b"", b"a", b"a\0", b"b"]), st.binary(max_size=12))


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
def test_consolidation_is_a_dictionary_of_sums(kind: TimeKind, data: st.DataObject) -> None:
    schema = UpdateSchema.of_bytes(kind)
    rows = data.draw(st.lists(st.tuples(VALUES, times(kind), DIFFS), max_size=16))
    sums: Counter[tuple[bytes, tuple[int, ...]]] = Counter()
    for value, time, diff in rows:
        sums[value, time] += diff
    batch = schema.batch(rows)
    if any(diff not in INT64 for diff in sums.values()):
        for work in (consolidate, consolidate_unordered):
            with pytest.raises(InvalidError, match="does not fit int64"):
                work(batch, schema)
        kept: Counter[tuple[bytes, tuple[int, ...]]] = Counter()
        for value, time, diff in rows_of(consolidate(batch, schema, keep=True)):
            kept[value, time] += diff
        assert kept == {key: diff for key, diff in sums.items() if diff}
        return
    found = consolidate(batch, schema)
    assert rows_of(found) == sorted((value, time, diff) for (value, time), diff in sums.items() if diff)
    assert consolidate(found, schema) is found
    assert sorted(rows_of(schema.batch(consolidate_unordered(batch, schema)))) == rows_of(found)
    middle = data.draw(st.integers(0, len(rows)))
    try:
        parts = [consolidate(part, schema) for part in (batch.slice(0, middle), batch.slice(middle))]
    except InvalidError:
        return
    assert consolidate(schema.batch(rows_of(parts[0]) + rows_of(parts[1])), schema).equals(found)


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
def test_compaction_changes_no_answer_at_or_beyond_since(kind: TimeKind, data: st.DataObject) -> None:
    """Batches of a history, each compacted as far as it likes and then merged: at every time that its since is at or
    before, a batch answers as what was written at the times between its bounds."""
    schema = UpdateSchema.of_bytes(kind)
    written = data.draw(updates(kind))
    chain = data.draw(chains(kind))
    everything = schema.batch(written)
    parts: list[tuple[Bounds, list[Update]]] = []
    for lower, upper in itertools.pairwise(chain):
        bounds = Bounds(lower, upper, Frontier.minimum(kind))
        batch = everything.filter(mask_array(bounds.mask(schema.times(everything))))
        parts.append(compacted(bounds, rows_of(batch), data.draw(frontiers(kind)), schema))
        check(*parts[-1], written, kind)
    if parts:
        merged = spanning([bounds for bounds, _ in parts])
        rows = [row for _, part in parts for row in part]
        check(*compacted(merged, rows, data.draw(frontiers(kind)), schema), written, kind)


def compacted(bounds: Bounds, rows: list[Update], since: Frontier, schema: UpdateSchema) -> tuple[Bounds, list[Update]]:
    batch = schema.batch(rows)
    batch = schema.with_times(batch, since.advance_by(schema.times(batch)))
    return bounds.compacted(since), rows_of(consolidate(batch, schema))


def check(bounds: Bounds, rows: list[Update], written: list[Update], kind: TimeKind) -> None:
    within = [update for update in written if bounds.contains(update[1])]
    for at in grid(kind):
        if bounds.since.less_equal(at):
            assert contents(rows, at) == contents(within, at)
    assert sum(diff for *_, diff in rows) == sum(diff for *_, diff in within)


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
def test_a_cut_batch_holds_what_was_written_beyond_the_cut(kind: TimeKind, data: st.DataObject) -> None:
    """P3 over rows: cut a compacted batch where it may be cut, and nothing is doubled or lost."""
    schema = UpdateSchema.of_bytes(kind)
    written = data.draw(updates(kind))
    since, at = data.draw(frontiers(kind, done=False)), data.draw(frontiers(kind))
    bounds, rows = compacted(Bounds(Frontier.minimum(kind), Frontier(), Frontier.minimum(kind)), written, since, schema)
    if not bounds.can_cut(at):
        with pytest.raises(InvalidError, match="cannot be cut"):
            bounds.cut(at)
        return
    cut = bounds.cut(at)
    kept = [row for row in rows if cut.contains(row[1])]
    after: Counter[tuple[bytes, tuple[int, ...]]] = Counter()
    for value, time, diff in written:
        if at.less_equal(time):
            after[value, time] += diff
    assert sorted(kept) == sorted((value, time, diff) for (value, time), diff in after.items() if diff)
