"""The edit of a GC round (see `slate_async.storage.manifest.edits.protocol` for what an edit is).

It decides, by a commit, what may be deleted after it: no edit that adds an SST made for a version below ``sst_floor``
applies any more, and a checkpoint or an ingest that was removed cannot come back. So whatever the state it made does
not name, and what lies below its low-water mark (``sst_floor``), is garbage for ever, however long a sweeper stalls
before it deletes it.

Rule 25: docs/design/protocol-rules.md
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from slate_async.storage.manifest.edits.compactions import evicted, work_mark
from slate_async.storage.manifest.edits.ingests import without_expired
from slate_async.storage.manifest.state import ManifestState


@dataclass(frozen=True, slots=True)
class AdvanceGc:
    """Take out expired checkpoints and ingests, and raise ``sst_floor``. Applies to destroyed databases, too.

    Registered compactions stay, but for those of a compactor that stands still: see `evicted`.

    now_ms, skew_ms: what expired more than ``skew_ms`` before ``now_ms`` goes; its user judges its expiry by a
    clock of its own
    floor: a version that was committed, to which ``sst_floor`` rises as far as what is registered and stays lets it
    above: the result is a version above this one, even if nothing else changes
    stalled: the `work_mark` of registered compactions that go, if it is still that; empty: none
    """

    now_ms: int
    skew_ms: int
    floor: int = 0
    above: int = 0
    stalled: str = ""

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Its mark is that there is nothing left to take out or to raise."""
        left = without_expired(state, self.now_ms - self.skew_ms)
        checkpoints = tuple(
            checkpoint for checkpoint in left.checkpoints if not checkpoint.expired(self.now_ms - self.skew_ms)
        )
        if self.stalled and work_mark(state) == self.stalled:
            left = evicted(left)
        floor = max(state.sst_floor, min([self.floor, *registered_bases(left)]))
        unchanged = len(checkpoints) == len(state.checkpoints) and left is state and floor == state.sst_floor
        if unchanged and state.version > self.above:
            return None
        return replace(left, checkpoints=checkpoints, sst_floor=floor)


def registered_bases(state: ManifestState) -> list[int]:
    """The versions that name the SSTs of registered work: none of them is below ``sst_floor``. What is committed is
    named by the state, so it is safe wherever the low-water mark is."""
    ingests = (ingest.base_version for ingest in state.ingests if not ingest.pending)
    return [*(compaction.base_version for compaction in state.compactions), *ingests]
