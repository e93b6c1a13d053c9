"""How long an opening takes where requests take 30 ms and computing takes nothing: the requests that come one after
another, in virtual time, so every run takes as long as every other.

The store takes 64 requests at a time, and each brings 10 MB a second.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

import slate_async as slate
from slate_async.engine.write.open import GIVE_BACK_LIMIT_S
from slate_async.objectstore.memory import MemoryObjects
from slate_async.objectstore.protocol import ByteRange, GetResult
from slate_async.storage.log.reader import READS_AT_ONCE
from tests.benchmarks.slow_store import SlowStore
from tests.engine import abandon, on
from tests.simulation.loop import Interleaving, SimLoop
from tests.simulation.runtime import OffloadDelay, SimClock, sim_runtime

T = TypeVar("T")
LATENCY_S, BYTES_PER_S = 0.030, 10e6
FIXED_ROUNDS = 14
"""The manifest's names, its head and that one's base; an SST and the log's names; the newest log object; the claim, and
whether it counts; the log's names again; four fences; the head. The last lot of reads is counted as a whole one."""
GOAL_S = 3.0
PROCESSES = itertools.count()
FULL: dict[str, Any] = {"l0_max_ssts": 2, "auto_compaction": False, "auto_gc": False, "heartbeat_interval_ms": 0}
"""Of a writer whose L0 is full, so that the log has all that memory may hold."""


def in_virtual_time(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    def new_loop() -> SimLoop:
        return SimLoop(random.Random(1), interleaving=Interleaving.FIFO, step_seconds=0.0)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(work())


def slow(objects: MemoryObjects) -> SlowStore:
    return SlowStore(LATENCY_S, objects, bytes_per_s=BYTES_PER_S, in_flight=READS_AT_ONCE)


async def open_db(store: SlowStore, **settings: Any) -> slate.Db:
    clock = SimClock(asyncio.get_running_loop().time)
    runtime = sim_runtime(clock, 1, f"process {next(PROCESSES)}", OffloadDelay())
    return await on(runtime).open(store, name="memory://test", settings=slate.Settings(**{**FULL, **settings}))


async def killed_writer(write: Callable[[slate.Db], Coroutine[Any, Any, None]]) -> MemoryObjects:
    """A database with a full L0, and in its log what ``write`` wrote."""
    objects = MemoryObjects()
    db = await open_db(SlowStore(0, objects))
    for number in range(FULL["l0_max_ssts"]):
        await db.put(b"full%d" % number, b"")
        await db.flush(l0=True)
    await write(db)
    await db.flush()
    await abandon(db)
    return objects


async def seconds_to_open(store: SlowStore, **settings: Any) -> float:
    began = asyncio.get_running_loop().time()
    db = await open_db(store, **settings)
    seconds = asyncio.get_running_loop().time() - began
    await abandon(db)
    return seconds


async def small_puts(db: slate.Db, count: int) -> None:
    for number in range(count):
        await db.put(b"%016d" % number, b"v" * 84)


@pytest.mark.parametrize("objects", [0, 1, 500, 4_094], ids="{} log objects".format)
def test_a_log_of_small_objects_is_read_in_as_few_rounds_as_there_can_be(objects: int) -> None:
    async def measure() -> tuple[float, int]:
        store = slow(await killed_writer(lambda db: small_puts(db, objects)))
        return await seconds_to_open(store), store.counts["get"]

    seconds, reads = in_virtual_time(measure)
    assert reads >= objects
    assert seconds <= LATENCY_S * (FIXED_ROUNDS + math.ceil(reads / READS_AT_ONCE)) + 0.001
    assert seconds < GOAL_S


@pytest.mark.parametrize(("values", "mib"), [(16, 4), (1, 64)], ids="{}".format)
def test_full_memtables_are_read_by_all_the_requests_that_may_be_under_way(values: int, mib: int) -> None:
    """One request after the other would take 6.7 seconds, one for each log object 0.4 and 6.7."""

    async def write(db: slate.Db) -> None:
        for number in range(values):
            await db.put(b"%d" % number, random.Random(number).randbytes(mib << 20))

    async def measure() -> float:
        store = slow(await killed_writer(write))
        store.forget()
        seconds = await seconds_to_open(store)
        assert store.counts["get"] >= 64
        return seconds

    travelling = 1.25 * (64 << 20) / (BYTES_PER_S * READS_AT_ONCE)
    assert in_virtual_time(measure) <= LATENCY_S * (FIXED_ROUNDS + 2) + travelling


class Uneven(SlowStore):
    """Every 150th read takes ten times as long."""

    def __init__(self, objects: MemoryObjects) -> None:
        super().__init__(LATENCY_S, objects, in_flight=READS_AT_ONCE)
        self.reads = 0

    async def get(self, key: str, byte_range: ByteRange | None = None) -> GetResult:
        self.reads += 1
        if not self.reads % 150:
            await asyncio.sleep(9 * LATENCY_S)
        return await super().get(key, byte_range)


def test_reads_that_take_long_do_not_hold_up_one_another() -> None:
    async def measure() -> float:
        return await seconds_to_open(Uneven(await killed_writer(lambda db: small_puts(db, 2_000))))

    # two lots of them one after another, for no more than 8 windows wait for one read
    assert in_virtual_time(measure) <= LATENCY_S * (FIXED_ROUNDS + math.ceil(2_000 / READS_AT_ONCE) + 2 * 10)


def copy_of(objects: MemoryObjects) -> MemoryObjects:
    copied = MemoryObjects()
    copied.objects, copied.sorted_keys, copied.writes = dict(objects.objects), [*objects.sorted_keys], objects.writes
    return copied


class Ending(SlowStore):
    """Answers so many requests, and none after that."""

    def __init__(self, objects: MemoryObjects, answers: int) -> None:
        super().__init__(LATENCY_S, objects)
        self.answers = answers

    async def travel(self, seconds: float) -> None:
        if self.counts.total() > self.answers:
            await asyncio.get_running_loop().create_future()
        await super().travel(seconds)


@pytest.mark.parametrize("log_protocol", ["contiguous", "epoch_prefixed"])
@pytest.mark.parametrize("wal_enabled", [True, False])
def test_all_of_an_opening_ends_at_its_deadline_wherever_the_store_falls_silent(
    log_protocol: str, wal_enabled: bool
) -> None:
    kind = {"log_protocol": log_protocol, "wal_enabled": wal_enabled}
    limits = {"takeover_deadline_ms": 5_000, "retry_deadline_ms": 60_000, "manifest_poll_interval_ms": 5_000}

    failures: list[tuple[str, float]] = []

    async def measure() -> int:
        objects = MemoryObjects()
        written = await open_db(SlowStore(0, objects), **kind)
        await small_puts(written, 5)
        await abandon(written)
        for answers in range(1_000):
            store = Ending(copy_of(objects), answers)
            began = asyncio.get_running_loop().time()
            try:
                db = await open_db(store, **kind, **limits)
            except slate.UnavailableError as error:
                failures.append((str(error), asyncio.get_running_loop().time() - began))
                continue
            await abandon(db)
            return answers
        raise AssertionError("it never opens")

    assert in_virtual_time(measure) == len(failures) > 10
    assert all("takeover_deadline_ms" in message for message, _ in failures)
    after_the_claim = pytest.approx(5 + GIVE_BACK_LIMIT_S)  # its pin is given back, or not, as long as that takes
    assert all(seconds in (pytest.approx(5), after_the_claim) for _, seconds in failures)
