"""The newest version was lost, and what it had taken in is pending no more: C30."""

from __future__ import annotations

import pytest

from slate_async.collections.codec import merged
from slate_async.collections.codec.life import Appends
from slate_async.collections.codec.merged import encode_merged
from slate_async.collections.controller import controller as module
from slate_async.collections.controller.output import MergedOutput
from slate_async.collections.controller.pending import PendingBatch
from slate_async.collections.core.errors import UpperMismatchError
from slate_async.collections.core.frontier import DONE, Frontier
from slate_async.collections.core.names import MergedName, hashed_text
from slate_async.collections.core.slices import one_batch, slices_of
from slate_async.collections.core.times import TimeKind
from slate_async.collections.core.updates import UpdateSchema
from slate_async.collections.overview.look import look
from slate_async.collections.store.merged import MergedSource, list_merged, read_uppers
from slate_async.collections.verify.verifier import verify
from slate_async.collections.writer.puts import no_merged_files
from slate_async.errors import CorruptionError, FencedError
from tests.engine import InlineOffload
from tests.support.collection_bytes import PAIRS, frontier
from tests.unit.collections.kept import KeptLake


def long_frontier(time: int) -> Frontier:
    """One of pairs, in place of which names have a hash; ``time`` orders them."""
    return Frontier((time + number, time + 32 - 2 * number) for number in range(16))


async def rolled_back(lake: KeptLake, appends: Appends) -> list[str]:
    """The newest version is lost; the merged batches that only it named."""
    controller, writer = await lake.controller(appends), await lake.writer(appends, "a")
    pairs = lake.schema.kind is PAIRS
    await writer.append([(b"a", (3, 3) if pairs else 3, 1)], upper=long_frontier(5) if pairs else 5)
    await controller.settle()
    versions = {key: await lake.store.get(key) for key in await lake.keys("merged_areas/")}
    before = await lake.head()
    await writer.append([(b"b", (7, 60) if pairs else 7, 1)], upper=long_frontier(9) if pairs else 9)
    await writer.close()
    await controller.settle()
    await controller.close()
    only = set((await lake.head()).names()) - set(before.names())
    await lake.store.delete(await lake.keys("merged_areas/"))
    for key, found in versions.items():
        await lake.store.put(key, found.data)
    return sorted(only)


async def no_look(_: object) -> None:
    """A controller that claims whatever was lost."""


