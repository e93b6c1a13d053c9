"""`PlanBuilder`: the compactions under way in one state and those planned so far, which must not disturb each other.

Positions in age order: 0 for the log and L0, ``1 + i`` for run ``i``. A compaction reserves the positions from its
newest input to the place of its output, over the keys from the lowest to the highest of its inputs; over all keys if it
takes whole runs, for what joins one of them until its commit would be taken out with it. Two compactions whose
reservations overlap in both are never under way together. So nothing changes between a plan and its commit that
it relied on: no key comes to lie below a compaction that was planned to be at the bottom, and no two outputs overlap in
one run.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from slate_async.engine.compaction.history import keep_above
from slate_async.engine.compaction.spec import CompactionSpec, LogSst, PlannerConfig
from slate_async.storage.manifest.compaction_inputs import Inputs
from slate_async.storage.manifest.state import Compaction, ManifestState, SortedRun, SstRef, l0_units

SMALL_SHARE = 4
"""SSTs smaller on average than this part of ``sst_bytes`` are rewritten rather than moved, or they would pile up."""


class Keys(NamedTuple):
    """Keys from ``first`` to ``last``, both inclusive."""

    first: bytes
    last: bytes

    def overlaps(self, other: Keys) -> bool:
        """Whether some key is in both."""
        return self.first <= other.last and other.first <= self.last


def span(ssts: Iterable[SstRef]) -> Keys:
    """From the lowest to the highest key of ``ssts``, of which there is at least one."""
    ends = [(sst.first_key, sst.last_key) for sst in ssts]
    return Keys(min(first for first, _ in ends), max(last for _, last in ends))


def within(ssts: Sequence[SstRef], keys: Keys) -> Sequence[SstRef]:
    """Those of a run's ``ssts`` that may hold one of ``keys``."""
    first = bisect_left(ssts, keys.first, key=lambda sst: sst.last_key)
    return ssts[first : bisect_right(ssts, keys.last, key=lambda sst: sst.first_key)]


def flat(sources: Iterable[Sequence[SstRef]]) -> tuple[SstRef, ...]:
    """All SSTs of ``sources``."""
    return tuple(sst for source in sources for sst in source)


class Reservation(NamedTuple):
    """What a compaction keeps others from; see the module docstring."""

    newest: int
    oldest: int
    keys: Keys
    whole: bool = False

    def overlaps(self, other: Reservation) -> bool:
        """Whether the two would disturb each other."""
        if self.newest > other.oldest or other.newest > self.oldest:
            return False
        return self.whole or other.whole or self.keys.overlaps(other.keys)


