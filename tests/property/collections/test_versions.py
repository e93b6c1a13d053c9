"""P10 and C26: versions are consecutive, one epoch is live, and no edit takes anything back, whatever it was judged on.

Controllers take the role from one another and go on committing edits that they made of older versions.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slate_async.collections.core import edits
from slate_async.collections.core.area import Area, MergedBatch, check_history
from slate_async.collections.core.bounds import Bounds, spanning
from slate_async.collections.core.edits import Absorb, Claim, Finalize, Publish, ReplaceMerged, Tombstone
from slate_async.collections.core.frontier import DONE, Frontier
from slate_async.collections.core.times import TimeKind
from slate_async.errors import ClosedError, ConflictError, FencedError, InternalError
from tests.property.collections.strategies import EDGE, KINDS

STEPS = st.lists(st.sampled_from(["claim", "absorb", "absorb", "merge", "merge", "publish", "publish", "late"]))
both_kinds = pytest.mark.parametrize("kind", KINDS)
UNKNOWN = {"of a newer release": 1}


@dataclass
class History:
    """All versions, and edits that were made, each of some version and some epoch."""

    random: random.Random
    kind: TimeKind
    versions: list[Area] = field(default_factory=list)
    made: list[Any] = field(default_factory=list)
    numbers: int = 0

    def __post_init__(self) -> None:
        self.versions.append(replace(Area.first(Frontier.minimum(self.kind)), unknown=UNKNOWN))

    @property
    def head(self) -> Area:
        return self.versions[-1]

    def name(self) -> str:
        self.numbers += 1
        return f"b{self.numbers}"

    def frontier(self) -> Frontier:
        if self.random.random() < 0.05:
            return DONE
        return Frontier(
            tuple(self.random.randrange(EDGE[self.kind]) for _ in range(self.kind.coordinates))
            for _ in range(self.random.randint(1, 3))
        )

    def batch(self, bounds: Bounds, rows: int, diffs: int) -> MergedBatch:
        return MergedBatch(self.name(), bounds, rows, rows, rows, diffs, 0, 0)

    def make(self, step: str) -> Any:
        """An edit of a version that may be old by now, of whichever epoch that has."""
        of = self.random.choice(self.versions[-3:])
        if step == "late" and self.made:
            return self.random.choice(self.made)
        if step == "absorb":
            rows = self.random.randint(0, 20)
            bounds = Bounds(of.upper, of.upper.join(self.frontier()), of.since)
            return Absorb(of.epoch, self.batch(bounds, rows, rows), self.name())
        if step == "merge" and of.batches:
            start = self.random.randrange(len(of.batches))
            inputs = of.batches[start : start + self.random.randint(1, 3)]
            target = of.bound.meet(self.frontier())
            target = of.since if target.is_done else target  # as `compaction_target`: only `Finalize` ends a collection
            bounds = spanning([batch.bounds for batch in inputs]).compacted(target)
            rows = self.random.randint(0, sum(batch.rows for batch in inputs))
            output = self.batch(bounds, rows, sum(batch.diff_sum for batch in inputs))
            return ReplaceMerged(of.epoch, tuple(batch.name for batch in inputs), output)
        if step == "publish":
            meet = None if self.random.random() < 0.3 else self.frontier()
            oldest = self.random.choice([None, self.random.randint(0, of.version)])
            return Publish(of.epoch, meet, oldest)
        if step == "end":
            return self.random.choice([Tombstone(self.name()), Finalize(of.epoch)])
        return Claim(self.name())

    def commit(self, edit: Any) -> None:
        self.made.append(edit)
        try:
            new = edit.apply(self.head)
        except FencedError:
            assert edit.epoch != self.head.epoch
            return
        except (ConflictError, ClosedError):
            return
        if new is None:
            return
        assert isinstance(edit, Claim | Tombstone) or edit.epoch == self.head.epoch
        self.versions.append(new)
        if not (isinstance(edit, Publish) and edit.oldest is None):
            assert isinstance(edit, Finalize) or edit.apply(new) is None


@both_kinds
@settings(max_examples=150)
@given(STEPS, st.integers(0, 9_999), st.booleans())
def test_versions_follow_each_other_whoever_commits(kind: TimeKind, steps: list[str], seed: int, ends: bool) -> None:
    history = History(random.Random(seed), kind)
    for step in ["claim", *steps, *["end", "claim", "absorb", "publish"] * ends]:
        history.commit(history.make(step))
    check_history(history.versions)
    assert [area.version for area in history.versions] == list(range(len(history.versions)))
    assert all(area.unknown == UNKNOWN for area in history.versions)
    owners = {area.epoch: area.token for area in history.versions}
    assert all(owners[area.epoch] == area.token for area in history.versions)


def test_it_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    """With marks and conditions off, versions that were made cannot follow each other."""
    monkeypatch.setattr(edits, "is_absorbed", lambda *_: False)
    monkeypatch.setattr(edits, "begins_at_upper", lambda *_: True)
    rng, broken = random.Random(1), 0
    for seed in range(40):
        history = History(random.Random(seed), TimeKind.U64)
        try:
            for _ in range(20):
                history.commit(history.make(rng.choice(["absorb", "absorb", "late", "publish"])))
            check_history(history.versions)
        except (InternalError, AssertionError):
            broken += 1
    assert broken
