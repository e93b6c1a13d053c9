"""Appends of definite collections: `slate_async.collections.writer.definite` over real stores."""

from __future__ import annotations

import asyncio

import pytest

from slate_async.collections.codec.life import Appends
from slate_async.collections.core.area import Area
from slate_async.collections.core.edits import Tombstone
from slate_async.collections.core.errors import UpperMismatchError
from slate_async.collections.core.frontier import DONE
from slate_async.collections.writer.definite import DefiniteAppends
from slate_async.errors import ClosedError, CorruptionError, InvalidError, UnavailableError
from tests.support.collection_bytes import frontier
from tests.unit.collections.faults import next_put
from tests.unit.collections.lake import Lake

DEFINITE = Appends.DEFINITE
TRUTH = [(b"%02d" % time, time, 1) for time in range(40)]


def between(lower: int, upper: int) -> list[tuple[bytes, int, int]]:
    """What every writer writes from ``lower`` to ``upper``."""
    return TRUTH[lower:upper]


async def test_a_writer_needs_only_a_name(lake: Lake) -> None:
    writer = await lake.writer(DEFINITE)
    assert writer.upper == frontier(0)
    await writer.append(between(0, 3), lower=0, upper=3)
    await writer.append([], upper=7)
    await writer.append(between(7, 9), lower=writer.upper, upper=9)
    assert writer.upper == frontier(9)
    assert await lake.rows(["relay-a"]) == (frontier(9), between(0, 3) + between(7, 9))
    await writer.append([], upper=DONE)
    assert writer.upper == DONE


async def test_an_append_reads_nothing_and_puts_once(lake: Lake) -> None:
    writer = await lake.writer(DEFINITE)
    lake.store.gets.clear()
    await writer.append(between(0, 3), upper=3)
    assert (len(lake.store.puts), lake.store.gets) == (1, [])


@pytest.mark.parametrize("fault", ["request lost", "answer lost", "refused"])
async def test_whatever_becomes_of_a_put_the_same_one_is_sent_again(lake: Lake, fault: str) -> None:
    """C6."""
    writer = await lake.writer(DEFINITE)
    next_put(lake.store, fault)
    await writer.append(between(0, 3), upper=3)
    assert len({put.key for put in lake.store.puts}) == 1
    assert len(lake.store.puts) == 2
    assert await lake.rows(["relay-a"]) == (frontier(3), between(0, 3))


@pytest.mark.parametrize(("outcome", "after"), [("unknown", True), ("unknown", False), ("not_applied", False)])
async def test_a_store_without_answers_ends_the_append_with_its_outcome(lake: Lake, outcome: str, after: bool) -> None:
    writer = await lake.writer(DEFINITE)

    def fail(key: str) -> UnavailableError:
        return UnavailableError("no answer", outcome=outcome)  # type: ignore[arg-type]

    if after:
        lake.store.fail_after = fail
    else:
        lake.store.fail_before = fail
    if after:  # the second put finds the first one's batch
        await writer.append(between(0, 3), upper=3)
        return
    with pytest.raises(UnavailableError, match="append from 0 to 3") as raised:
        await writer.append(between(0, 3), upper=3)
    assert raised.value.outcome == outcome
    assert writer.upper == frontier(0)
    lake.store.fail_before = lambda key: None
    await writer.append(between(0, 3), upper=3)
    assert writer.upper == frontier(3)


async def test_what_is_in_is_dropped_and_a_gap_is_refused(lake: Lake) -> None:
    writer = await lake.writer(DEFINITE)
    await writer.append(between(0, 10), upper=10)
    await writer.append(between(2, 8), lower=2, upper=8)
    assert len(lake.store.puts) == 1
    await writer.append(between(5, 15), lower=5, upper=15)
    assert list((await lake.pending_batches("relay-a")).values())[1].lower == frontier(10)
    with pytest.raises(UpperMismatchError, match="an append from 16 leaves a gap, because relay-a has come to 15") as e:
        await writer.append(between(16, 20), lower=16, upper=20)
    assert (e.value.upper, e.value.outcome) == (frontier(15), "not_applied")
    assert await lake.rows(["relay-a"]) == (frontier(15), between(0, 15))


