"""The newest version was lost, and what it had taken in is pending no more: C30."""

from __future__ import annotations

import pytest

from slate_async.collections.codec.life import Appends
from slate_async.collections.controller import controller as module
from slate_async.collections.controller.pending import PendingBatch
from slate_async.collections.core.errors import UpperMismatchError
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.names import MergedName
from slate_async.collections.verify.verifier import verify
from slate_async.collections.writer.puts import no_merged_files
from slate_async.errors import CorruptionError, FencedError
from tests.support.collection_bytes import frontier
from tests.unit.collections.kept import KeptLake


async def rolled_back(lake: KeptLake, appends: Appends) -> list[str]:
    """The newest version is lost; the merged batches that only it named."""
    controller = await lake.controller(appends)
    await lake.put([(b"a", 3, 1)], 0, 5, appends=appends)
    await controller.settle()
    versions = {key: await lake.store.get(key) for key in await lake.keys("merged_areas/")}
    before = await lake.head()
    await lake.put([(b"b", 7, 1)], 5, 9, appends=appends)
    await controller.settle()
    await controller.close()
    only = set((await lake.head()).names()) - set(before.names())
    await lake.store.delete(await lake.keys("merged_areas/"))
    for key, found in versions.items():
        await lake.store.put(key, found.data)
    return sorted(only)


async def no_look(_: object) -> None:
    """A controller that claims whatever was lost."""


@pytest.mark.parametrize("appends", list(Appends))
async def test_what_only_a_lost_version_named_is_not_collected(
    lake: KeptLake, appends: Appends, monkeypatch: pytest.MonkeyPatch
) -> None:
    only = await rolled_back(lake, appends)
    assert only
    monkeypatch.setattr(module, "check_not_lost", no_look)
    await (await lake.controller(appends)).round()
    await (await lake.controller(appends)).round()
    assert set(only) <= set(await lake.keys("merged_batches/"))


@pytest.mark.parametrize("appends", list(Appends))
async def test_no_controller_goes_on_from_the_version_before(lake: KeptLake, appends: Appends) -> None:
    only = await rolled_back(lake, appends)
    before = await lake.head()
    with pytest.raises(CorruptionError, match=r"ends at 5: a later version was lost") as raised:
        await lake.controller(appends)
    assert raised.value.object_name in [f"{name} of orders" for name in only]
    assert await lake.head() == before


@pytest.mark.parametrize("appends", list(Appends))
async def test_a_verification_finds_it(lake: KeptLake, appends: Appends) -> None:
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


async def test_no_writer_of_a_chain_goes_on_from_the_version_before(lake: KeptLake) -> None:
    """An append at its upper would be acknowledged, and whoever restored the version would lose it."""
    only = await rolled_back(lake, Appends.COMPARE)
    with pytest.raises(CorruptionError, match=r"beyond 5, the upper of version \d+, ends at 5: a later") as raised:
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
