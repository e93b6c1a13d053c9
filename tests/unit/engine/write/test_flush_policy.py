"""When a flush starts: the decision by itself, and the flusher that follows it, in the simulator's virtual time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import slate_async as slate
from slate_async.engine.write.commit_group import GROUP_COMMIT_WAITERS
from slate_async.engine.write.flush_policy import FULL_WINDOW_GROUPS, FlushPolicy
from tests.engine import CONTIGUOUS, KINDS, Kind, on
from tests.simulation.faults import NO_FAULTS
from tests.simulation.node import Node
from tests.simulation.world import World

# ---- the decision

NEVER = float("-inf")
POLICY = FlushPolicy(interval_s=0.1, flush_bytes=1000)


def delay(policy: FlushPolicy = POLICY, **changed: object) -> float:
    """Of ten pending bytes at second 5, with one flush in flight since 4.98, unless ``changed``."""
    state = {"now": 5.0, "last_start": 4.98, "in_flight": 1, "pending_bytes": 10, **changed}
    return policy.delay(**{"waiting": 0, "completing": False, "forced": False, **state})  # type: ignore[arg-type]


def test_a_flush_starts_at_once_when_none_is_in_flight_however_recent_the_last() -> None:
    assert delay(in_flight=0) == 0
    assert delay(in_flight=0, last_start=5.0) == 0
    assert delay(in_flight=0, last_start=NEVER) == 0


def test_beside_another_it_waits_for_the_interval_since_the_last_start() -> None:
    assert delay() == pytest.approx(0.08)
    assert delay(last_start=5.0) == pytest.approx(0.1)
    assert delay(last_start=4.9) == pytest.approx(0)
    assert delay(last_start=4.0) == 0


def test_enough_bytes_a_full_group_or_force_end_the_wait() -> None:
    assert delay(pending_bytes=999) > 0
    assert delay(pending_bytes=1000) == 0
    assert delay(waiting=GROUP_COMMIT_WAITERS - 1) > 0
    assert delay(waiting=GROUP_COMMIT_WAITERS) == 0
    assert delay(forced=True) == 0


def test_without_at_once_only_the_interval_bytes_and_force_count() -> None:
    patient = replace(POLICY, at_once=False)
    assert delay(patient, in_flight=0) == pytest.approx(0.08)
    assert delay(patient, in_flight=0, last_start=NEVER) == 0, "the first write after a pause goes at once"
    assert delay(patient, waiting=10 * GROUP_COMMIT_WAITERS) == pytest.approx(0.08)
    assert delay(patient, in_flight=0, completing=True) == pytest.approx(0.08)
    assert delay(patient, pending_bytes=1000) == delay(patient, forced=True) == 0
    assert delay(replace(patient, min_gap_s=0.5), in_flight=0) == pytest.approx(0.48)


def test_tasks_that_are_being_completed_may_write_for_the_next_flush() -> None:
    assert delay(in_flight=0, completing=True, last_start=NEVER) == pytest.approx(0.1)
    assert delay(completing=True, last_start=4.0) == pytest.approx(0.1)
    assert delay(completing=True, waiting=FULL_WINDOW_GROUPS * GROUP_COMMIT_WAITERS - 1) > 0
    for reason in ({"pending_bytes": 1000}, {"waiting": FULL_WINDOW_GROUPS * GROUP_COMMIT_WAITERS}, {"forced": True}):
        assert delay(completing=True, **reason) == 0


@pytest.mark.parametrize(
    "reason", [{"in_flight": 0}, {"pending_bytes": 5000}, {"waiting": GROUP_COMMIT_WAITERS}, {"forced": True}]
)
def test_the_cap_on_flushes_holds_whatever_the_reason(reason: dict[str, object]) -> None:
    capped = FlushPolicy(interval_s=0.1, flush_bytes=1000, min_gap_s=0.5)
    assert delay(capped, **reason) == pytest.approx(0.48)
    assert delay(capped, **reason, last_start=4.5) == pytest.approx(0)
    assert delay(capped, **reason, last_start=NEVER) == 0
    assert delay(capped) == pytest.approx(0.48)
    assert delay(replace(capped, min_gap_s=0.05)) == pytest.approx(0.08)  # the longer of both


seconds = st.floats(0, 100)


@given(seconds, seconds, seconds, st.integers(0, 5), st.integers(0, 3000), st.booleans(), seconds)
def test_a_wait_of_the_given_length_is_not_prolonged(
    interval: float, gap: float, ago: float, in_flight: int, pending: int, forced: bool, now: float
) -> None:
    policy = FlushPolicy(interval, 1000, gap)
    state = {"last_start": now - ago, "in_flight": in_flight, "pending_bytes": pending, "forced": forced}
    given = delay(policy, now=now, **state)
    assert 0 <= given <= max(interval, gap) + 1e-9  # sums of clock times round
    again = delay(policy, now=now + given, **state)
    assert math.isclose(again, 0, abs_tol=1e-9)


# ---- the flusher

ONE_WAY = 0.2
ROUND_TRIP = 2 * ONE_WAY
INTERVAL = 0.05
COMPUTING = 0.0005
"""Virtual seconds that callbacks take, at a microsecond each."""


class Flushes:
    """One writer over a slow store in virtual time, and when each of its log objects was sent."""

    def __init__(self, world: World, node: Node, db: slate.Db) -> None:
        self.world = world
        self.node = node
        self.db = db
        self._fences = len(self._sent())

    def _sent(self) -> list[float]:
        lines = (line.split(" ") for line in self.world.trace.lines)
        return [float(time) for time, _, action, *rest in lines if action == "send" and self._is_log_put(rest)]

    @staticmethod
    def _is_log_put(rest: list[str]) -> bool:
        return rest[0].startswith("put-") and rest[1].startswith("log/")

    def starts(self) -> list[float]:
        """Virtual seconds at which log objects were sent, those of the takeover left out."""
        return self._sent()[self._fences :]

    def now(self) -> float:
        return self.world.loop.time()

    def put(self, size: int = 1) -> asyncio.Task[slate.WriteHandle]:
        """Start a put of that many bytes."""
        return self.node.spawn(self.db.put(b"k", bytes(size)))


def flushing(
    scenario: Callable[[Flushes], Coroutine[object, object, None]], kind: Kind = CONTIGUOUS, **settings: object
) -> None:
    """Run ``scenario`` with an open database in virtual time."""
    chosen = {"flush_interval_ms": round(INTERVAL * 1000), "flush_bytes": 1000, "flush_parallelism": 3, **settings}

    async def whole(world: World) -> None:
        node = world.node("writer")
        opening = on(node.runtime).open(
            world.cloud.objects(node),
            name="memory://flushes",
            metastore=world.cloud.metastore(node),
            settings=kind.settings(**chosen),
        )

        async def opened() -> slate.Db:
            return await opening

        db = await node.run(opened())
        await scenario(Flushes(world, node, db))
        await node.run(db.close())

    world = World(1, plan=replace(NO_FAULTS, latency=(ONE_WAY, ONE_WAY)), keep_trace=True)
    world.run(whole(world))


def near(times: list[float]) -> object:
    return pytest.approx(times, abs=COMPUTING)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_an_idle_database_flushes_each_put_at_once(kind: Kind) -> None:
    async def scenario(flushes: Flushes) -> None:
        called = []
        for _ in range(3):
            called.append(flushes.now())
            await flushes.put()
        assert flushes.starts() == near(called)
        await asyncio.sleep(10)
        assert len(flushes.starts()) == 3  # nothing to flush, no flush

    flushing(scenario, kind)


def test_under_load_flushes_start_an_interval_apart_until_the_window_is_full() -> None:
    async def scenario(flushes: Flushes) -> None:
        begin = flushes.now()
        puts = []
        for _ in range(90):
            puts.append(flushes.put())
            await asyncio.sleep(0.01)
        await asyncio.gather(*puts)
        expected = [0, 1, 2]  # then three are in flight
        second = [ROUND_TRIP / INTERVAL + number for number in expected]  # each as one lands
        third = [2 * ROUND_TRIP / INTERVAL + number for number in expected]
        due = [begin + INTERVAL * number for number in (*expected, *second, *third)]
        assert flushes.starts()[: len(due)] == near(due)
        assert flushes.db.metrics()["log.flushes"] == len(flushes.starts()) < 15

    flushing(scenario)


def test_enough_bytes_start_a_flush_before_the_interval_is_over() -> None:
    async def scenario(flushes: Flushes) -> None:
        begin = flushes.now()
        puts = [flushes.put()]
        await asyncio.sleep(0.01)
        puts.append(flushes.put(400))
        await asyncio.sleep(0.01)
        assert len(flushes.starts()) == 1
        puts.append(flushes.put(700))
        await asyncio.gather(*puts)
        assert flushes.starts() == near([begin, begin + 0.02])

    flushing(scenario)


def test_a_full_group_gets_an_object_of_its_own() -> None:
    async def scenario(flushes: Flushes) -> None:
        begin = flushes.now()
        puts = [flushes.put()]
        await asyncio.sleep(0.01)
        puts += [flushes.put() for _ in range(GROUP_COMMIT_WAITERS - 1)]
        await asyncio.sleep(0.01)
        assert len(flushes.starts()) == 1
        puts.append(flushes.put())
        await asyncio.gather(*puts)
        assert flushes.starts() == near([begin, begin + 0.02])

    flushing(scenario, flush_bytes=1_000_000)


def test_rows_nobody_waits_for_are_no_full_group() -> None:
    async def scenario(flushes: Flushes) -> None:
        begin = flushes.now()
        await flushes.db.put(b"k", b"", await_durable=False)
        await asyncio.sleep(0.01)
        for _ in range(4 * GROUP_COMMIT_WAITERS):
            await flushes.db.put(b"k", b"", await_durable=False)
        await flushes.db.put(b"k", b"")
        assert flushes.starts() == near([begin, begin + INTERVAL])

    flushing(scenario, flush_bytes=1_000_000)


def test_a_large_value_does_not_wait_for_the_interval() -> None:
    """It becomes an object of its own, and so do the rows that came before it."""

    async def scenario(flushes: Flushes) -> None:
        begin = flushes.now()
        puts = [flushes.put()]
        await asyncio.sleep(0.01)
        puts += [flushes.put(2), flushes.put(600)]
        await asyncio.gather(*puts)
        assert flushes.starts() == near([begin, begin + 0.01, begin + 0.01])

    flushing(scenario, skip_memtable_bytes=500)


def test_flush_does_not_wait_for_the_interval() -> None:
    async def scenario(flushes: Flushes) -> None:
        begin = flushes.now()
        first = flushes.put()
        await asyncio.sleep(0.01)
        second = flushes.put()
        await flushes.node.run(flushes.db.flush())
        await asyncio.gather(first, second)
        assert flushes.starts() == near([begin, begin + 0.01])

    flushing(scenario)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_cap_on_flushes_is_kept_under_load_and_loses_nothing(kind: Kind) -> None:
    """Ten a second: however many rows, bytes, large values and calls of ``flush`` ask for more."""

    async def scenario(flushes: Flushes) -> None:
        begin = flushes.now()
        puts = []
        for number in range(150):
            puts.append(flushes.put(600 if number % 10 else 3000))
            if number % 20 == 0:
                puts.append(flushes.node.spawn(flushes.db.flush()))  # type: ignore[arg-type]
            await asyncio.sleep(0.01)
        await asyncio.gather(*puts)
        starts = flushes.starts()
        assert starts[0] == pytest.approx(begin, abs=COMPUTING)
        assert all(later - earlier > 0.1 - COMPUTING for earlier, later in pairwise(starts))
        assert sum(later - earlier < 0.1 + COMPUTING for earlier, later in pairwise(starts)) >= 10  # nor slower
        assert flushes.db.status().durable_seq == 150

    flushing(scenario, kind, max_flushes_per_second=10, flush_parallelism=8, skip_memtable_bytes=2000)


def test_without_a_cap_the_same_load_flushes_far_more_often() -> None:
    async def scenario(flushes: Flushes) -> None:
        puts = []
        for _ in range(50):
            puts.append(flushes.put(1000))
            await asyncio.sleep(0.01)
        await asyncio.gather(*puts)
        gaps = [later - earlier for earlier, later in pairwise(flushes.starts())]
        assert len(gaps) == 49
        assert max(gaps) < 0.01 + COMPUTING

    flushing(scenario, flush_parallelism=64)


def test_a_put_right_after_another_waits_out_the_cap_when_idle() -> None:
    async def scenario(flushes: Flushes) -> None:
        begin = flushes.now()
        for _ in range(3):
            await flushes.put()
        assert flushes.starts() == near([begin, begin + 1, begin + 2])

    flushing(scenario, max_flushes_per_second=1)
