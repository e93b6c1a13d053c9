"""The parts of rule 35, each with the way to break it: how long a range delete stays, and what it may take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from slate_async.engine.compaction import compactor, job
from slate_async.engine.compaction.sweep import deletes_within, hidden_whole
from slate_async.storage.manifest.edits import range_deletes
from slate_async.storage.manifest.edits import writer as writer_edits
from slate_async.storage.manifest.state import ManifestState
from slate_async.types import MAX_SEQ, RangeDelete
from tests.simulation.rules.switch import Patch, Switch
from tests.simulation.scenarios.ranges import RANGES

CALM = RANGES[1]


def hides_in_l0(delete: RangeDelete, state: ManifestState) -> bool:
    """Runs are not asked whether they hold rows that it hides."""
    return any(range_deletes.may_hide(delete, sst) for sst in state.l0)


def never_named(state: ManifestState, deletes: Iterable[RangeDelete]) -> ManifestState:
    """The edit that moves rows into L0 does not name range deletes."""
    return state


def numbered_late(state: ManifestState, deletes: Iterable[RangeDelete]) -> ManifestState:
    """They have the number of the newest row that is flushed with them."""
    late = tuple(replace(delete, seq=state.last_seq + 1) for delete in deletes)
    return range_deletes.with_range_deletes(state, late)


def swept_by_all(state: ManifestState, keep_above: int) -> int | None:
    """A compaction that has used some is noted to have used all."""
    return state.last_seq if state.range_deletes else None


def within_any(
    state: ManifestState, start: bytes | None, end: bytes | None, keep_above: int
) -> tuple[RangeDelete, ...]:
    """Those above ``keep_above``, too."""
    return deletes_within(state, start, end, MAX_SEQ)


def whole_by_any(state: ManifestState, keep_above: int) -> tuple[tuple[bytes, int], ...]:
    """SSTs go that time travel reads, and the floor of history does not say so."""
    return tuple((object_id, state.history_floor) for object_id, _ in hidden_whole(state, MAX_SEQ))


def _switch(name: str, broken: str, patch: Patch, within: int) -> Switch:
    return Switch(f"35-{name}", "35", broken, (patch,), within=within, stage=CALM)


RANGE_SWITCHES: Sequence[Switch] = (
    _switch("named", "a flush does not name range deletes", Patch(writer_edits, "with_range_deletes", never_named), 20),
    _switch("number", "one hides newer rows", Patch(writer_edits, "with_range_deletes", numbered_late), 20),
    _switch("forgotten", "one goes while runs hold what it hides", Patch(range_deletes, "_hides", hides_in_l0), 60),
    _switch("swept", "SSTs count as swept by later ones, too", Patch(job, "swept_by", swept_by_all), 60),
    _switch("horizon", "rows go that time travel reads", Patch(job, "deletes_within", within_any), 60),
    _switch("whole", "SSTs go that time travel reads", Patch(compactor, "hidden_whole", whole_by_any), 60),
)
