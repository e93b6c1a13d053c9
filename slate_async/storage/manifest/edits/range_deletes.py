"""Edits about range deletes: the rows that delete a range of keys, as the manifest remembers them.

A flush brings the range deletes of its rows into the state. There each stays as long as it may hide a row: until no SST
that may hold one of its keys has older rows, but such as a compaction has *swept*: dropped what it hides.

Invariant: a row of an SST is hidden by a range delete of the state, or of a memtable, or by none. Rule 35.

Rule 35: docs/design/protocol-rules.md
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from slate_async.errors import FencedError
from slate_async.storage.manifest.edits.protocol import check_usable, check_writer
from slate_async.storage.manifest.features import RANGE_DELETES_FEATURE
from slate_async.storage.manifest.state import ManifestState, SstRef
from slate_async.types import RangeDelete


@dataclass(frozen=True, slots=True)
class AllowRangeDeletes:
    """From now on the log may hold range deletes, and a release that does not know them refuses the database.

    Committed by the writer of ``epoch`` before its first one."""

    epoch: int

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Applies iff the epoch is still the writer's. Its mark is the feature."""
        check_writer(state, self.epoch)
        if RANGE_DELETES_FEATURE in state.required_features:
            return None
        return replace(state, required_features=(*state.required_features, RANGE_DELETES_FEATURE))


@dataclass(frozen=True, slots=True)
class DropHidden:
    """Take SSTs out of the database all of whose rows are hidden from every read that is still possible.

    ssts: object ids, each with the number of a range delete, not above ``keep_above``, that hides all of it"""

    epoch: int
    ssts: tuple[tuple[bytes, int], ...]

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Applies iff the epoch is still the compactor's, to those of the SSTs that no compaction has taken. Its mark
        is that none of the others is there."""
        if state.compactor_epoch != self.epoch:
            raise FencedError(f"compactor epoch {state.compactor_epoch} took over from epoch {self.epoch}")
        check_usable(state)
        named = dict(self.ssts)
        for object_id in taken_ssts(state):
            named.pop(object_id, None)
        dropped = [named[sst.object_id] for sst in state.ssts() if sst.object_id in named]
        if not dropped:
            return None
        runs = (replace(run, ssts=_without(run.ssts, named)) for run in state.runs)
        return without_swept(
            replace(
                state,
                l0=_without(state.l0, named),
                runs=tuple(run for run in runs if run.ssts),
                history_floor=max(state.history_floor, *dropped),
            )
        )


def taken_ssts(state: ManifestState) -> set[bytes]:
    """The object ids of all SSTs that a registered compaction takes."""
    taken: set[bytes] = set()
    for compaction in state.compactions:
        taken.update(compaction.l0, compaction.ssts or ())
        if compaction.ssts is None:
            taken.update(sst.object_id for run in state.runs if run.id in compaction.runs for sst in run.ssts)
    return taken


def _without(ssts: Sequence[SstRef], named: dict[bytes, int]) -> tuple[SstRef, ...]:
    return tuple(sst for sst in ssts if sst.object_id not in named)


def with_range_deletes(state: ManifestState, deletes: Iterable[RangeDelete]) -> ManifestState:
    """``state`` with ``deletes``, which are newer than all of its own, as far as they may hide a row."""
    known = (*(state.range_deletes or ()), *deletes)
    return without_swept(replace(state, range_deletes=known)) if known else state


def without_swept(state: ManifestState) -> ManifestState:
    """``state`` without the range deletes that hide no row of its SSTs."""
    if not state.range_deletes:
        return state
    kept = tuple(delete for delete in state.range_deletes if _hides(delete, state))
    return state if len(kept) == len(state.range_deletes) else replace(state, range_deletes=kept or None)


def may_hide(delete: RangeDelete, sst: SstRef) -> bool:
    """Whether ``sst`` may hold rows that ``delete`` hides."""
    swept = sst.swept_seq is not None and sst.swept_seq >= delete.seq
    return sst.min_seq < delete.seq and not swept and delete.overlaps(sst.first_key, sst.last_key)


def _hides(delete: RangeDelete, state: ManifestState) -> bool:
    if any(may_hide(delete, sst) for sst in state.l0):
        return True
    for run in state.runs:
        first = bisect_left(run.ssts, delete.start, key=lambda sst: sst.last_key)
        stop = bisect_left(run.ssts, delete.end, key=lambda sst: sst.first_key)
        if any(may_hide(delete, run.ssts[number]) for number in range(first, stop)):
            return True
    return False
