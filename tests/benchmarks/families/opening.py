"""Opening a large database, and committing to its manifest: 400 SSTs (100 GB) and 100,000, on a store of 5 ms.

The SSTs are names in the manifest only. Nothing that is measured here reads them.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace

import slate_async as slate
from metastores.put_if_absent import PutIfAbsentMetaStore
from slate_async.objectstore.memory import MemoryObjects
from slate_async.objectstore.meta_objects import MetaObjects
from slate_async.runtime.supervisor import Supervisor
from slate_async.runtime.system import system_runtime
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.state import ManifestState, SortedRun, SstRef
from slate_async.storage.sst.names import sst_key
from tests.benchmarks.family import Family
from tests.benchmarks.goals import OURS, Goal
from tests.benchmarks.machine import STEP_S, watched_loop
from tests.benchmarks.rounds import Turn, require, stopwatch
from tests.benchmarks.slow_store import SlowStore

LATENCY_S = 0.005
SST_BYTES = 256 << 20
RUN_SSTS = 100
COMMITS = 5
SETTINGS = slate.Settings(auto_compaction=False)


def of_size(ssts: int) -> tuple[str, str, str, str, str, str]:
    """Names of measures: time, requests, round trips, the loop's longest wait; a commit's bytes and time."""
    kind = f"{ssts:,} SSTs"
    return (
        f"open, {kind}",
        f"requests of an open, {kind}",
        f"round trips of an open, {kind}",
        f"longest the loop waits, {kind}",
        f"bytes of a commit, {kind}",
        f"time of a commit, {kind}",
    )


@dataclass(frozen=True)
class AddRuns:
    """An edit that puts so many SSTs into the manifest, in runs of `RUN_SSTS`."""

    ssts: int

    def apply(self, state: ManifestState) -> ManifestState | None:
        if state.runs:
            return None
        runs = tuple(
            SortedRun(number + 1, tuple(reference(first + at) for at in range(min(RUN_SSTS, self.ssts - first))))
            for number, first in enumerate(range(0, self.ssts, RUN_SSTS))
        )
        return replace(state, runs=runs[::-1], last_run_id=len(runs))


def reference(number: int) -> SstRef:
    """An SST that could be there."""
    object_id = number.to_bytes(16)
    first, last = b"%015d0" % number, b"%015d9" % number
    rows = SST_BYTES // 128
    return SstRef(sst_key(1, object_id), object_id, SST_BYTES, rows, 0, first, last, number + 1, number + 1, 1)


def open_db(store: SlowStore) -> slate.Opening[slate.Db]:
    return slate.open(store, name="memory://opening", settings=SETTINGS)


async def build(objects: MemoryObjects, ssts: int) -> None:
    """A database of one SST in L0, whose header is looked at when it is opened, and a manifest that names more."""
    store = SlowStore(0, objects)
    async with open_db(store) as db:
        await commit(db)
    driver = ManifestDriver(
        PutIfAbsentMetaStore(MetaObjects(store)),
        system_runtime(),
        Supervisor("benchmark", lambda cause: None),
        name="benchmark",
        full_every=1,  # later versions are changes to this one, as if it had grown slowly
        deadline_ms=SETTINGS.retry_deadline_ms,
    )
    await driver.load()
    await driver.commit(AddRuns(ssts))


async def measure(turn: Turn, named: int, ssts: int) -> None:
    open_ms, requests, trips, stall_ms, commit_bytes, commit_ms = of_size(named)
    objects = MemoryObjects()
    await build(objects, ssts)
    store = SlowStore(LATENCY_S, objects)
    async with watched_loop() as late:
        with stopwatch() as watch:
            db = await open_db(store)
            await asyncio.sleep(STEP_S)
    turn.record(open_ms, OURS, 1000 * watch.seconds["wall"], "ms")
    turn.record(requests, OURS, store.counts.total(), "requests")
    turn.record(trips, OURS, store.depth, "requests")
    turn.record(stall_ms, OURS, max(late), "ms")
    async with db:
        require(db.status().sorted_runs == -(-ssts // RUN_SSTS), OURS, "opening")
        await commit(db)  # the first one since opening may be a full version
        found = [await commit(db) for _ in range(COMMITS)]
        turn.record(commit_bytes, OURS, min(size for size, _ in found), "bytes")
        turn.record(commit_ms, OURS, 1000 * min(seconds for _, seconds in found), "ms")


async def commit(db: slate.Db) -> tuple[int, float]:
    """A small flush to L0, whose cost is its commit; bytes of manifest written, and processor time."""
    await db.put(b"key", b"value")
    before = db.metrics()["manifest.written_bytes"]
    started = time.process_time()
    await db.flush(l0=True)
    return int(db.metrics()["manifest.written_bytes"] - before), time.process_time() - started


async def one_round(turn: Turn) -> None:
    for ssts in turn.in_order((400, 100_000)):
        await measure(turn, ssts, min(ssts, turn.plan.choose(1_000, ssts, ssts)))


SMALL, LARGE = of_size(400), of_size(100_000)
FAMILY = Family(
    "open",
    "Opening, on a store of 5 ms",
    (
        Goal(9, SMALL[2], 10, most=True),
        Goal(9, LARGE[0], 2_000, most=True),
        Goal(9, LARGE[4], 2, (SMALL[4], OURS), most=True),
        Goal(9, LARGE[5], 2, (SMALL[5], OURS), most=True),
    ),
    one_round,
    notes=(
        "400 SSTs of 256 MiB are 100 GB. Round trips: requests that came one after the other, the critical path.",
        "A commit: that of a flush to L0, the cheapest of five; its time is processor time of the whole flush.",
        "No peer: what is opened are names, which only this package's manifest can be given.",
    ),
)
