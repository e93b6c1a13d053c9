"""Large batches: `slate_async.collections.writer.builder` over real stores."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from slate_async.collections.codec.life import Appends
from slate_async.collections.core.errors import UpperMismatchError
from slate_async.collections.writer import builder
from slate_async.errors import ClosedError, InvalidError, UnavailableError
from tests.engine import until
from tests.support.collection_bytes import frontier, many
from tests.unit.collections.faults import next_put
from tests.unit.collections.lake import Lake

KINDS = list(Appends)


def shard(appends: Appends) -> str:
    """Of the writer of a test."""
    return "main" if appends is Appends.COMPARE else "relay-a"


@pytest.fixture(autouse=True)
def small_parts(lake: Lake) -> None:
    """Parts of some 400 rows."""
    lake.knobs["part_bytes"] = 10_000


def as_rows(rows: int) -> list[tuple[bytes, int, int]]:
    """Those of `many`."""
    return sorted((row["data"], row["_time"], row["_diff"]) for row in many(rows).to_pylist())


@pytest.mark.parametrize("appends", KINDS)
@pytest.mark.parametrize("step", [1, 7, 5000])
async def test_a_batch_is_in_parts_and_comes_in_as_a_whole(lake: Lake, appends: Appends, step: int) -> None:
    writer = await lake.writer(appends)
    rows = 40 if step == 1 else 3000
    async with writer.batch(upper=7) as batch:
        for start in range(0, rows, step):
            await batch.add(many(rows).slice(start, step))
        assert await lake.rows([shard(appends)]) == (frontier(0), [])
    assert await lake.rows([shard(appends)]) == (frontier(7), as_rows(rows))
    assert writer.upper == frontier(7)
    assert (len(lake.store.puts) > 5) is (rows > 40)
    assert lake.store.most_in_flight <= builder.PARALLEL_PARTS
    await writer.append([(b"more", 7, 1)], upper=8)
    assert (await lake.writer(appends)).upper == frontier(8)


@pytest.mark.parametrize("appends", KINDS)
async def test_long_rows_that_lie_together_are_in_parts_as_well(lake: Lake, appends: Appends) -> None:
    """A part has no more than it may, or one row: its object would be too large to be put."""
    writer = await lake.writer(appends)
    rows = [(b"", 1, 1)] * 3000 + [(b"%04000d" % number, 1, 1) for number in range(30)]
    await writer.append(rows, upper=7)
    pending = lake.pending()
    [name] = [listed.name async for listed in pending.list() if listed.name.part is None]
    found = await pending.describe(name)
    assert found is not None
    parts = [await pending.part(name, found, place) for place in range(len(found.parts))]
    assert all(part.nbytes <= 10_000 for part in parts)
    assert sum(part.num_rows for part in parts) == 3030


@pytest.mark.parametrize("appends", KINDS)
async def test_a_batch_of_little_is_one_object(lake: Lake, appends: Appends) -> None:
    writer = await lake.writer(appends)
    async with writer.batch(upper=7) as batch:
        await batch.add([(b"a", 1, 1)])
        await batch.add([(b"b", 2, 1)])
    async with writer.batch(upper=9):
        pass
    assert len(lake.store.puts) == 2
    assert await lake.rows([shard(appends)]) == (frontier(9), [(b"a", 1, 1), (b"b", 2, 1)])


@pytest.mark.parametrize("appends", KINDS)
@pytest.mark.parametrize("fault", ["request lost", "answer lost", "refused"])
async def test_parts_are_put_again(lake: Lake, appends: Appends, fault: str) -> None:
    writer = await lake.writer(appends)
    async with writer.batch(upper=7) as batch:
        next_put(lake.store, fault)
        await batch.add(many(3000))
        next_put(lake.store, fault)
    assert await lake.rows([shard(appends)]) == (frontier(7), as_rows(3000))


@pytest.mark.parametrize("appends", KINDS)
async def test_a_block_that_raises_appends_nothing(lake: Lake, appends: Appends) -> None:
    writer = await lake.writer(appends)
    with pytest.raises(KeyError):  # noqa: PT012
        async with writer.batch(upper=7) as batch:
            await batch.add(many(3000))
            raise KeyError
    with pytest.raises(InvalidError, match=r"row 0 .* its time is at or beyond upper 3"):
        async with writer.batch(upper=3) as batch:
            await batch.add([(b"a", 3, 1)])
    assert await lake.pending_batches(shard(appends)) == {}
    with pytest.raises(InvalidError, match="it has ended"):
        await batch.add([])
    with pytest.raises(InvalidError, match="a batch is begun once"):
        await batch.__aenter__()
    with pytest.raises(InvalidError, match="it is used within async with"):
        await writer.batch(upper=3).add([])


async def test_an_addition_that_failed_or_was_cancelled_spoils_the_batch(lake: Lake) -> None:
    """Else the batch would lack some of it."""
    writer = await lake.writer(Appends.DEFINITE)
    for spoiled in ("failed", "cancelled"):
        with pytest.raises(InvalidError, match=r"a call of add (failed: orders: row|was cancelled)"):  # noqa: PT012
            async with writer.batch(upper=7) as batch:
                if spoiled == "failed":
                    with pytest.raises(InvalidError):
                        await batch.add([(b"a", 9, 1)])
                else:
                    lake.store.hold = True
                    adding = asyncio.create_task(batch.add(many(5000)))
                    await until(lambda: len(lake.store.held) == 2, "two parts on their way")
                    adding.cancel()
                    await asyncio.wait([adding])
                    lake.store.release()
    assert await lake.pending_batches("relay-a") == {}


@pytest.mark.filterwarnings("ignore:coroutine 'BatchBuilder._add' was never awaited:RuntimeWarning")
async def test_an_addition_that_was_not_awaited_spoils_the_batch(lake: Lake) -> None:
    writer = await lake.writer(Appends.DEFINITE)
    with pytest.raises(InvalidError, match="the batch was not appended: a call of add was not awaited") as raised:  # noqa: PT012
        async with writer.batch(upper=7) as batch:
            await batch.add([(b"a", 1, 1)])
            batch.add([(b"b", 2, 1)])
    assert raised.value.outcome == "not_applied"
    assert await lake.pending_batches("relay-a") == {}
    assert writer.upper == frontier(0)


async def test_of_a_batch_whose_block_catches_an_error_of_add_nothing_is_in(lake: Lake) -> None:
    writer = await lake.writer(Appends.DEFINITE)
    with pytest.raises(InvalidError, match=r"not appended: .*row 0 .*at or beyond upper 7") as raised:  # noqa: PT012
        async with writer.batch(upper=7) as batch:
            await batch.add([(b"a", 1, 1)])
            with pytest.raises(InvalidError) as first:
                await batch.add([(b"b", 9, 1)])
            with pytest.raises(InvalidError, match="takes no updates: a call of add failed"):
                await batch.add([(b"c", 2, 1)])
    assert (raised.value.outcome, raised.value.__cause__) == ("not_applied", first.value)
    assert await lake.pending_batches("relay-a") == {}
    assert writer.upper == frontier(0)


async def test_a_part_that_is_not_answered_ends_the_batch(lake: Lake) -> None:
    writer = await lake.writer(Appends.DEFINITE)
    lake.store.fail_before = lambda key: UnavailableError("no answer", outcome="unknown")
    with pytest.raises(UnavailableError, match=r"part 0 of a batch") as raised:
        async with writer.batch(upper=7) as batch:
            await batch.add(many(5000))
    assert raised.value.outcome == "not_applied"


async def test_what_is_in_is_dropped_while_it_is_added(lake: Lake) -> None:
    writer = await lake.writer(Appends.DEFINITE)
    await writer.append(many(3000).filter([time < 4 for time in many(3000).column("_time").to_pylist()]), upper=4)
    async with writer.batch(0, upper=7) as batch:
        await batch.add(many(3000))
    async with writer.batch(0, upper=5) as batch:
        await batch.add(many(3000).filter([time < 5 for time in many(3000).column("_time").to_pylist()]))
    bounds = sorted(span.lower.elements for span in (await lake.pending_batches("relay-a")).values())
    assert bounds == [((0,),), ((4,),)]
    assert await lake.rows(["relay-a"]) == (frontier(7), as_rows(3000))


async def test_a_gap_is_refused_before_anything_is_put(lake: Lake) -> None:
    writer = await lake.writer(Appends.DEFINITE)
    with pytest.raises(UpperMismatchError):
        async with writer.batch(3, upper=7):
            pytest.fail("begun")
    assert lake.store.puts == []


async def test_a_rival_at_the_same_place_leaves_the_parts_unnamed(lake: Lake) -> None:
    writer, rival = await lake.writer(Appends.COMPARE), await lake.writer(Appends.COMPARE)
    with pytest.raises(UpperMismatchError) as raised:  # noqa: PT012
        async with writer.batch(upper=7) as batch:
            await batch.add(many(3000))
            await rival.append([(b"theirs", 0, 1)], upper=2)
    assert raised.value.outcome == "not_applied"
    assert await lake.rows(["main"]) == (frontier(2), [(b"theirs", 0, 1)])


async def test_an_append_of_much_is_put_in_parts(lake: Lake) -> None:
    writer = await lake.writer(Appends.DEFINITE)
    await asyncio.gather(writer.append(many(3000), lower=0, upper=7), writer.append([(b"x", 7, 1)], lower=7, upper=8))
    assert await lake.rows(["relay-a"]) == (frontier(8), sorted([*as_rows(3000), (b"x", 7, 1)]))
    assert len(lake.store.puts) > 5


async def test_too_many_parts_are_refused(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "MAX_PARTS", 3)
    writer = await lake.writer(Appends.DEFINITE)
    with pytest.raises(InvalidError, match="at most 3 parts of 10000 bytes"):
        async with writer.batch(upper=7) as batch:
            await batch.add(many(5000))


async def test_a_writer_that_closes_ends_the_batch(lake: Lake) -> None:
    writer = await lake.writer(Appends.DEFINITE)
    with pytest.raises(ClosedError) as raised:  # noqa: PT012
        async with writer.batch(upper=7) as batch:
            await writer.close()
            await batch.add(many(5000))
    assert raised.value.outcome == "not_applied"


@pytest.mark.parametrize("last", [False, True], ids=["an addition", "the last part"])
async def test_a_writer_that_closes_before_a_part_is_begun_ends_the_batch(
    lake: Lake, last: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the addition checks its updates elsewhere, or at the end of the block."""
    writer = await lake.writer(Appends.DEFINITE)
    work = "finish" if last else "_checked"
    inner = getattr(builder.PartsWriter, work)

    def closing(self: builder.PartsWriter, *args: Any, **options: Any) -> Any:
        self._supervisor._cancel()
        return inner(self, *args, **options)

    with pytest.raises(ClosedError, match="before the batch was whole") as raised:  # noqa: PT012
        async with writer.batch(upper=7) as batch:
            if last:
                await batch.add(many(600))  # one part is on its way
            monkeypatch.setattr(builder.PartsWriter, work, closing)
            if not last:
                await batch.add(many(1000))
    assert raised.value.outcome == "not_applied"
    assert await lake.pending_batches("relay-a") == {}
