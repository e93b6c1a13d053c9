"""P11, the spine: few batches, in layers, little work for each row, and rest when nothing comes in.

Made-up batches are absorbed whenever there is room; merges begin when they are due and end in any order, with any
result that consolidation may leave.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slate_async.collections.core import spine
from slate_async.collections.core.area import Area, check_successor
from slate_async.collections.core.bounds import spanning
from slate_async.collections.core.edits import Absorb, Claim, ReplaceMerged
from slate_async.collections.core.spine import Merge
from tests.support.merged_areas import ZERO, at, merged


@dataclass
class Controller:
    """One that does what the spine says; ``random`` decides how much comes in, what shrinks, and which merge ends.

    absorbed: rows; weight: the same, where an empty batch counts as a row, for it grants fuel as if it had one
    """

    random: random.Random
    shrinks: bool
    at_once: bool
    area: Area = field(default_factory=lambda: Area.first(ZERO))
    running: list[Merge] = field(default_factory=list)
    absorbed: int = 0
    weight: int = 0
    worked: int = 0
    waited: int = 0
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def commit(self, edit: Claim | Absorb | ReplaceMerged) -> None:
        new = edit.apply(self.area)
        assert new is not None
        check_successor(self.area, new)
        self.area = new
        assert len(new.batches) <= spine.most_batches(self.absorbed)

    def absorb(self, rows: int) -> None:
        if not spine.has_room(self.area):
            self.waited += 1
            return
        self.absorbed += rows
        self.weight += max(rows, 1)
        [(end,)] = self.area.upper.elements
        batch = merged(f"b{next(self.numbers)}", end, end + 1, rows, diff_sum=0)
        self.commit(Absorb(1, batch, ""))

    def begin(self) -> bool:
        busy = {name for merge in self.running for name in merge.names}
        ready = spine.due(self.area, busy)
        if ready:
            self.running.append(ready[0])
        return bool(ready)

    def end(self) -> bool:
        if not self.running:
            return False
        self.finish(self.running.pop(self.random.randrange(len(self.running))))
        return True

    def finish(self, merge: Merge) -> None:
        self.worked += merge.rows
        rows = self.random.choice((merge.rows, self.random.randint(0, merge.rows))) if self.shrinks else merge.rows
        bounds = spanning([batch.bounds for batch in merge.batches])
        output = replace(merged(f"b{next(self.numbers)}", 0, 0, rows, diff_sum=0), bounds=bounds)
        self.commit(ReplaceMerged(1, merge.names, output))

    def settle(self) -> None:
        while self.begin() or self.end():
            pass

    def step(self, rows: int) -> None:
        self.absorb(rows)
        if self.at_once:
            self.settle()
            return
        for move in (self.begin, self.end, self.end):
            if self.random.random() < 0.6:
                move()


def controller(seed: int, *, shrinks: bool, at_once: bool) -> Controller:
    made = Controller(random.Random(seed), shrinks, at_once)
    made.commit(Claim("owner"))
    return made


def assert_layered(area: Area) -> None:
    """At most two of a layer, in falling order; the newest alone may stand above."""
    levels = [batch.level for batch in area.batches]
    assert levels == sorted(levels, reverse=True)
    assert all(levels.count(level) <= 2 for level in levels)


SIZES = st.lists(st.one_of(st.just(1), st.integers(0, 3), st.integers(1, 100), st.just(1000)), max_size=120)


@settings(max_examples=150)
@given(SIZES, st.integers(0, 999), st.booleans(), st.booleans())
@example([1, 0, 0, 0], 0, False, True)
def test_layers_hold_two_batches_and_rows_are_rewritten_seldom(
    sizes: list[int], seed: int, shrinks: bool, at_once: bool
) -> None:
    running = controller(seed, shrinks=shrinks, at_once=at_once)
    for rows in sizes:
        running.step(rows)
        if spine.has_room(running.area):
            assert_layered(running.area)
    running.settle()
    assert spine.has_room(running.area)
    assert_layered(running.area)
    assert running.worked <= 2 * running.weight * math.log2(max(running.weight, 2))


@settings(max_examples=60)
@given(st.integers(0, 999), st.integers(1, 600), st.booleans())
def test_rows_that_come_one_by_one(seed: int, count: int, shrinks: bool) -> None:
    running = controller(seed, shrinks=shrinks, at_once=True)
    for _ in range(count):
        running.step(1)
        assert spine.has_room(running.area)
        assert_layered(running.area)
    assert running.waited == 0
    assert running.worked <= 2 * running.absorbed * math.log2(max(running.absorbed, 2))


@settings(max_examples=60)
@given(SIZES, st.integers(0, 999), st.booleans())
@example([1000, 1000, 1000, 1000, 1, 3], 0, False)
@example([1, 1, 1000, 1000, 1, 1000, 1000, 1000, 1, 1000, 1000], 514, True)  # a merge leaves too little for its layer
def test_an_idle_collection_comes_to_one_batch_and_rests(sizes: list[int], seed: int, shrinks: bool) -> None:
    idle = controller(seed, shrinks=shrinks, at_once=False)
    for rows in sizes:
        idle.step(rows)
    idle.settle()
    before, left, saved = idle.worked, idle.area.rows, None
    granted = sum(fuel.rows for fuel in idle.area.fuel)  # by what was absorbed
    exerted = 0
    for _ in range(10_000):
        saved, merge = spine.exert(idle.area, at(0), saved, 64)
        if saved is None:
            break
        granted += 64
        if merge is not None:
            exerted += merge.rows
            idle.finish(merge)
            idle.settle()  # a result that shrank below its neighbours is merged with them at once
    assert saved is None
    assert len(idle.area.batches) <= 1
    assert idle.worked - before <= 3 * left
    assert exerted <= granted
    assert shrinks or idle.worked - before == exerted


@pytest.mark.parametrize("patched", ["has_room", "plan"])
def test_it_matters(monkeypatch: pytest.MonkeyPatch, patched: str) -> None:
    """Without room to wait for, and with pairs only, layers fill up."""
    if patched == "has_room":
        monkeypatch.setattr(spine, "has_room", lambda area: True)
    else:
        whole = spine.plan
        monkeypatch.setattr(spine, "plan", lambda area: [merge for merge in whole(area) if merge.is_pair])
    worst = 0
    for seed in range(20):
        running = controller(seed, shrinks=False, at_once=False)
        with pytest.MonkeyPatch.context() as unbounded:
            unbounded.setattr(spine, "most_batches", lambda rows: 10**9)
            for rows in (1, 3, 9, 27) * 30:
                running.step(rows)
        levels = [batch.level for batch in running.area.batches]
        worst = max(worst, *(levels.count(level) for level in levels))
    assert worst > 3