async def test_a_restart_goes_on_from_the_head_and_the_own_shard(lake: Lake) -> None:
    """C6, also when the controller took in a part and collected it, and when another shard is ahead."""
    writer, other = await lake.writer(DEFINITE), await lake.writer(DEFINITE, "relay-b")
    for lower, upper in [(0, 5), (5, 10), (10, 20)]:
        await writer.append(between(lower, upper), upper=upper)
    await other.append(between(0, 30), upper=30)
    assert (await lake.writer(DEFINITE)).upper == frontier(20)
    await lake.absorb(frontier(10), collect="relay-a")
    assert (await lake.writer(DEFINITE)).upper == frontier(20)
    await lake.absorb(frontier(25), collect="relay-a")
    assert (await lake.writer(DEFINITE)).upper == frontier(25)


async def test_what_is_collected_during_a_restart_is_not_missed(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The listing comes first: the head that is read after it has what is collected meanwhile."""
    writer = await lake.writer(DEFINITE)
    for lower, upper in [(0, 10), (10, 20)]:
        await writer.append(between(lower, upper), upper=upper)
    context = lake.context(DEFINITE)
    load = context.versions.load

    async def load_late() -> Area:
        await lake.absorb(frontier(10), collect="relay-a")
        return await load()

    monkeypatch.setattr(context.versions, "load", load_late)
    appends = DefiniteAppends(context)
    await appends.restart()
    assert appends.coverage == frontier(20)


async def test_a_zombie_repeats_what_is_in(lake: Lake) -> None:
    """A process that slept puts the same updates again, in other pieces and under collected names: nothing changes."""
    zombie, writer = await lake.writer(DEFINITE), await lake.writer(DEFINITE)
    await writer.append(between(0, 10), upper=10)
    await lake.absorb(frontier(10), collect="relay-a")
    await zombie.append(between(0, 10), upper=10)
    await zombie.append(between(10, 12), upper=12)
    await writer.append(between(10, 11), upper=11)
    await writer.append(between(11, 20), upper=20)
    assert await lake.rows(["relay-a"]) == (frontier(20), between(10, 20))


async def test_two_writers_of_one_name_at_once_write_each_update_once(lake: Lake) -> None:
    one, two = await lake.writer(DEFINITE), await lake.writer(DEFINITE)
    for upper in range(2, 40, 2):
        await asyncio.gather(*(w.append(between(upper - 2, upper), upper=upper) for w in (one, two)))
    assert await lake.rows(["relay-a"]) == (frontier(38), between(0, 38))


async def test_other_updates_at_the_same_times_are_refused(lake: Lake) -> None:
    one, two = await lake.writer(DEFINITE), await lake.writer(DEFINITE)
    await one.append(between(0, 3), upper=3)
    with pytest.raises(InvalidError, match="add up to 3, not 5; all writers of a definite collection") as raised:
        await two.append([(b"other", 0, 5)], upper=3)
    assert raised.value.outcome == "not_applied"


async def test_another_life_in_the_folder_is_noticed(lake: Lake) -> None:
    writer = await lake.writer(DEFINITE)
    await writer.append(between(0, 3), upper=3)
    (put,) = lake.store.puts
    data = bytearray((await lake.store.get(put.key)).data)
    data[16] ^= 1
    await lake.store.delete([put.key])
    other = await lake.writer(DEFINITE)
    await lake.store.put(put.key, bytes(data))
    with pytest.raises(CorruptionError):
        await other.append(between(0, 3), upper=3)


async def test_a_deleted_collection_has_no_writer(lake: Lake) -> None:
    await lake.versions().commits.commit(Tombstone("d" * 32))
    for appends in Appends:
        with pytest.raises(ClosedError, match="was deleted"):
            await lake.writer(appends)
