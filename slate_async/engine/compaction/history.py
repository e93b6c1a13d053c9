"""How far back a compaction must keep the versions of rows."""

from __future__ import annotations

from collections.abc import Sequence

from slate_async.engine.compaction.spec import LogSst
from slate_async.storage.manifest.history import kept_above
from slate_async.storage.manifest.state import ManifestState


def keep_above(state: ManifestState, now_ms: int, log: Sequence[LogSst] = ()) -> int:
    """The sequence number above which every version stays, for a compaction of ``state`` and ``log`` begun now: see
    `kept_above`."""
    return kept_above(state, now_ms, max([state.last_seq, *(sst.ref.max_seq for sst in log)]))
