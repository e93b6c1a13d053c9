"""The edit of a garbage collection (see `slate_async.manifest.edits` for what an edit is).

It decides, by a commit, what may be deleted after it: no edit that adds an SST made for a version below ``sst_floor``
applies any more, and a checkpoint or compaction that is gone cannot come back. So whatever the state it made does not
name, and what lies below its floor, is garbage for ever, however long the collector sleeps before it deletes it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from slate_async.manifest.state import ManifestState


@dataclass(frozen=True, slots=True)
class Collect:
    """Take out what has ended and raise ``sst_floor``. Applies to destroyed databases, too.

    now_ms, skew_ms: checkpoints that expired more than ``skew_ms`` before ``now_ms`` go; whoever uses one judges its
    expiry by a clock of its own
    floor: a version that was committed, to which ``sst_floor`` rises as far as the compactions that stay let it
    compactor_epoch: compactions of lower epochs go. Their compactor was replaced and can commit nothing; one that
    would have resumed them finds them gone and plans anew, so only work is lost
    above: the result is a version above this one, even if nothing else changes
    """

    now_ms: int
    skew_ms: int
    floor: int = 0
    compactor_epoch: int = 0
    above: int = 0

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Its mark is that there is nothing left to take out or to raise."""
        checkpoints = tuple(one for one in state.checkpoints if not one.expired(self.now_ms - self.skew_ms))
        compactions = tuple(one for one in state.compactions if one.epoch >= self.compactor_epoch)
        held = min((one.base_version for one in compactions), default=self.floor)
        floor = max(state.sst_floor, min(self.floor, held))
        if (
            len(checkpoints) == len(state.checkpoints)
            and len(compactions) == len(state.compactions)
            and floor == state.sst_floor
            and state.version > self.above
        ):
            return None
        return replace(state, checkpoints=checkpoints, compactions=compactions, sst_floor=floor)