@pytest.mark.parametrize("kind", list(TimeKind))
@pytest.mark.parametrize("appends", list(Appends))
async def test_what_only_a_lost_version_named_is_not_collected(
    lake: KeptLake, appends: Appends, kind: TimeKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.schema = UpdateSchema.of_bytes(kind)
    only = await rolled_back(lake, appends)
    assert only
    monkeypatch.setattr(module, "check_not_lost", no_look)
    await (await lake.controller(appends)).round()
    await (await lake.controller(appends)).round()
    assert set(only) <= set(await lake.keys("merged_batches/"))


@pytest.mark.parametrize("kind", list(TimeKind))
@pytest.mark.parametrize("appends", list(Appends))
async def test_no_controller_goes_on_from_the_version_before(lake: KeptLake, appends: Appends, kind: TimeKind) -> None:
    lake.schema = UpdateSchema.of_bytes(kind)
    only = await rolled_back(lake, appends)
    before = await lake.head()
    with pytest.raises(CorruptionError, match=r"ends at (5|\(5,37\).*): a later version was lost") as raised:
        await lake.controller(appends)
    assert raised.value.object_name in [f"{name} of orders" for name in only]
    assert await lake.head() == before


@pytest.mark.parametrize("kind", list(TimeKind))
@pytest.mark.parametrize("appends", list(Appends))
async def test_a_verification_finds_it(lake: KeptLake, appends: Appends, kind: TimeKind) -> None:
    lake.schema = UpdateSchema.of_bytes(kind)
    only = await rolled_back(lake, appends)
    findings = (await verify(lake.reading(appends, deadline_ms=600_000))).findings
    lost = [found.object_name for found in findings if "a later version than" in found.what]
    assert lost == only


@pytest.mark.parametrize("appends", list(Appends))
async def test_what_was_put_and_not_published_is_no_trace_of_one(lake: KeptLake, appends: Appends) -> None:
    """What it is made of is pending still. It is garbage once the upper has passed it."""
    first = await lake.controller(appends)
    await lake.put([(b"a", 3, 1)], 0, 5, appends=appends)
    name = str(MergedName(frontier(0), frontier(5), first.epoch, "0" * 32))
    await lake.store.put(name, b"left by a controller that stopped")
    assert (await verify(lake.reading(appends, deadline_ms=600_000))).findings == ()
    controller = await lake.controller(appends)
    await controller.settle()
    assert name not in await lake.keys("merged_batches/")
    assert await lake.merged() == [(b"a", 3, 1)]


@pytest.mark.parametrize("kind", list(TimeKind))
async def test_no_writer_of_a_chain_goes_on_from_the_version_before(lake: KeptLake, kind: TimeKind) -> None:
    """An append at its upper would be acknowledged, and whoever restored the version would lose it."""
    lake.schema = UpdateSchema.of_bytes(kind)
    only = await rolled_back(lake, Appends.COMPARE)
    with pytest.raises(CorruptionError, match=r"beyond .*, the upper of version \d+, ends at .*: a later") as raised:
        await lake.writer(Appends.COMPARE)
    assert raised.value.object_name in [f"{name} of orders" for name in only]


async def test_an_append_from_the_version_before_hides_nothing(lake: KeptLake) -> None:
    """It reaches further than what was lost, but no batch of the chain ends where that does."""
    only = await rolled_back(lake, Appends.COMPARE)
    lake.knobs["merged_files"] = no_merged_files
    await (await lake.writer(Appends.COMPARE)).append([(b"c", 6, 1)], lower=5, upper=20)
    with pytest.raises(CorruptionError, match=r"ends at 20: a later version was lost"):
        await lake.controller(Appends.COMPARE)
    findings = (await verify(lake.reading(Appends.COMPARE, deadline_ms=600_000))).findings
    assert [found.object_name for found in findings if "a later version than" in found.what] == only
    assert set(only) <= set(await lake.keys("merged_batches/"))


async def test_a_dead_batch_that_is_absorbed_leaves_no_trace(lake: KeptLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that slept reads it at a name that was collected. No version was lost."""
    zombie = await lake.writer(Appends.COMPARE, "z")
    first = await lake.controller(Appends.COMPARE)
    pending, slept = first._rounds.pending, list[int]()

    async def late(covered: Frontier) -> list[PendingBatch]:
        slept.append(1)
        await lake.put([(b"a", 1, 1)], 0, 5, appends=Appends.COMPARE)
        await (await lake.controller(Appends.COMPARE)).settle()
        with pytest.raises(UpperMismatchError):
            await zombie.append([(b"z", 1, 1)], lower=0, upper=20)
        return await pending(covered)

    monkeypatch.setattr(first._rounds, "pending", late)
    with pytest.raises(FencedError):
        await first.round()
    assert slept
    await (await lake.controller(Appends.COMPARE)).settle()
    assert await lake.merged() == [(b"a", 1, 1)]
    assert (await verify(lake.reading(Appends.COMPARE, deadline_ms=600_000))).findings == ()


# ---- names with a hash in place of the upper


async def left_behind(lake: KeptLake, *, parts: bool = False) -> list[str]:
    """Files of a merge that was given up, of a collection that has gone on since."""
    lake.schema = UpdateSchema.of_bytes(PAIRS)
    first = await lake.controller()
    writer = await lake.writer(Appends.DEFINITE, "a")
    await writer.append([(b"%d" % number, (0, 0), 1) for number in range(2_000)], upper=long_frontier(5))
    await first.settle()
    (batch,) = (await lake.head()).batches
    name = MergedName(batch.bounds.lower, batch.bounds.upper, first.epoch, "0" * 32)
    output = MergedOutput(lake.store, lake.schema, name, batch.bounds, InlineOffload(), 2_000 if parts else 1 << 20)
    source = await MergedSource.open(lake.store, lake.schema, batch, InlineOffload())
    async for table in source.updates():
        for piece in slices_of(one_batch(table.to_batches(), lake.schema.arrow), 500):
            await output.add(piece)
    await output.finish()
    await writer.append([(b"b", (7, 60), 1)], upper=long_frontier(9))
    await first.close()
    assert hashed_text(batch.bounds.upper) is not None
    return [key for key in await lake.keys("merged_batches/") if "0" * 32 in key]


@pytest.mark.parametrize("parts", [False, True])
async def test_what_a_name_does_not_say_the_object_does(
    lake: KeptLake, parts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its upper has been passed, so it is garbage: each part, and the index."""
    monkeypatch.setattr(merged, "GROUP_ROWS", 100)
    left = await left_behind(lake, parts=parts)
    assert len(left) > 4 if parts else len(left) == 1
    head = await lake.head()
    found = await list_merged(lake.store, lake.schema)
    hashed = [file for file in found if file.key in left]
    assert [file.upper for file in await read_uppers(lake.store, lake.schema, hashed)] == [head.upper] * len(left)
    second = await lake.controller()
    assert (await look(lake.reading(deadline_ms=600_000), 1)).garbage.merged == len(left)
    await second.settle()
    assert not set(left) & set(await lake.keys("merged_batches/"))


@pytest.mark.parametrize("how", ["damaged", "of another batch", "short"])
async def test_one_that_does_not_say_it_either_is_left_alone(lake: KeptLake, how: str) -> None:
    """It may be what a lost version named. A verification shows it, and nothing is refused for it."""
    (left,) = await left_behind(lake)
    data = bytearray((await lake.store.get(left)).data)
    if how == "damaged":
        data[-40] ^= 1
        data[-60:-50] = bytes(10)
    elif how == "short":
        data = data[:5]
    else:
        data = bytearray(encode_merged(lake.schema.empty(), lake.schema, hashed_text(long_frontier(4))).data)
    await lake.store.put(left, bytes(data))
    await (await lake.controller()).settle()
    assert left in await lake.keys("merged_batches/")
    report = await verify(lake.reading(deadline_ms=600_000))
    assert report.findings == ()
    assert [found.what for found in report.notes if found.object_name == left] == [
        "no version that is needed names it: neither its name nor its bytes say where it ends, so it is left alone"
    ]


async def test_of_a_closed_collection_it_is_deleted_unread(lake: KeptLake) -> None:
    (left,) = await left_behind(lake)
    await lake.store.put(left, b"damaged")
    writer = await lake.writer(Appends.DEFINITE, "a")
    await writer.append([], upper=DONE)
    await (await lake.controller()).settle()
    assert left not in await lake.keys("merged_batches/")
