"""`slate_async.collections.verify`: versions and holds."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from slate_async.collections.codec.description import Description
from slate_async.collections.codec.hold import decode_hold, encode_hold
from slate_async.collections.codec.pending import encode_pending
from slate_async.collections.core import holding, sweep
from slate_async.collections.core.area import Area, Fuel
from slate_async.collections.core.edits import Tombstone
from slate_async.collections.core.errors import LeaseLostError
from slate_async.collections.core.names import hold_name
from slate_async.collections.verify.holds import broken
from slate_async.collections.verify.verifier import verify
from slate_async.errors import ClosedError
from tests.engine import ManualClock
from tests.support.collection_bytes import BYTES, COLLECTION, U64, byte_updates, frontier
from tests.unit.collections.used import TOKEN, UsedLake, texts

# ---- versions


async def test_versions_that_do_not_follow_are_found(lake: UsedLake) -> None:
    await lake.filled()

    def back(area: Area) -> Area:
        return replace(area, epoch=0, batches=(replace(area.batches[0], diff_sum=99), *area.batches[1:]))

    number = await lake.change_head(back)
    found = "\n".join(texts((await lake.verified()).findings))
    assert f"version {number}: an edit took epoch back from 1 to 0" in found
    assert f"version {number}: it says other things of merged_batches/" in found
    assert ", of a later epoch than its own, 0" in found
    assert "and a version says 99" in found


async def test_sums_that_change_by_no_append_are_found(lake: UsedLake) -> None:
    controller = await lake.filled()
    await controller.round()
    await controller.merge(everything=True)

    def other(area: Area) -> Area:
        return replace(area, batches=(replace(area.batches[0], diff_sum=99), *area.batches[1:]))

    number = await lake.change_head(other)
    found = texts((await lake.verified()).findings)
    assert any(text.startswith(f"version {number}: its differences add up to") for text in found), found


async def test_an_area_with_a_gap_is_found(lake: UsedLake) -> None:
    await lake.filled()
    number = await lake.change_head(lambda area: replace(area, batches=area.batches[1:]))
    found = texts((await lake.verified()).findings)
    assert any(f"version {number}: " in text and "the batch before it ends at 0" in text for text in found), found


async def test_fuel_for_batches_that_are_not_there_is_found(lake: UsedLake) -> None:
    await lake.filled()
    await lake.change_head(lambda area: replace(area, fuel=(Fuel("a", "b", 5),)))
    assert any(
        "fuel for a merge of batches that it does not name" in text for text in texts((await lake.verified()).findings)
    )


async def test_what_was_absorbed_is_compared_with_what_is_pending(lake: UsedLake) -> None:
    await lake.filled()
    pending = [key for key in await lake.keys("pending_batches/") if "batch_00000000000000000020_" in key]
    description = Description(frontier(20), frontier(30), TOKEN, "a", 1, 99)
    for key in pending:
        said = replace(description, writer=key.split("/")[1])
        await lake.store.put(key, encode_pending(said, byte_updates((b"q", 25, 99)), BYTES, COLLECTION))
    found = texts((await lake.verified()).findings)
    assert len(found) == 1
    assert found[0].startswith(f"version {(await lake.head()).version}: what was absorbed from 10 to 30 adds up to ")
    assert pending


# ---- holds


async def test_a_hold_that_was_compacted_past_and_is_renewed_is_found(lake: UsedLake) -> None:
    await lake.filled()
    reader = await lake.reader()
    name = reader._hold.handle.reader
    head = replace(await lake.head(), floor=99, bound=frontier(99), since=frontier(99))
    before = await lake.holds().read_all([name])
    assert broken(head, before, before) == []  # it may be one that is being registered
    await reader._hold.write()
    after = await lake.holds().read_all([name])
    [finding] = broken(head, before, after)
    assert "is compacted to 99, and its owner goes on with it" in finding.what
    assert broken(await lake.head(), before, after) == []
    unlisted = replace(await lake.head(), floor=99, bound=frontier(99))  # the holds were listed before this one came
    assert broken(unlisted, before, after) == []


async def test_a_ghost_and_a_revoked_hold_are_notes(lake: UsedLake) -> None:
    await lake.filled()
    ghost = holding.Hold(1, frontier(0), 60_000, TOKEN)
    head = await lake.head()
    await lake.store.put(hold_name("ghost"), encode_hold(replace(ghost, version=head.floor - 1)))
    await lake.store.put(hold_name("gone"), encode_hold(replace(ghost, revoked=True)))
    report = await lake.verified()
    assert report.clean
    notes = {note.object_name: note.what for note in report.notes}
    assert notes[hold_name("ghost")].endswith("it is being registered, or a ghost that ends with its lease")
    assert notes[hold_name("gone")] == "it was revoked; a controller removes it"


async def revoke(lake: UsedLake) -> None:
    """As a controller does whose clock is ahead."""
    for name, stored in (await lake.holds().read_all(await lake.holds().list())).items():
        await lake.holds().write(name, sweep.revoking(stored.hold, TOKEN), stored.etag)


async def test_nothing_is_called_missing_by_a_verification_whose_hold_was_revoked(lake: UsedLake) -> None:
    await lake.filled()
    merged = (await lake.head()).names()[-1]
    plain_get = lake.store.get
    seen: list[str] = []

    async def get(key: str, *more: Any) -> Any:
        if key == merged and not seen:
            seen.append(key)
            await revoke(lake)
            await lake.store.delete([key])
        return await plain_get(key, *more)

    lake.store.get = get  # type: ignore[method-assign]
    with pytest.raises(LeaseLostError):
        await verify(lake.reading(clock=ManualClock()))
    assert seen


async def test_a_deleted_collection_has_nothing_to_verify(lake: UsedLake) -> None:
    await lake.filled()
    versions = lake.versions()
    await versions.load()
    await versions.commits.commit(Tombstone(TOKEN))
    with pytest.raises(ClosedError, match="was deleted"):
        await lake.verified()


async def test_the_hold_of_a_verification_is_written_again_before_its_lease_ends(lake: UsedLake) -> None:
    await lake.filled()
    seen: list[int] = []
    plain_get = lake.store.get
    merged = (await lake.head()).names()[0]

    async def get(key: str, *more: Any) -> Any:
        if key == merged:
            own = next(key for key in await lake.keys("readers/") if "r" * 32 not in key)
            for _ in range(200):
                await asyncio.sleep(0)
                seen.append(decode_hold((await plain_get(own)).data, U64, object_name="h").beat)
        return await plain_get(key, *more)

    lake.store.get = get  # type: ignore[method-assign]
    assert (await lake.verified()).clean
    assert seen[-1] > seen[0]
