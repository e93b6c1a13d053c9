"""P4: whichever pending batches are taken, in whichever order, the updates are the same."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slate_async.collections.core.bounds import Bounds
from slate_async.collections.core.coverage import Reach, Taken, extend, reach
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.times import TimeKind
from tests.property.collections.strategies import KINDS, Update, chains, frontiers, updates


def batches(draw: st.DataObject, kind: TimeKind) -> list[Bounds]:
    """Those of up to three writers, each of which cut the history where it liked; some are missing."""
    zero = Frontier.minimum(kind)
    found = []
    for _ in range(draw.draw(st.integers(1, 3))):
        chain = draw.draw(chains(kind))
        found += [Bounds(lower, upper, zero) for lower, upper in itertools.pairwise(chain)]
    kept = draw.draw(st.lists(st.booleans(), min_size=len(found), max_size=len(found)))
    return draw.draw(st.permutations([batch for batch, keep in zip(found, kept, strict=True) if keep or len(kept) < 4]))


def rows(history: list[Update], taken: list[Taken[Bounds]]) -> list[Update]:
    """The rows that are taken from batches, each of which holds all of the history that lies within it."""
    return [
        update
        for step in taken
        for update in history
        if step.batch.contains(update[1]) and step.start.less_equal(update[1])
    ]


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
def test_any_choice_gives_the_same_updates(kind: TimeKind, data: st.DataObject) -> None:
    history, start = data.draw(updates(kind)), data.draw(frontiers(kind))
    pending = batches(data, kind)
    coverage, chosen = start, []
    while extending := [batch for batch in pending if reach(coverage, batch.lower, batch.upper) is Reach.EXTENDS]:
        batch = data.draw(st.sampled_from(extending))
        chosen.append(Taken(batch, coverage, coverage.join(batch.upper)))
        coverage = chosen[-1].end
    extension = extend(start, pending)
    assert extension.coverage == coverage
    truth = [u for u in history if start.less_equal(u[1]) and not coverage.less_equal(u[1])]
    assert sorted(rows(history, chosen)) == sorted(rows(history, list(extension.taken))) == sorted(truth)
    for step in extension.taken:
        assert reach(step.start, step.batch.lower, step.batch.upper) is Reach.EXTENDS
        assert step.end == step.start.join(step.batch.upper) != step.start
        within = [time for _, time, _ in history if step.batch.contains(time)]
        assert not step.is_whole or all(step.start.less_equal(time) for time in within)


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
def test_a_limit_gives_a_beginning_of_the_same_choice(kind: TimeKind, data: st.DataObject) -> None:
    start, pending = Frontier.minimum(kind), batches(data, kind)
    whole = extend(start, pending)
    limit = data.draw(st.integers(0, 4))
    first = extend(start, pending, limit=limit)
    assert first.taken == whole.taken[:limit]
    assert extend(first.coverage, pending).coverage == whole.coverage


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
def test_in_one_dimension_the_longest_reach_takes_the_fewest(kind: TimeKind, data: st.DataObject) -> None:
    if kind is not TimeKind.U64:
        return
    pending = batches(data, kind)
    extension = extend(Frontier.minimum(kind), pending)
    fewest = {Frontier.minimum(kind): 0}
    for _ in pending:
        for coverage, count in list(fewest.items()):
            for batch in pending:
                if reach(coverage, batch.lower, batch.upper) is Reach.EXTENDS:
                    end = coverage.join(batch.upper)
                    fewest[end] = min(fewest.get(end, 99), count + 1)
    assert fewest[extension.coverage] == len(extension.taken)
