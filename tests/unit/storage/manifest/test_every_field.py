"""Where a database becomes another one, somebody has decided for every field of the state what becomes of it. A new
field fails here until it is in the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from metastores.protocol import VersionRef
from slate_async.storage.manifest.edits.lifecycle import CopyContents, Recreate, RemoveContents
from slate_async.storage.manifest.edits.mirror import ShowMirrored
from slate_async.storage.manifest.state import (
    AppBatch,
    Checkpoint,
    Compaction,
    Ingest,
    IngestRecord,
    ManifestState,
    Mirrored,
    Parent,
    SeqTime,
    SkippedSeqs,
    SortedRun,
    SstRef,
)
from slate_async.types import RangeDelete


class Fate(NamedTuple):
    """What a field has afterwards. ``source``: what is copied, or the new database's first state; ``own``: what the
    state being edited has; ``none``: its default; ``made``: something of its own.

    mirror: the next checkpoint is shown; clone: it gets its contents; removed: a destroyed database is emptied;
    again: another one is made in its place"""

    mirror: str
    clone: str
    removed: str
    again: str


EVERY_FIELD = {
    "database_id": Fate("source", "own", "own", "source"),
    "log_protocol": Fate("source", "source", "own", "source"),
    "wal_enabled": Fate("source", "source", "own", "source"),
    "created_ms": Fate("source", "own", "own", "source"),
    "properties": Fate("source", "own", "own", "source"),
    "merge_operator": Fate("source", "source", "own", "source"),
    "ref": Fate("own", "own", "own", "own"),
    "store_id": Fate("own", "own", "own", "own"),
    "marked": Fate("own", "own", "own", "source"),
    "initialized": Fate("made", "made", "own", "source"),
    "destroyed_at_ms": Fate("none", "source", "own", "source"),
    "removed": Fate("none", "source", "made", "source"),
    "writer_epoch": Fate("source", "made", "own", "own"),
    "writer_token": Fate("none", "none", "own", "source"),
    "compactor_epoch": Fate("source", "source", "own", "made"),
    "compactor_token": Fate("none", "none", "own", "source"),
    "fence_width": Fate("source", "source", "own", "own"),
    "heartbeat_interval_ms": Fate("none", "none", "own", "source"),
    "log_start": Fate("source", "source", "made", "own"),
    "log_last_seen": Fate("source", "made", "own", "own"),
    "log_floor": Fate("source", "source", "made", "own"),
    "last_seq": Fate("source", "source", "own", "own"),
    "last_tick_ms": Fate("source", "source", "own", "own"),
    "sst_floor": Fate("own", "none", "made", "made"),
    "last_run_id": Fate("source", "source", "own", "own"),
    "l0": Fate("source", "made", "none", "source"),
    "runs": Fate("source", "made", "none", "source"),
    "range_deletes": Fate("source", "source", "none", "source"),
    "checkpoints": Fate("own", "none", "none", "source"),
    "compactions": Fate("none", "none", "none", "source"),
    "parents": Fate("none", "made", "made", "source"),
    "mirrored": Fate("made", "none", "own", "source"),
    "ingests": Fate("own", "none", "none", "source"),
    "ingest_records": Fate("made", "source", "none", "source"),
    "ingest_apps": Fate("source", "source", "none", "source"),
    "ingest_seq": Fate("source", "source", "own", "own"),
    "retention_ms": Fate("source", "source", "own", "source"),
    "history_floor": Fate("source", "source", "made", "source"),
    "expiry_floor_ms": Fate("source", "source", "own", "source"),
    "seq_times": Fate("source", "source", "none", "source"),
    "skipped": Fate("source", "source", "own", "source"),
    "compaction": Fate("source", "source", "own", "source"),
    "required_features": Fate("source", "source", "own", "source"),
    "optional_features": Fate("source", "source", "own", "source"),
    "unknown": Fate("source", "source", "own", "source"),
}


def test_every_field_is_decided_on() -> None:
    assert sorted(EVERY_FIELD) == sorted(field.name for field in fields(ManifestState))


DEFAULTS = {
    field.name: field.default if field.default is not MISSING else field.default_factory()  # type: ignore[misc]
    for field in fields(ManifestState)
    if field.default is not MISSING or field.default_factory is not MISSING
}


def state(number: int, **more: Any) -> ManifestState:
    """A state in which no field has its default, nor what another number has."""
    sst = SstRef(f"sst/{number}", bytes([number]) * 16, 9, 1, 0, b"a", b"b", number * 10, number * 10, 1)
    uuid = UUID(int=number)
    values: dict[str, Any] = {
        "database_id": uuid,
        "store_id": uuid,
        "log_protocol": "epoch_prefixed",
        "wal_enabled": True,
        "created_ms": number,
        "properties": {"n": str(number)},
        "merge_operator": f"m{number}",
        "ref": VersionRef(number, f"{number:032}"),
        "writer_token": f"w{number}",
        "compactor_token": f"c{number}",
        "heartbeat_interval_ms": number * 1_000,
        "l0": (sst,),
        "runs": (SortedRun(number, (sst,)),),
        "range_deletes": (RangeDelete(number, b"a", b"b", number),),
        "checkpoints": (Checkpoint(uuid, VersionRef(number, ""), number, "user", 1, log_end=0),),
        "compactions": (Compaction(uuid, 1, 1, 0, 0, True, (), (), number, 0),),
        "parents": (Parent(uuid, f"p{number}", uuid),),
        "ingests": (Ingest(f"i{number}", number, 0, 1),),
        "ingest_records": (IngestRecord(f"r{number}", "admitted", number),),
        "ingest_apps": (AppBatch(f"a{number}", number),),
        "seq_times": (SeqTime(number, number),),
        "skipped": (SkippedSeqs(number * 100, number * 100 + 1),),
        "compaction": "leveled",
        "required_features": (f"f{number}",),
        "optional_features": (f"o{number}",),
        "unknown": {"u": number},
        "mirrored": Mirrored(f"m{number}", uuid),
        **more,
    }
    numbers = {name: number * 100 for name in EVERY_FIELD if isinstance(DEFAULTS.get(name), int) and name not in values}
    flags = {"initialized": number == 1, "removed": number == 2, "destroyed_at_ms": number}
    return ManifestState(**{**numbers, **flags, **values})


def mirrored() -> tuple[ManifestState, ManifestState, ManifestState | None]:
    source = state(3, initialized=True, removed=True)
    own = state(
        2, database_id=source.database_id, destroyed_at_ms=None, writer_epoch=1, compactor_epoch=1,
        mirrored=Mirrored("m", UUID(int=9), writer_epoch=1, compactor_epoch=1),
    )  # fmt: skip
    return source, own, ShowMirrored(source, Mirrored("m", UUID(int=8)), 10_000, frozenset(), own.store_id).apply(own)


def cloned() -> tuple[ManifestState, ManifestState, ManifestState | None]:
    source = state(3, initialized=True, removed=True)
    own = state(2, initialized=False, destroyed_at_ms=None, writer_epoch=0)
    return source, own, CopyContents(own.database_id, source, source.checkpoints[0]).apply(own)


def removed() -> tuple[ManifestState, ManifestState, ManifestState | None]:
    own = state(2, removed=False, checkpoints=(replace(state(2).checkpoints[0], expire_ms=1),))
    return state(3), own, RemoveContents(own.database_id, now_ms=100).apply(own)


def again() -> tuple[ManifestState, ManifestState, ManifestState | None]:
    source, own = state(3), state(2, parents=())
    return source, own, Recreate(source).apply(own)


@pytest.mark.parametrize("change", [mirrored, cloned, removed, again], ids=lambda change: change.__name__)
def test_it_becomes_what_was_decided(
    change: Callable[[], tuple[ManifestState, ManifestState, ManifestState | None]],
) -> None:
    source, own, after = change()
    assert after is not None
    which = {"mirrored": "mirror", "cloned": "clone"}.get(change.__name__, change.__name__)
    for name, fates in EVERY_FIELD.items():
        fate = getattr(fates, which)
        has = getattr(after, name)
        wanted = {"source": getattr(source, name), "own": getattr(own, name), "none": DEFAULTS.get(name)}
        if fate == "none" and name in ("writer_token", "compactor_token"):
            wanted["none"] = ""
        if fate != "made":
            assert has == wanted[fate], f"{name} is {has}, not {fate}"
