"""Indexes are built beside writers and go on where they stopped; they are dropped, and built anew."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import slate_async as slate
from slate_async.database.maps import build
from tests.engine import ManualClock, contents, memory_store, open_db
from tests.unit.database.maps.products import COLOR, SKU, Product, check, products, stored


async def test_an_index_is_built_beside_writers(db: slate.Db, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "STEP_ROWS", 7)
    plain = products(db)
    for number in range(60):
        await plain.put(number, Product(sku=f"s{number}"), await_durable=False)
    found = products(db, SKU, COLOR)
    with pytest.raises(slate.InvalidError, match="index 'sku' of map 'p' is not built: call build"):
        await found.by("sku").get("s1")
    seen = list[slate.BuildProgress]()
    stop = asyncio.Event()

    async def write(first: int) -> None:
        at = first
        while not stop.is_set():
            at = (at * 7 + 3) % 90
            if at % 3:
                await found.put(at, Product(sku=f"s{at}", price=at), await_durable=False)
            elif at % 2:
                await found.delete(at, await_durable=False)
            else:
                await found.update(at, lambda product: product and product.model_copy(update={"color": "blue"}))
            await asyncio.sleep(0)

    writers = [asyncio.create_task(write(number)) for number in range(4)]
    assert await found.build(progress=seen.append) >= 60
    stop.set()
    await asyncio.gather(*writers)
    assert {step.index for step in seen} == {"sku", "color"}
    assert [step.rows for step in seen if step.index == "sku"][:2] == [7, 14]
    await check(db)
    assert await found.build() == 0
    assert len((await found.by("sku").page(limit=1000)).items) == len((await found.page(limit=1000)).items)
    with pytest.raises(slate.InvalidError, match="map 'p' has an index 'color': give it in indexes="):
        await plain.put(1, Product(sku="x"))


async def test_a_build_goes_on_where_it_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "STEP_ROWS", 10)
    store = memory_store()
    async with open_db(store) as db:
        for number in range(35):
            await products(db).put(number, Product(sku=f"s{number}"), await_durable=False)

        def stops(step: slate.BuildProgress) -> None:
            if step.rows == 20:
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await products(db, SKU).build(progress=stops)
    async with open_db(store) as db:
        found = products(db, SKU)
        await found.put(3, Product(sku="new"))
        assert await found.build() == 15
        assert await found.by("sku").key("new") == 3
        entries, wanted = await stored(db)
        assert entries == {entry for entry in wanted if b"sku" in entry}
        assert not [key for key in await contents(db) if key.startswith(b"\xfdp\0\x04")]


async def test_a_build_finds_two_rows_of_one_key_and_goes_on_once_one_has_changed(db: slate.Db) -> None:
    plain = products(db)
    await plain.put(1, Product(sku="a"))
    await plain.put(2, Product(sku="a"))
    found = products(db, SKU)
    for _ in range(2):
        with pytest.raises(slate.UniqueError, match="row 1 has 'a' there"):
            await found.build()
    await found.put(2, Product(sku="b"))
    assert await found.build() == 2
    assert (await found.by("sku").key("a"), await found.by("sku").key("b")) == (1, 2)


async def test_a_build_gives_rows_that_expire_entries_that_are_not_shown_longer() -> None:
    clock = ManualClock()
    async with open_db(memory_store(), clock=clock) as db:
        await products(db).put(1, Product(sku="a"), ttl=10)
        found = products(db, SKU)
        await found.build()
        assert await found.by("sku").key("a") == 1
        clock.wall_ms += 11_000
        assert await found.by("sku").key("a") is None
        assert (await found.by("sku").page()).items == []
        await found.put(1, Product(sku="b"))
        assert await found.by("sku").key("a") is None, "the entry that is left over is not the row's"
        await found.put(2, Product(sku="a"))
        assert await found.by("sku").key("a") == 2
        clock.wall_ms += 100_000
        assert await found.by("sku").key("b") == 1


async def test_an_index_is_dropped_and_built_anew(db: slate.Db, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "STEP_ROWS", 10)
    found = products(db, SKU, COLOR)
    for number in range(25):
        await found.put(number, Product(sku=f"s{number}"), await_durable=False)
    changed = slate.Index[Product]("sku", lambda product: (product.sku or "").upper() or None, unique=True, version=2)
    with pytest.raises(slate.InvalidError, match="stored with unique=True and version=1, and declared with"):
        await products(db, changed, COLOR).put(1, Product(sku="a"))
    with pytest.raises(slate.InvalidError, match="stored with"):
        await products(db, changed, COLOR).by("sku").get("S1")
    assert await found.drop_index("sku") == 25
    await products(db, COLOR).put(1, Product(sku="x"))
    with pytest.raises(slate.NotFoundError, match="map 'p' has no index 'sku'"):
        await found.drop_index("sku")
    again = products(db, changed, COLOR)
    assert await again.build() == 25
    assert await again.by("sku").key("X") == 1
    assert await again.drop_index("color") == 25
    assert await again.drop_index("sku") == 25
    await products(db).put(1, Product(sku="y"))
    assert {key[:4] for key in await contents(db)} == {b"\xfdp\0\x01"}


async def test_a_drop_that_stopped_is_finished(db: slate.Db, monkeypatch: pytest.MonkeyPatch) -> None:
    found = products(db, SKU)
    await found.put(1, Product(sku="a"))
    step = build.Building._drop_step

    async def fails(self: Any, tx: slate.Transaction, name: str) -> int:
        if deleted := await step(self, tx, name):
            return deleted
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(build.Building, "_drop_step", fails)
        with pytest.raises(ZeroDivisionError):
            await found.drop_index("sku")
    with pytest.raises(slate.InvalidError, match="is being dropped; finish that with drop_index"):
        await found.put(2, Product(sku="b"))
    await products(db).put(2, Product(sku="b"))
    assert await products(db).drop_index("sku") == 0
    await found.put(3, Product(sku="c"))
    await found.build()
    assert await found.by("sku").key("b") == 2


async def test_two_drops_at_once_leave_an_index_that_was_registered_anew(
    db: slate.Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "STEP_ROWS", 2)
    found = products(db, SKU)
    for number in range(5):
        await found.put(number, Product(sku=f"s{number}"))
    building, marked, other = found._building, asyncio.Event(), asyncio.Event()
    step = building._drop_step

    async def slow(tx: slate.Transaction, name: str) -> int:
        marked.set()
        await other.wait()
        return await step(tx, name)

    monkeypatch.setattr(building, "_drop_step", slow)
    begun = asyncio.create_task(found.drop_index("sku"))
    await marked.wait()
    again = products(db, SKU)
    assert await again.drop_index("sku") == 5
    assert await again.build() == 5
    other.set()
    assert await begun == 0
    with pytest.raises(slate.UniqueError):
        await again.put(9, Product(sku="s1"))


async def test_no_plain_write_comes_after_the_registration(db: slate.Db) -> None:
    plain, found = products(db), products(db, SKU)
    await plain.put(0, Product(sku="first"))
    await plain.delete(0)
    late = plain.put(1, Product(sku="late"))
    begun = [asyncio.ensure_future(plain.put(number, Product(sku=f"s{number}"))) for number in range(2, 6)]
    await asyncio.sleep(0)
    await found.put(9, Product(sku="nine"))
    with pytest.raises(slate.InvalidError, match="has an index 'sku'"):
        await late
    await asyncio.gather(*begun)
    await found.build()
    for number in range(2, 6):
        assert await found.by("sku").key(f"s{number}") == number
