"""What no edit of a manifest's state may change, and what may only grow."""

from __future__ import annotations

from itertools import pairwise

from slate_async.errors import InternalError
from slate_async.storage.manifest.state import ManifestState, in_order

FIXED = ("database_id", "log_protocol", "wal_enabled", "created_ms", "properties", "merge_operator")
MONOTONE = (
    "writer_epoch",
    "compactor_epoch",
    "fence_width",
    "log_start",
    "log_last_seen",
    "log_floor",
    "last_seq",
    "last_tick_ms",
    "sst_floor",
    "last_run_id",
    "history_floor",
    "expiry_floor_ms",
    "ingest_seq",
    "marked",
)
OF_ONE_LIFE = ("history_floor", "expiry_floor_ms", "marked")
"""Those of `MONOTONE` that a recreated database begins anew."""


def check_successor(old: ManifestState, new: ManifestState) -> None:
    """Raise `InternalError` if ``new`` breaks an invariant that every edit of ``old`` must keep."""
    made_again = old.removed and not new.removed
    for name in FIXED:
        if getattr(old, name) != getattr(new, name) and not made_again:
            raise InternalError(f"a manifest edit changed the fixed field {name}")
    for name in MONOTONE:
        if getattr(new, name) < getattr(old, name) and not (made_again and name in OF_ONE_LIFE):
            raise InternalError(f"a manifest edit took {name} back from {getattr(old, name)} to {getattr(new, name)}")
    for newer, older in pairwise(new.l0):
        if newer is not older and not in_order(newer, older):
            raise InternalError(f"L0 is out of order: {newer.location} is not newer than {older.location}")
    for kind, ids in (
        ("checkpoints", [checkpoint.id for checkpoint in new.checkpoints]),
        ("compactions", [compaction.id for compaction in new.compactions]),
        ("ingests", [ingest.id for ingest in new.ingests]),
        ("runs", [run.id for run in new.runs]),
    ):
        if len(set(ids)) < len(ids):
            raise InternalError(f"a manifest edit made two {kind} with one id")
