"""What is worth a round beside a writer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from metastores.protocol import VersionRef
from slate_async.engine.gc.due import MANY_VERSIONS, ended, held_back, made_garbage
from slate_async.storage.manifest.state import Checkpoint, Compaction, Ingest, ManifestState, SortedRun, SstRef

ID = UUID(int=1)
SST = SstRef("sst/1", b"1" * 16, 9, 1, 0, b"a", b"b", 1, 1, 1)
RUNNING = Compaction(ID, 1, 5, 0, 0, True, (), (), 1, 0)
STATE = ManifestState(
    database_id=ID,
    log_protocol="contiguous",
    wal_enabled=True,
    created_ms=0,
    ref=VersionRef(10, ""),
    l0=(SST,),
    runs=(SortedRun(1, (SST,)),),
    checkpoints=(Checkpoint(ID, VersionRef(3, ""), 0, "user", 1, expire_ms=100),),
    compactions=(RUNNING,),
    ingests=(Ingest("job", 7, 0, 200),),
)


@pytest.mark.parametrize(
    "change",
    [
        {"log_start": 2},
        {"l0": ()},
        {"runs": ()},
        {"runs": (SortedRun(2, (SST,)),)},
        {"last_run_id": 1},
        {"checkpoints": ()},
        {"compactions": ()},
        {"ingests": ()},
        {"ref": VersionRef(10 + MANY_VERSIONS, "")},
    ],
    ids=lambda change: next(iter(change)),
)
def test_garbage_shows_in_the_state(change: dict[str, Any]) -> None:
    assert made_garbage(STATE, replace(STATE, **change))


@pytest.mark.parametrize(
    "change",
    [{}, {"ref": VersionRef(11, "")}, {"l0": (SST, SST)}, {"sst_floor": 3}, {"ingests": STATE.ingests * 2}],
)
def test_what_is_added_leaves_none(change: dict[str, Any]) -> None:
    assert not made_garbage(STATE, replace(STATE, **change))


def test_what_expires_is_worth_a_round_by_itself() -> None:
    assert (ended(STATE, 99), ended(STATE, 100)) == (False, True)
    assert (ended(replace(STATE, checkpoints=()), 199), ended(replace(STATE, checkpoints=()), 200)) == (False, True)


def test_what_registered_work_holds_back_does_not_come_by_waiting() -> None:
    assert held_back(replace(STATE, sst_floor=5))
    assert not held_back(replace(STATE, sst_floor=4))
    assert not held_back(replace(STATE, sst_floor=5, compactions=(), ingests=()))
