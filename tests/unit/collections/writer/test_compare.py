"""Appends of compare collections: `slate_async.collections.writer.compare` over real stores."""

from __future__ import annotations

import asyncio

import pytest

from slate_async.collections.codec.description import Description
from slate_async.collections.codec.life import Appends
from slate_async.collections.core.edits import Tombstone
from slate_async.collections.core.errors import UpperMismatchError
from slate_async.collections.core.frontier import DONE
from slate_async.collections.core.names import PendingName
from slate_async.collections.writer.compare import CompareAppends
from slate_async.errors import ClosedError, InvalidError, UnavailableError
from tests.engine import until
from tests.support.collection_bytes import UPDATES, frontier
from tests.unit.collections.faults import next_put
from tests.unit.collections.lake import Lake

COMPARE = Appends.COMPARE


def row(data: str, time: int) -> list[tuple[bytes, int, int]]:
    """One update."""
    return [(data.encode(), time, 1)]


async def test_appends_of_any_process_form_one_chain(lake: Lake) -> None:
    one, two = await lake.writer(COMPARE), await lake.writer(COMPARE, "relay-b")
    await one.append(row("a", 2), lower=0, upper=3)
    await two.append(row("b", 3), lower=3, upper=9)
    with pytest.raises(UpperMismatchError, match="orders was expected to end at 3, and ends at 9") as raised:
        await one.append(row("c", 4), upper=5)
    assert (raised.value.upper, raised.value.outcome, one.upper) == (frontier(9), "not_applied", frontier(9))
    await one.append([], upper=DONE)
    assert await lake.rows(["main"]) == (DONE, row("a", 2) + row("b", 3))
    assert (await lake.writer(COMPARE)).upper == DONE
    with pytest.raises(InvalidError, match="from done to done does not move its end"):
        await one.append([], upper=DONE)


@pytest.mark.parametrize("lower", [0, 2, 4, 9])
async def test_an_append_elsewhere_than_at_the_end_puts_nothing(lake: Lake, lower: int) -> None:
    """A batch beyond the end would come into the chain later, unasked."""
    one = await lake.writer(COMPARE)
    await one.append([], upper=3)
    puts = len(lake.store.puts)
    with pytest.raises(UpperMismatchError):
        await one.append([], lower=lower, upper=10)
    assert len(lake.store.puts) == puts


async def test_an_append_is_one_put_and_one_head(lake: Lake) -> None:
    """The next one needs no walk."""
    writer = await lake.writer(COMPARE)
    await writer.append([], upper=3)
    lake.store.gets.clear()
    await writer.append([], upper=4)
    assert len(lake.store.puts) == 2
    assert not [key for key in lake.store.gets if key.startswith("pending_batches/")]


@pytest.mark.parametrize("fault", ["request lost", "answer lost", "refused"])
async def test_a_lost_answer_is_resolved_by_the_same_put(lake: Lake, fault: str) -> None:
    writer = await lake.writer(COMPARE)
    next_put(lake.store, fault)
    await writer.append(row("a", 0), upper=3)
    assert len(lake.store.puts) == 2
    assert await lake.rows(["main"]) == (frontier(3), row("a", 0))


async def test_a_rival_in_between_decides(lake: Lake) -> None:
    """The request was lost, and a rival appends before it is repeated: the batch there is not mine (C8)."""
    writer, rival = await lake.writer(COMPARE), await lake.writer(COMPARE)
    lake.store.hold = True
    appending = asyncio.create_task(writer.append(row("mine", 0), upper=3))
    await until(lambda: bool(lake.store.held), "the put is on its way")
    lake.store.hold = False
    await rival.append(row("theirs", 0), upper=5)
    next_fail = [UnavailableError("lost", outcome="unknown")]
    lake.store.fail_before = lambda key: next_fail.pop() if next_fail else None
    lake.store.release()
    with pytest.raises(UpperMismatchError) as raised:
        await appending
    assert (raised.value.outcome, raised.value.upper) == ("not_applied", frontier(5))
    assert await lake.rows(["main"]) == (frontier(5), row("theirs", 0))


@pytest.mark.parametrize("absorbed", [0, 3, 5])
async def test_an_answer_is_lost_and_a_rival_goes_on_behind(lake: Lake, absorbed: int) -> None:
    """The same put finds the batch there, and it is in once. Once the merged area has gone past it, nobody can tell any
    more (C8)."""
    writer, rival = await lake.writer(COMPARE), await lake.writer(COMPARE)

    def lost(key: str) -> Exception | None:
        if lake.store.hold or not key.startswith("pending_batches/"):
            return None
        lake.store.hold = True  # the same put again
        return UnavailableError("no answer", outcome="unknown")

    lake.store.fail_after = lost
    appending = asyncio.create_task(writer.append(row("mine", 0), upper=3))
    await until(lambda: bool(lake.store.held), "the put is repeated")
    lake.store.hold, lake.store.fail_after = False, lambda key: None
    await rival.append(row("theirs", 3), lower=3, upper=5)
    if absorbed:
        await lake.absorb(frontier(absorbed), await lake.last_of(frontier(0), frontier(absorbed)))
    lake.store.release()
    if absorbed == 5:
        with pytest.raises(UpperMismatchError) as raised:
            await appending
        assert (raised.value.outcome, raised.value.upper) == ("unknown", frontier(5))
    else:
        await appending
    batches = await lake.pending_batches("main")
    assert sorted((str(found.lower), str(found.upper)) for found in batches.values()) == [("0", "3"), ("3", "5")]
    with pytest.raises(UpperMismatchError):
        await writer.append(row("mine", 0), lower=0, upper=3)  # a caller who repeats it appends nothing twice
    assert await lake.pending_batches("main") == batches


