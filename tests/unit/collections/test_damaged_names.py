"""What every error of damage says: which collection, and which object, once each."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import pytest

from slate_async.collections.collection import Collection
from slate_async.collections.controller import memory
from slate_async.collections.lake import Lake
from slate_async.collections.open import open_collections
from slate_async.errors import CorruptionError, SlateError
from slate_async.settings.collections import CollectionSettings
from tests.engine import StoreInHand, memory_store
from tests.unit.collections.lake import fast_runtime

SMALL_PARTS = CollectionSettings(part_bytes=64 << 10)
KINDS = ("pending batch", "pending part", "merged batch", "merged part", "hold")


async def opened(store: StoreInHand) -> Lake:
    return await open_collections(
        store, name="memory://lake", settings=SMALL_PARTS, controller=False, runtime=fast_runtime()
    )


async def keys(store: StoreInHand) -> list[str]:
    return [info.key async for info in store.list("orders/1/")]


def kind_of(key: str) -> str | None:
    is_part = ".p0" in key.rsplit("/", 1)[-1]
    for folder, kind in (("pending_batches", "pending"), ("merged_batches", "merged")):
        if folder in key:
            return f"{kind} {'part' if is_part else 'batch'}"
    return "hold" if "/readers/" in key else None


@pytest.fixture(params=["definite", "compare"])
async def used(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> StoreInHand:
    """Batches with parts and without, merged and pending, and a critical hold."""
    monkeypatch.setattr(memory, "PART_BYTES", 64 << 10)
    store, noise = StoreInHand(memory_store()), random.Random(5)

    def large(time: int) -> list[tuple[bytes, int, int]]:
        return [(noise.randbytes(8), time, 1) for _ in range(70_000 if time == 2 else 20_000)]  # beyond one row group

    async with await opened(store) as lake:
        await (await lake.create("orders", appends=request.param)).expire()
        orders = lake.collection("orders")
        await orders.critical("billing")
        for times in ((1, 2), (11, 12)):
            async with orders.writer() as writer:
                await writer.append([(b"a", times[0], 1)], upper=times[0] + 1)
                async with writer.batch(upper=times[1] + 1) as batch:
                    await batch.add(large(times[1]))
            if times[0] == 1:
                async with orders.controller(background=False) as controller:
                    await controller.settle()
    return store


async def read(orders: Collection) -> None:
    async with orders.reader() as reader:
        await (await reader.snapshot(12)).to_arrow()


async def split(orders: Collection) -> None:
    async with orders.reader() as reader:
        for piece in await (await reader.snapshot(12)).splits(2):
            await piece.to_arrow()


async def listen(orders: Collection) -> None:
    async with orders.reader() as reader:
        async for delta in reader.listen(as_of=2):
            if delta.upper.elements[0] == (13,):
                return


async def write(orders: Collection) -> None:
    async with orders.writer() as writer:
        await writer.append([(b"b", 13, 1)], lower=13, upper=14)


async def control(orders: Collection) -> None:
    async with orders.controller(background=False) as controller:
        await controller.settle()
        await controller.merge(everything=True)


async def pin(orders: Collection) -> None:
    await orders.critical("billing")


async def expire(orders: Collection) -> None:
    await orders.expire_reader("billing")


CALLS: tuple[Callable[[Collection], Awaitable[None]], ...] = (read, split, listen, write, control, pin, expire)


async def raised_by(store: StoreInHand, call: Callable[[Collection], Awaitable[None]]) -> CorruptionError | None:
    """The damage that ``call`` meets in a process of its own."""
    lake = await opened(store)
    try:
        await call(lake.collection("orders"))
    except SlateError as error:
        found: BaseException | None = error
        while found is not None and not isinstance(found, CorruptionError):
            found = found.__cause__
        return found
    finally:
        await lake.close()
    return None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["flipped", "cut off", "of another name"])
async def test_damage_names_the_collection_and_the_object_once(used: StoreInHand, kind: str, how: str) -> None:
    before = {key: bytes((await used.get(key)).data) for key in await keys(used)}
    damaged = [key for key in before if kind_of(key) == kind]
    assert damaged
    for key in damaged:
        data = before[key]
        others = [bytes_ for other, bytes_ in before.items() if kind_of(other) == kind and bytes_ != data]
        if how == "of another name" and not others:
            return
        await used.put(key, {"flipped": data[:-1] + bytes([data[-1] ^ 1]), "cut off": data[:5]}.get(how) or others[0])
    met = [error for call in CALLS if (error := await raised_by(used, call)) is not None]
    assert met, "nobody noticed"
    for error in met:
        text = str(error)
        assert error.object_name in damaged
        assert text.startswith(f"{error.object_name} at byte "), text
        assert (text.count("orders"), text.count(error.object_name), text.count(" at byte ")) == (1, 1, 1), text


@pytest.mark.parametrize("kind", ["pending part", "merged batch", "merged part"])
async def test_a_missing_object_is_named_once(used: StoreInHand, kind: str) -> None:
    missing = [key for key in await keys(used) if kind_of(key) == kind]
    await used.delete(missing)
    met = {call.__name__: error for call in (read, split, control) if (error := await raised_by(used, call))}
    assert {"read", "control"} <= met.keys()
    for error in met.values():
        assert error.object_name in missing
        assert str(error).count("orders") == 1, str(error)


async def test_a_report_names_objects_as_they_are_called_in_the_folder_of_the_life(used: StoreInHand) -> None:
    for key in await keys(used):
        if kind_of(key) in KINDS:
            await used.put(key, b"damaged")
    async with await opened(used) as lake:
        report = await lake.collection("orders").verify()
    assert report.findings
    for finding in report.findings:
        assert finding.object_name.split("/")[0] in ("pending_batches", "merged_batches", "readers"), finding
        assert "orders" not in finding.what
