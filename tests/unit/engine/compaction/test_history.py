"""How far back versions are kept."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from slate_async.engine.compaction.history import keep_above
from slate_async.engine.compaction.spec import LogSst
from slate_async.storage.manifest.state import ManifestState, SeqTime, SstRef

STATE = ManifestState(
    database_id=UUID(int=1),
    log_protocol="contiguous",
    wal_enabled=True,
    created_ms=0,
    last_seq=50,
    retention_ms=100,
    history_floor=5,
    seq_times=(SeqTime(10, 1000), SeqTime(20, 1100), SeqTime(30, 1200)),
)


@pytest.mark.parametrize(
    ("now_ms", "above"),
    [(1099, 5), (1100, 10), (1199, 10), (1200, 20), (1300, 30), (9999, 30)],
)
def test_with_retention(now_ms: int, above: int) -> None:
    assert keep_above(STATE, now_ms) == above


def test_without_retention_only_the_newest_counts() -> None:
    assert keep_above(replace(STATE, retention_ms=0), 0) == 50


def test_the_log_is_newer_than_what_the_manifest_knows() -> None:
    sst = SstRef("log/7", b"7", 1, 1, 0, b"a", b"a", 60, 61, 1)
    assert keep_above(replace(STATE, retention_ms=0, wal_enabled=False), 0, [LogSst(7, sst)]) == 61
