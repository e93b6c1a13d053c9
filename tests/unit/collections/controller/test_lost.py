"""The newest version was lost, and what it had taken in is pending no more: C30."""

from __future__ import annotations

import pytest

from slate_async.collections.codec.life import Appends
from slate_async.collections.controller import controller as module
from slate_async.collections.core.names import MergedName
from slate_async.collections.verify.verifier import verify
from slate_async.errors import CorruptionError
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
