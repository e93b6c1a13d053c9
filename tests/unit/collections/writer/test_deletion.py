"""`slate_async.collections.writer.deletion`: definite writers of a collection that was deleted meanwhile."""

from __future__ import annotations

import pytest

from slate_async.collections.codec.life import Appends
from slate_async.collections.core.area import Area
from slate_async.collections.core.edits import Tombstone
from slate_async.collections.writer.writer import Writer
from slate_async.errors import ClosedError, CorruptionError, UnavailableError
from tests.support.collection_bytes import frontier
from tests.unit.collections.lake import FastClock, Lake

DEFINITE = Appends.DEFINITE


def a_poll_later(writer: Writer) -> None:
    clock = writer._context.runtime.clock
    assert isinstance(clock, FastClock)
    clock.now += 1


async def deleted(lake: Lake) -> None:
    await lake.versions().commits.commit(Tombstone("d" * 32))


@pytest.mark.parametrize("rows", [[], [(b"a", 4, 1)]])
async def test_what_is_appended_a_poll_after_the_deletion_is_refused(
    lake: Lake, rows: list[tuple[bytes, int, int]]
) -> None:
    writer = await lake.writer(DEFINITE)
    await writer.append([(b"a", 0, 1)], upper=3)
    await deleted(lake)
    a_poll_later(writer)
    with pytest.raises(ClosedError, match="orders was deleted") as raised:
        await writer.append(rows, upper=5)
    assert raised.value.outcome == "not_applied"
    puts = len(lake.store.puts)
    with pytest.raises(ClosedError, match="orders was deleted"):
        await writer.append(rows, upper=5)
    assert len(lake.store.puts) == puts  # it is known by now
    assert writer.upper == frontier(3)


async def test_an_append_that_puts_nothing_is_refused_as_well(lake: Lake) -> None:
    writer = await lake.writer(DEFINITE)
    await writer.append([(b"a", 0, 1)], upper=3)
    await writer.append([(b"a", 0, 1)], lower=0, upper=3)
    await deleted(lake)
    a_poll_later(writer)
    for lower in (0, 3):
        with pytest.raises(ClosedError, match="orders was deleted") as raised:
            await writer.append([], lower=lower, upper=3)
        assert raised.value.outcome == "not_applied"


async def test_a_large_batch_is_refused_as_well(lake: Lake) -> None:
    lake.knobs |= {"part_bytes": 10}
    writer = await lake.writer(DEFINITE)
    await deleted(lake)
    a_poll_later(writer)
    with pytest.raises(ClosedError, match="orders was deleted"):
        async with writer.batch(upper=5) as batch:
            await batch.add([(b"a" * 20, time, 1) for time in range(5)])


@pytest.mark.parametrize("error", [UnavailableError("busy"), CorruptionError("torn", object_name="v1")])
async def test_a_look_without_an_answer_holds_up_no_append(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    writer = await lake.writer(DEFINITE)

    async def fail() -> Area:
        raise error

    monkeypatch.setattr(writer._context.versions, "poll", fail)
    for lower in (0, 0):
        a_poll_later(writer)
        await writer.append([], lower=lower, upper=3)
    assert writer.upper == frontier(3)


async def test_it_looks_once_a_poll(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = await lake.writer(DEFINITE)
    looks, poll = [0], writer._context.versions.poll

    async def counted() -> Area:
        looks[0] += 1
        return await poll()

    monkeypatch.setattr(writer._context.versions, "poll", counted)
    for time in range(12):
        await writer.append([], lower=max(0, time - 1), upper=time)
        if time % 4 == 3:
            a_poll_later(writer)
    assert looks == [2]
