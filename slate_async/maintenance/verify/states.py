"""Whether one manifest state is sound by itself: pure, nothing is read."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from slate_async.storage.manifest.features import RANGE_DELETES_FEATURE
from slate_async.storage.manifest.state import ManifestState, SortedRun, SstRef, in_order
from slate_async.types import Finding


def check_state(state: ManifestState) -> list[Finding]:
    """What of ``state``, a committed version, contradicts itself."""
    name = f"manifest version {state.version}"
    return [Finding(name, None, what) for what in _wrong(state)]


def _wrong(state: ManifestState) -> Iterator[str]:
    for sst in state.ssts():
        yield from _wrong_sst(state, sst)
    yield from _wrong_l0(state)
    for run in state.runs:
        yield from _wrong_run(state, run)
    yield from _wrong_levels(state)
    yield from _wrong_checkpoints(state)
    yield from _wrong_history(state)
    yield from _wrong_range_deletes(state)


def _wrong_sst(state: ManifestState, sst: SstRef) -> Iterator[str]:
    if sst.rows < 1 or not 0 <= sst.tombstones <= sst.rows:
        yield f"{sst.location} has {sst.rows} rows, {sst.tombstones} of them tombstones"
    if not sst.first_key or sst.first_key > sst.last_key:
        yield f"{sst.location} has its keys in the wrong order"
    if not sst.min_seq <= sst.max_seq <= state.last_seq:
        yield (
            f"{sst.location} has sequence numbers {sst.min_seq} to {sst.max_seq}; {state.last_seq} is the highest given"
        )
    if sst.database_id is not None and all(parent.database_id != sst.database_id for parent in state.parents):
        yield f"{sst.location} is of database {sst.database_id}, which is not named as a parent"


def _wrong_l0(state: ManifestState) -> Iterator[str]:
    for newer, older in pairwise(state.l0):
        if not in_order(newer, older):
            yield f"L0 is out of order: {newer.location} is not newer than {older.location}"
    in_runs = max((sst.max_seq for run in state.runs for sst in run.ssts), default=-1)
    if state.l0 and state.l0[-1].min_seq <= in_runs:
        yield f"{state.l0[-1].location} in L0 is not newer than the sorted runs"


def _wrong_run(state: ManifestState, run: SortedRun) -> Iterator[str]:
    if run.id > state.last_run_id:
        yield f"run {run.id} has an id above the last one given, {state.last_run_id}"
    for before, after in pairwise(run.ssts):
        if before.last_key >= after.first_key:
            yield f"run {run.id} has {before.location} before {after.location}, and their keys overlap"


def _wrong_levels(state: ManifestState) -> Iterator[str]:
    levels = [run.level for run in state.runs if run.level]
    if any(newer >= older for newer, older in pairwise(levels)):
        yield f"levels {levels} do not rise from newer to older runs"
    for kind, ids in (
        ("object id", [sst.object_id for sst in state.ssts()]),
        ("run", [run.id for run in state.runs]),
        ("checkpoint", [checkpoint.id for checkpoint in state.checkpoints]),
        ("compaction", [compaction.id for compaction in state.compactions]),
    ):
        if len(set(ids)) < len(ids):
            yield f"a {kind} is there twice"


def _wrong_checkpoints(state: ManifestState) -> Iterator[str]:
    for checkpoint in state.checkpoints:
        version, start, end = checkpoint.ref.version, checkpoint.log_start, checkpoint.log_end
        if version > state.version:
            yield f"checkpoint {checkpoint.id} names version {version}, which is not committed"
        if start > state.log_start or (end is not None and end < start - 1):
            yield f"checkpoint {checkpoint.id} needs log positions {start} to {end}, which cannot be"
    bases = {ingest.replaces for ingest in state.ingests if not ingest.pending}
    for checkpoint in state.checkpoints:
        if checkpoint.owner == "ingest" and checkpoint.id not in bases:
            yield f"checkpoint {checkpoint.id} is of an ingest that is not there"
    there = {checkpoint.id for checkpoint in state.checkpoints}
    for job in state.ingests:
        if job.replaces is not None and not job.pending and job.replaces not in there:
            yield f"ingest {job.id!r} replaces what checkpoint {job.replaces} held, which does not exist: abort it"
    for kind, name, base in (
        *(("compaction", str(compaction.id), compaction.base_version) for compaction in state.compactions),
        *(("ingest", ingest.id, ingest.base_version) for ingest in state.ingests if not ingest.pending),
    ):
        if base < state.sst_floor:
            yield f"{kind} {name} began at version {base}, below the floor {state.sst_floor}"


def _wrong_history(state: ManifestState) -> Iterator[str]:
    if state.history_floor > state.last_seq:
        yield f"history is kept from {state.history_floor} on, and {state.last_seq} is the highest number given"
    for earlier, later in pairwise(state.seq_times):
        if earlier.seq >= later.seq or earlier.time_ms > later.time_ms:
            yield f"times of sequence numbers {earlier.seq} and {later.seq} are out of order"


def _wrong_range_deletes(state: ManifestState) -> Iterator[str]:
    deletes = state.range_deletes or ()
    if deletes and RANGE_DELETES_FEATURE not in state.required_features:
        yield "it names range deletes, and releases that do not know them may read it"
    for delete in deletes:
        if not delete.start < delete.end:
            yield f"range delete {delete.seq} holds no key"
        if delete.seq > state.last_seq:
            yield f"range delete {delete.seq} has a number above the highest given, {state.last_seq}"
    for older, newer in pairwise(deletes):
        if older.seq >= newer.seq:
            yield f"range deletes {older.seq} and {newer.seq} are out of order"
