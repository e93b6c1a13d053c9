"""Sequence numbers and times: exact in the log, a bound beyond, an error outside of what is known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pytest

import slate_async as slate
from slate_async.storage.manifest.state import ManifestState
from tests.engine import CONTIGUOUS, START_MS, Kind
from tests.support.settled_town import admin
from tests.support.towns import PARENT, Town


async def history(town: Town) -> list[tuple[int, float]]:
    """Ten rows, a second apart, the first five in L0: number and time of each."""
    steps: list[tuple[int, float]] = []
    async with town.open(PARENT) as db:
        for number in range(10):
            town.clock.wall_ms += 1000
            steps.append(((await db.put(b"k%d" % number, b"v")).seq, town.clock.wall_ms / 1000))
            if number == 4:
                await db.flush(l0=True)
    town.clock.wall_ms += 1000
    return steps


async def test_in_the_log_they_are_exact_and_each_is_the_others_inverse(kind: Kind) -> None:
    town = Town(kind)
    steps = await history(town)
    exact = steps[5:] if kind.wal_enabled else steps
    async with admin(town) as opened:
        for seq, time in exact:
            assert await opened.seq_to_time(seq) == time
            assert await opened.time_to_seq(time) == seq
            assert await opened.time_to_seq(datetime.fromtimestamp(time + 0.999, UTC)) == seq
        for seq, time in steps:
            assert time <= await opened.seq_to_time(seq) <= steps[4][1] or (seq, time) in exact
            assert await opened.time_to_seq(time) <= seq
        assert await opened.time_to_seq(START_MS / 1000) == 0


async def test_a_reader_tells_the_same() -> None:
    town = Town(CONTIGUOUS)
    steps = await history(town)
    environment = slate.Environment()
    async with admin(town) as opened:
        expected = [await opened.seq_to_time(seq) for seq, _ in steps]
    async with environment, environment.open_reader(town.store(PARENT), name=PARENT, pin=False) as reader:
        assert [reader.seq_to_time(seq) for seq, _ in steps] == expected
        assert [reader.time_to_seq(time) for _, time in steps[5:]] == [seq for seq, _ in steps[5:]]


@dataclass(frozen=True)
class Forget:
    """What a compaction does that keeps no history: samples below the floor go, but for the newest."""

    floor: int

    def apply(self, state: ManifestState) -> ManifestState | None:
        if state.history_floor:
            return None
        kept = tuple(sample for sample in state.seq_times if sample.seq >= self.floor)
        return replace(state, history_floor=self.floor, seq_times=kept)


async def test_outside_of_what_is_known_they_are_refused() -> None:
    town = Town(CONTIGUOUS)
    await history(town)
    async with admin(town) as opened:
        for seq in (0, 11, -1, True, "1"):
            with pytest.raises(slate.InvalidError, match="sequence number"):
                await opened.seq_to_time(seq)  # type: ignore[arg-type]
        for time in (START_MS / 1000 - 1, town.clock.wall_ms / 1000 + 1, datetime(2026, 1, 1), "now"):  # noqa: DTZ001
            with pytest.raises(slate.InvalidError, match="time"):
                await opened.time_to_seq(time)  # type: ignore[arg-type]
        async with town.process() as open_at, open_at(PARENT) as database:
            await database.driver.commit(Forget(5))
        with pytest.raises(slate.InvalidError, match="known from sequence number 5 on"):
            await opened.seq_to_time(4)
        with pytest.raises(slate.InvalidError, match="known from"):
            await opened.time_to_seq(START_MS / 1000 + 2)
        assert await opened.seq_to_time(5) == START_MS / 1000 + 5
        assert await opened.time_to_seq(START_MS / 1000 + 5) == 5


async def test_where_there_is_no_database_nothing_is_known() -> None:
    async with admin(Town(CONTIGUOUS)) as opened:
        with pytest.raises(slate.InvalidError, match="no database"):
            await opened.seq_to_time(1)
