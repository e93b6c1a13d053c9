"""Whether a round of a collector beside a writer would find garbage: a pure function of two states of the manifest. It
costs no request where nothing became garbage.

A process that makes garbage commits: a flush moves ``log_start``, a compaction changes L0 and the runs and ends, a
checkpoint or an ingest goes. Every commit leaves a version; those alone are worth a round only when there are many.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slate_async.storage.manifest.edits.gc import registered_bases
from slate_async.storage.manifest.state import ManifestState, SortedRun

MANY_VERSIONS = 64
"""Manifest versions are small; a round lists all there is."""


def made_garbage(before: ManifestState, after: ManifestState) -> bool:
    """Whether what was committed between two states, the earlier one first, may have made garbage worth a round."""
    if after.version - before.version >= MANY_VERSIONS:
        return True
    return (
        after.log_start > before.log_start
        or after.last_run_id != before.last_run_id
        or len(after.l0) < len(before.l0)
        or _shape(after.runs) != _shape(before.runs)
        or _removed(
            (checkpoint.id for checkpoint in before.checkpoints), (checkpoint.id for checkpoint in after.checkpoints)
        )
        or _removed(
            (compaction.id for compaction in before.compactions), (compaction.id for compaction in after.compactions)
        )
        or _removed((ingest.id for ingest in before.ingests), (ingest.id for ingest in after.ingests))
    )


def _shape(runs: Sequence[SortedRun]) -> list[tuple[int, int]]:
    return [(run.id, len(run.ssts)) for run in runs]


def _removed(before: Iterable[object], after: Iterable[object]) -> bool:
    return not set(before).issubset(after)


def ended(state: ManifestState, before_ms: int) -> bool:
    """Whether something in ``state`` expired before then: it goes with the next round."""
    jobs = (ingest.expire_ms for ingest in state.ingests if ingest.leased or not ingest.pending)
    return any(checkpoint.expired(before_ms) for checkpoint in state.checkpoints) or any(
        expire_ms <= before_ms for expire_ms in jobs
    )


def held_back(state: ManifestState) -> bool:
    """Whether what waits to be old enough waits for registered work to end first: that shows in a later state."""
    return min(registered_bases(state), default=state.sst_floor + 1) <= state.sst_floor