class PlanBuilder:
    """See the module docstring. ``specs`` are what was planned so far."""

    def __init__(self, state: ManifestState, log: Sequence[LogSst], now_ms: int, config: PlannerConfig) -> None:
        """``log`` newest first."""
        self.state = state
        self.config = config
        self.horizon_ms = now_ms - state.retention_ms
        self.keep_above = keep_above(state, now_ms, log)
        self.specs: list[CompactionSpec] = []
        self.top_busy = False
        self.leaving: dict[bytes, int] = {}
        """Reserved SSTs and the levels they go to."""
        self._log = tuple(log)
        self.top: tuple[tuple[SstRef, ...], ...] = (*((sst.ref,) for sst in log), *l0_units(state.l0))
        """The sorted sources that overlap each other, newest first: SSTs of the log, then those of L0. An ingest of
        many SSTs is one of them."""
        self._place = {run.id: index for index, run in enumerate(state.runs)}
        self._reservations: list[Reservation] = []
        for compaction in state.compactions:
            self._under_way(compaction)

    @property
    def busy_runs(self) -> int:
        """Compactions under way or planned that do not begin at the top."""
        return sum(reservation.newest > 0 for reservation in self._reservations)

    def level(self, number: int) -> SortedRun | None:
        """The run of level ``number``, 1 or more, if there is one."""
        return next((run for run in self.state.runs if run.level == number), None)

    def free(self, runs: Sequence[SortedRun], keys: Keys) -> bool:
        """Whether a compaction of ``runs`` over ``keys`` would disturb no other."""
        places = [1 + self._place[run.id] for run in runs]
        reservation = Reservation(min(places), max(places), keys)
        return not any(reservation.overlaps(other) for other in self._reservations)

    def add(
        self,
        *,
        top: int = 0,
        runs: Sequence[SortedRun] = (),
        ssts: Sequence[SstRef] | None = None,
        level: int = 0,
        target: SortedRun | None = None,
        rewrite: bool = False,
    ) -> bool:
        """Plan a compaction unless it would disturb another one, or has no input.

        top: so many sources of `top`, from the oldest end
        runs, ssts: neighbouring runs, newest first, and what is taken of them (``None``: everything)
        level, target: where its output goes
        rewrite: do not move, even if that would do"""
        taken = flat(self.top[len(self.top) - top :])
        of_runs = flat(run.ssts for run in runs) if ssts is None else tuple(ssts)
        sources = (*taken, *of_runs)
        if not sources or (top and self.top_busy):
            return False
        of_place = [*runs, *([] if target is None else [target])]
        reservation = self._reservation(bool(top), of_place, span(sources), whole=bool(runs) and ssts is None)
        if any(reservation.overlaps(other) for other in self._reservations):
            return False
        from_log = max(0, len(taken) - len(self.state.l0))
        below = self.state.runs[reservation.oldest :]
        bottom = not any(within(run.ssts, reservation.keys) for run in below)
        spec = CompactionSpec(
            l0=tuple(sst.object_id for sst in taken[from_log:]),
            runs=tuple(run.id for run in runs),
            target_level=level,
            bottom=bottom,
            ssts=None if ssts is None else tuple(sst.object_id for sst in ssts),
            target_run=None if target is None else target.id,
            log_end=self._log[len(self._log) - from_log].position if from_log else None,
            move=not rewrite and not from_log and self._movable(sources, bottom, level),
        )
        self.specs.append(spec)
        self._take(reservation, sources, level)
        return True

    def sheds(self, sst: SstRef) -> bool:
        """Whether rewriting ``sst`` at the bottom would drop rows of it that no read needs."""
        expired = sst.min_expire_ms is not None and sst.min_expire_ms <= self.horizon_ms
        return expired or sst.tombstones > 0

    def useless(self, sst: SstRef) -> bool:
        """Whether ``sst``, which nothing does anything about, would lose half its rows at the bottom, or all its
        expiring ones."""
        if sst.max_seq > self.keep_above or sst.object_id in self.leaving:
            return False
        expired = sst.max_expire_ms is not None and sst.max_expire_ms <= self.horizon_ms
        return expired or 2 * sst.tombstones >= sst.rows

    def _movable(self, sources: Sequence[SstRef], bottom: bool, level: int) -> bool:
        if bottom and any(map(self.sheds, sources)):
            return False
        if level <= 1 and len(sources) > 1:
            size = sum(sst.size for sst in sources)
            if size * SMALL_SHARE < len(sources) * self.config.sst_bytes:
                return False
        ordered = sorted(sources, key=lambda sst: sst.first_key)
        return all(before.last_key < after.first_key for before, after in pairwise(ordered))

    def _reservation(
        self, from_top: bool, runs: Sequence[SortedRun], keys: Keys, *, whole: bool = False
    ) -> Reservation:
        places = [1 + self._place[run.id] for run in runs] + [0] * from_top
        return Reservation(min(places), max(places), keys, whole)

    def _take(self, reservation: Reservation, sources: Sequence[SstRef], level: int) -> None:
        self._reservations.append(reservation)
        self.top_busy = self.top_busy or reservation.newest == 0
        self.leaving.update((sst.object_id, level) for sst in sources)

    def _under_way(self, compaction: Compaction) -> None:
        found = Inputs.of(compaction).find(self.state)
        if found is None:
            return  # it cannot be committed any more: it is about to be dropped
        from_log = [] if compaction.log_end is None else [o.ref for o in self._log if o.position <= compaction.log_end]
        sources = (*from_log, *flat(found))
        from_top = bool(compaction.l0) or compaction.log_end is not None
        self.top_busy = self.top_busy or from_top
        if not sources:
            return
        target = (compaction.target_run, compaction.target_level)
        runs = [
            run
            for run in self.state.runs
            if run.id in compaction.runs or run.id == target[0] or 0 < run.level == target[1]
        ]
        whole = bool(compaction.runs) and compaction.ssts is None
        reservation = self._reservation(from_top, runs, span(sources), whole=whole)
        self._take(reservation, sources, compaction.target_level)
