"""How far back a compaction must keep the versions of rows."""

from __future__ import annotations

from collections.abc import Sequence

from slate_async.engine.compaction.spec import LogSst
from slate_async.storage.manifest.state import ManifestState


def keep_above(state: ManifestState, now_ms: int, log: Sequence[LogSst] = ()) -> int:
    """The sequence number above which every version stays, for a compaction of ``state`` and ``log`` begun now.

    Without retention that is the highest there is: readers of older versions pin the SSTs that hold them. With it, the
    highest known to be written at or before the horizon; below `ManifestState.history_floor` versions are lost already,
    and keeping some of them would help no read."""
    if not state.retention_ms:
        return max([state.last_seq, *(sst.ref.max_seq for sst in log)])
    old = [sample.seq for sample in state.seq_times if sample.time_ms <= now_ms - state.retention_ms]
    return max([state.history_floor, *old])
