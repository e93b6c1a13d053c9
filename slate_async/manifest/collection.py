"""The edit of a garbage collection (see `slate_async.manifest.edits` for what an edit is).

It decides, by a commit, what may be deleted after it: no edit that adds an SST made for a version below ``sst_floor``
applies any more, and a checkpoint that is gone cannot come back. So whatever the state it made does not
name, and what lies below its floor, is garbage for ever, however long the collector sleeps before it deletes it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from slate_async.manifest.state import ManifestState


@dataclass(frozen=True, slots=True)
class Collect:
    """Take out expired checkpoints and raise ``sst_floor``. Applies to destroyed databases, too.

    A registered compaction stays, whatever became of its compactor: that one would take its absence for its commit.
    The next compactor's claim resumes or drops it.

    now_ms, skew_ms: checkpoints that expired more than ``skew_ms`` before ``now_ms`` go; whoever uses one judges its
    expiry by a clock of its own
    floor: a version that was committed, to which ``sst_floor`` rises as far as the compactions that stay let it
    above: the result is a version above this one, even if nothing else changes
    """

    now_ms: int
    skew_ms: int
    floor: int = 0
    above: int = 0

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Its mark is that there is nothing left to take out or to raise."""
        checkpoints = tuple(one for one in state.checkpoints if not one.expired(self.now_ms - self.skew_ms))
        floor = max(state.sst_floor, min([self.floor, *(one.base_version for one in state.compactions)]))
        unchanged = len(checkpoints) == len(state.checkpoints) and floor == state.sst_floor
        if unchanged and state.version > self.above:
            return None
        return replace(state, checkpoints=checkpoints, sst_floor=floor)
