"""Which writers count as alive: by beats, by their standing still under the observer's eyes, and by the manifest."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from slate_async.errors import UnavailableError
from slate_async.objectstore.costs import MonthlyRequests
from slate_async.objectstore.memory import MemoryStore
from slate_async.objectstore.protocol import GetResult
from slate_async.storage.format.heartbeat import Beat, Sent, encode_beat
from slate_async.storage.liveness.heartbeat import ALIVE_KEY
from slate_async.storage.liveness.observer import WriterLiveness
from slate_async.storage.manifest.edits.writer import ClaimWriter, WriterPin
from slate_async.storage.manifest.state import ManifestState
from tests.engine import ManualClock, memory_store

INTERVAL_MS = 10_000
PIN = WriterPin(UUID(int=5), 1_000)
EMPTY = ManifestState(database_id=UUID(int=1), log_protocol="contiguous", wal_enabled=True, created_ms=0)


class StoppedClock(ManualClock):
    """Monotonic time that only the test moves."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


def claimed(
    state: ManifestState = EMPTY, *, token: str = "one", interval_ms: int | None = INTERVAL_MS
) -> ManifestState:
    made = ClaimWriter(token, 1, PIN, heartbeat_interval_ms=interval_ms).apply(state)
    assert made is not None
    return made


def closed(state: ManifestState) -> ManifestState:
    return replace(state, checkpoints=())


class Scene:
    """A store with a writer's beats, and one observer."""

    def __init__(self, head: ManifestState) -> None:
        self.head = head
        self.clock = StoppedClock()
        self.store: MemoryStore = memory_store()
        self.liveness = WriterLiveness("memory://db", self.store, self.clock)

    async def beat(self, number: int, *, epoch: int | None = None, database_id: UUID = EMPTY.database_id) -> None:
        beat = Beat(database_id, self.head.writer_epoch if epoch is None else epoch, number)
        await self.store.put(ALIVE_KEY, encode_beat(beat))

    async def states(self, *seconds: float) -> list[str]:
        """What a look finds after each of these pauses."""
        found = []
        for pause in seconds:
            self.clock.seconds += pause
            found.append((await self.liveness.look(self.head)).state)
        return found


async def test_a_head_without_a_writers_checkpoint_says_it_all() -> None:
    scene = Scene(EMPTY)
    assert (await scene.liveness.look(EMPTY)).state == "never"
    life = await scene.liveness.look(closed(claimed()))
    assert (life.state, life.epoch, life.free) == ("closed", 1, True)


async def test_beats_that_go_on_are_a_life_and_three_missed_ones_its_end() -> None:
    scene = Scene(claimed())
    assert await scene.states(0) == ["unknown"]
    await scene.beat(1)
    assert await scene.states(5) == ["unknown"]  # it may have been there for long
    await scene.beat(2)
    assert await scene.states(5) == ["alive"]
    assert await scene.states(9, 9, 9) == ["alive"] * 3
    assert await scene.states(2.9, 0.1) == ["alive", "dead"]
    assert (await scene.liveness.look(scene.head)).free
    await scene.beat(3)
    assert await scene.states(1) == ["alive"]


async def test_a_writer_that_died_before_its_first_beat_is_dead_after_three() -> None:
    scene = Scene(claimed())
    assert await scene.states(0, 10, 10, 9.9, 0.1) == ["unknown"] * 4 + ["dead"]


async def test_another_epoch_is_watched_anew() -> None:
    scene = Scene(claimed())
    await scene.beat(1)
    assert (await scene.states(0, 10, 10, 10))[-1] == "dead"
    scene.head = claimed(scene.head, token="two")
    assert await scene.states(0) == ["unknown"]


async def test_beats_of_zombies_of_other_databases_and_damaged_ones_do_not_count() -> None:
    scene = Scene(claimed(claimed(), token="two"))
    for number, pause in enumerate((0, 10, 10, 9), 1):
        await scene.beat(number, epoch=1)
        assert await scene.states(pause) == ["unknown"]
    await scene.beat(9, database_id=UUID(int=2))
    assert await scene.states(0.5) == ["unknown"]
    await scene.store.put(ALIVE_KEY, b"something else")
    assert await scene.states(0.5) == ["dead"]


async def test_time_in_which_nobody_looked_does_not_count() -> None:
    """A machine that slept wakes with an old beat before its eyes; so does one that the store did not answer."""
    scene = Scene(claimed())
    await scene.beat(1)
    assert await scene.states(0, 1_000, 10, 10) == ["unknown"] * 4
    assert await scene.states(10) == ["dead"]


async def test_a_store_that_does_not_answer_is_no_sign_of_death(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(claimed())
    await scene.beat(1)
    assert await scene.states(0, 10) == ["unknown"] * 2

    async def no_answer(key: str) -> None:
        raise UnavailableError("no answer")

    with monkeypatch.context() as broken:
        broken.setattr(scene.store, "get", no_answer)
        for _ in range(5):
            with pytest.raises(UnavailableError):
                await scene.states(9)
    assert await scene.states(1) == ["unknown"]


async def test_a_writer_without_beats_is_known_only_when_it_closes() -> None:
    scene = Scene(claimed(interval_ms=None))
    assert await scene.states(0, 10, 10, 1_000_000) == ["unknown"] * 4
    scene.head = closed(scene.head)
    assert await scene.states(0) == ["closed"]


async def test_one_look_may_be_judged_by_the_wall_clock() -> None:
    scene = Scene(claimed())
    life = await scene.liveness.look(scene.head)
    assert life.seen_ms == PIN.now_ms
    assert life.guess(PIN.now_ms + 29_999) == "alive"
    assert life.guess(PIN.now_ms + 30_000) == "dead"
    await scene.beat(1)
    life = await scene.liveness.look(scene.head)
    assert life.seen_ms == (await scene.store.head(ALIVE_KEY)).last_modified_ms


async def test_a_look_that_was_on_its_way_while_the_machine_slept_is_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(claimed())
    await scene.beat(1)
    assert await scene.states(0, 5) == ["unknown"] * 2
    read = scene.store.get

    async def asleep(key: str) -> GetResult:
        result = await read(key)
        scene.clock.seconds += 1_000
        return result

    with monkeypatch.context() as sleeping:
        sleeping.setattr(scene.store, "get", asleep)
        assert await scene.states(5) == ["unknown"]
    assert await scene.states(1, 10, 10) == ["unknown"] * 3
    assert await scene.states(10) == ["dead"]


async def test_a_beat_tells_a_month_of_the_writers_requests() -> None:
    scene = Scene(claimed())
    assert (await scene.liveness.look(scene.head)).monthly_requests is None

    async def told(number: int, sent: Sent | None, *, epoch: int = 1) -> MonthlyRequests | None:
        await scene.store.put(ALIVE_KEY, encode_beat(Beat(EMPTY.database_id, epoch, number, sent)))
        life = await scene.liveness.look(scene.head)
        assert (life.beat_ms is None) == (epoch != scene.head.writer_epoch)
        return life.monthly_requests

    assert await told(1, None) is None
    assert await told(2, Sent(9_999, 5, 5, 5)) is None
    assert await told(3, Sent(100_000, 50, 200, 10)) == MonthlyRequests(50 * 25_920, 200 * 25_920, 10 * 25_920)
    assert await told(9, Sent(100_000, 50, 200, 10), epoch=2) is None
    scene.head = closed(scene.head)
    assert (await scene.liveness.look(scene.head)).monthly_requests is None