async def test_a_put_at_a_collected_name_is_not_acknowledged(lake: Lake) -> None:
    """C8: a process that slept puts where the chain ended; that was taken in and collected meanwhile."""
    zombie, writer = await lake.writer(COMPARE), await lake.writer(COMPARE)
    await writer.append(row("a", 0), upper=3)
    await lake.absorb(frontier(3), collect="main")
    with pytest.raises(UpperMismatchError, match="may or may not have taken an append at 0, and ends at 3") as raised:
        await zombie.append(row("zombie", 0), upper=9)
    assert (raised.value.outcome, raised.value.upper) == ("unknown", frontier(3))
    await zombie.append(row("b", 3), upper=4)
    assert await lake.rows(["main"]) == (frontier(4), row("b", 3))


async def test_an_append_that_was_absorbed_at_once_is_acknowledged(lake: Lake) -> None:
    """C8: its token is the last that the head took in."""
    writer = await lake.writer(COMPARE)

    context = lake.context(COMPARE)
    put = lake.store.put

    async def absorbed(key: str, data: object, **options: object) -> str:
        etag = await put(key, data, **options)  # type: ignore[arg-type]
        if key.startswith("pending_batches/"):
            found = await context.pending.describe(PendingName("main", frontier(0), None))
            assert found is not None
            lake.store.put = put  # type: ignore[method-assign]
            await lake.absorb(frontier(3), last=found.token, collect="main")
        return etag

    lake.store.put = absorbed  # type: ignore[method-assign]
    await writer.append(row("a", 0), upper=3)
    assert writer.upper == frontier(3)


@pytest.mark.parametrize(("absorbed", "end"), [(3, 7), (7, 7), (0, 7)])
async def test_the_end_is_found_from_the_head_along_the_chain(lake: Lake, absorbed: int, end: int) -> None:
    writer = await lake.writer(COMPARE)
    for upper in (3, 5, 7):
        await writer.append([], upper=upper)
    if absorbed:
        await lake.absorb(frontier(absorbed), collect="main")
    assert (await lake.writer(COMPARE)).upper == frontier(end)


async def test_a_walk_past_which_the_head_went_is_begun_anew(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """C9: what was not found may have been collected: an append there would be dead."""
    writer = await lake.writer(COMPARE)
    await writer.append([], upper=3)
    context = lake.context(COMPARE)
    describe = context.pending.describe

    async def collected(name: PendingName) -> Description | None:
        monkeypatch.undo()
        await lake.absorb(frontier(3), collect="main")
        return await describe(name)

    monkeypatch.setattr(context.pending, "describe", collected)
    appends = CompareAppends(context)
    await appends.restart()
    assert appends.coverage == frontier(3)


async def test_a_deletion_is_told_with_the_outcome(lake: Lake) -> None:
    writer = await lake.writer(COMPARE)
    await lake.versions().commits.commit(Tombstone("d" * 32))
    with pytest.raises(ClosedError, match="was deleted") as raised:
        await writer.append(UPDATES, upper=20)
    assert raised.value.outcome == "unknown"
    with pytest.raises(ClosedError) as raised:
        await writer.append([], upper=30)
    assert raised.value.outcome == "not_applied"


async def test_who_came_second_looks_only_at_what_is_new(lake: Lake) -> None:
    """However much is pending: else one that is ahead stays so, and the others never append."""
    ahead, behind = await lake.writer(COMPARE), await lake.writer(COMPARE)
    for time in range(20):
        await ahead.append(row("a", time), upper=time + 1)
    with pytest.raises(UpperMismatchError):
        await behind.append(row("b", 0), lower=0, upper=1)
    await ahead.append(row("a", 20), upper=21)
    lake.store.gets.clear()
    with pytest.raises(UpperMismatchError) as raised:
        await behind.append(row("b", 20), lower=20, upper=21)
    assert raised.value.upper == frontier(21)
    looked = [key for key in lake.store.gets if key.startswith("pending_batches/")]
    assert looked == [str(PendingName("main", frontier(at), None)) for at in (20, 21)]
    await lake.absorb(frontier(21), collect="main")
    await ahead.append(row("a", 21), upper=22)
    with pytest.raises(UpperMismatchError) as raised:  # the head has gone past what it knew
        await behind.append(row("b", 21), lower=21, upper=23)
    assert raised.value.upper == frontier(22)
