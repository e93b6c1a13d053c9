"""Indexes of maps: entries follow rows, unique ones refuse, and every view of a database has them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import slate_async as slate
from slate_async.database.maps.layout import layout_of
from tests.engine import ManualClock, contents, memory_store, open_db, open_reader
from tests.unit.database.maps.products import COLOR, SKU, Product, check, products, stored

PINNED = Path(__file__).parents[3] / "golden" / "map.txt"


async def test_rows_are_found_by_their_indexes(db: slate.Db) -> None:
    found = products(db, SKU, COLOR)
    assert await found.by("sku").get("a") is None
    assert (await found.by("color").page()).items == []
    for number in range(6):
        await found.put(number, Product(sku=f"s{number}", color="red" if number % 2 else "blue", price=number))
    await found.put(9, Product(sku=None, color="red", price=-1))
    await check(db)
    for flushed in (False, True):
        if flushed:
            await db.flush(l0=True)
        by_sku, by_color = found.by("sku"), found.by("color")
        assert await by_sku.get("s3") == await found.get(3)
        assert (await by_sku.key("s3"), await by_sku.key("none")) == (3, None)
        assert [key for key, _ in (await by_color.page(prefix=("red",))).items] == [9, 1, 3, 5]
        assert [key for key, _ in (await by_color.page(prefix=("red", 3))).items] == [3]
        assert [key for key, _ in (await by_color.page(reverse=True)).items] == [5, 3, 1, 9, 4, 2, 0]
        assert [key for key, _ in (await by_sku.page(limit=2, durable=True)).items] == [0, 1]
        pages, after = list[int](), None
        while True:
            page = await by_color.page(prefix=("red",), limit=3, after=after)
            pages += [key for key, _ in page.items]
            if (after := page.next) is None:
                break
        assert pages == [9, 1, 3, 5]


async def test_entries_follow_every_kind_of_write(db: slate.Db) -> None:
    found = products(db, SKU, COLOR)
    await found.put(1, Product(sku="a"))
    await found.put(2, Product(sku="b"), if_absent=True)
    with pytest.raises(slate.ConflictError) as caught:
        await found.put(2, Product(sku="c"), if_absent=True)
    assert caught.value.reason == "present"
    await found.put(1, Product(sku="c", color="blue"))
    await check(db)
    assert await found.by("sku").key("a") is None

    def dearer(product: Product | None) -> Product | None:
        return product and product.model_copy(update={"price": product.price + 1})

    assert await found.update(2, dearer) == Product(sku="b", price=1)
    assert await found.update(7, dearer) is None
    await asyncio.gather(*(found.update(2, dearer) for _ in range(30)))
    assert (await found.by("color").page(prefix=("red", 31))).items == [(2, Product(sku="b", price=31))]
    await check(db)
    assert await found.touch(1, ttl=1000)
    assert not await found.touch(7, ttl=1000)
    await found.delete(2)
    await found.delete(2)
    await check(db)
    assert await found.update(1, lambda product: None) is None
    assert (await stored(db)) == (set(), set())


async def test_a_unique_violation_names_index_and_key_and_changes_nothing(db: slate.Db) -> None:
    found = products(db, SKU, COLOR)
    await found.put(1, Product(sku="a"))
    await found.put(2, Product(sku="b"))
    before = await contents(db)
    calls: list[Callable[[], Coroutine[Any, Any, Any]]] = [
        lambda: found.put(3, Product(sku="a")),
        lambda: found.put(2, Product(sku="a")),
        lambda: found.update(2, lambda product: Product(sku="a")),
    ]
    for call in calls:
        with pytest.raises(
            slate.UniqueError, match="index 'sku' of map 'p' is unique, and row 1 has 'a' there"
        ) as caught:
            await call()
        error = caught.value
        assert (error.map_name, error.index, error.parts, error.holder) == ("p", "sku", ("a",), 1)
        assert (error.reason, error.outcome) == ("unique", "not_applied")
    assert await contents(db) == before
    await found.put(1, Product(sku="a", price=7))
    await found.delete(1)
    await found.put(3, Product(sku="a"))
    await check(db)


async def test_of_many_that_want_one_key_one_gets_it(db: slate.Db) -> None:
    found = products(db, SKU)
    made = await asyncio.gather(
        *(found.put(number, Product(sku=f"s{number % 5}")) for number in range(50)), return_exceptions=True
    )
    assert sum(isinstance(result, slate.UniqueError) for result in made) == 45
    assert sum(isinstance(result, slate.WriteHandle) for result in made) == 5
    assert len((await found.page()).items) == 5


async def test_entries_expire_with_their_rows() -> None:
    clock = ManualClock()
    async with open_db(memory_store(), clock=clock) as db:
        found = db.map("p", key=int, value=Product, indexes=[SKU, COLOR], default_ttl=10)
        await found.put(1, Product(sku="a"))
        await found.put(2, Product(sku="b"), ttl=100)
        clock.wall_ms += 11_000
        assert await found.by("sku").get("a") is None
        await found.put(3, Product(sku="a"))
        await check(db)
        await found.update(2, lambda product: product)
        assert await found.touch(3, ttl=30)
        clock.wall_ms += 11_000
        assert [key for key, _ in (await found.page()).items] == [3]
        await check(db)
        clock.wall_ms += 20_000
        assert await contents(db) != {}, "the catalogue stays"
        await check(db)


async def test_maps_in_transactions(db: slate.Db) -> None:
    found, plain = products(db, SKU, COLOR), db.map("q", key=str, value=int)
    async with db.transaction() as tx:
        rows, counts = found.within(tx), plain.within(tx)
        await rows.put(1, Product(sku="a"))
        assert await rows.get(1) == Product(sku="a")
        assert await rows.by("sku").key("a") == 1
        assert [key for key, _ in (await rows.by("color").page()).items] == [1]
        with pytest.raises(slate.UniqueError):
            await rows.put(2, Product(sku="a"))
        assert await rows.get_many([1, 2]) == [Product(sku="a"), None]
        await rows.put(3, Product(sku="b"))
        await rows.delete(1)
        await counts.put("n", 1)
        assert await counts.update("n", lambda now: (now or 0) + 1) == 2
        tx.put(b"raw", b"")
        with pytest.raises(slate.ConflictError):
            await rows.put(3, Product(sku="c"), if_absent=True)
        assert await found.get(3) is None, "nothing is applied before the commit"
    assert (await found.page()).items == [(3, Product(sku="b"))]
    assert (await plain.get("n"), await db.get(b"raw")) == (2, b"")
    await check(db)
    tx = db.transaction()
    await found.within(tx).put(4, Product(sku="d"))
    await found.put(5, Product(sku="d"))
    with pytest.raises(slate.ConflictError):
        await tx.commit()
    await check(db)
    async with db.namespace("n").transaction() as tx:
        assert await found.within(tx).by("sku").key("d") == 5, "whatever stands before the transaction's own keys"
        await found.within(tx).delete(5)
    await check(db)


async def test_maps_in_batches(db: slate.Db) -> None:
    found, plain = products(db, SKU, COLOR), db.map("q", key=str, value=int)
    batch = slate.WriteBatch()
    batch.put(b"raw", b"1")
    batch.put(b"gone", b"1", ttl=60)
    batch.delete(b"gone")
    found.within(batch).put(1, Product(sku="a"))
    found.within(batch).put(2, Product(sku="b"))
    found.within(batch).delete(1)
    plain.within(batch).put("n", 1)
    assert len(batch) == 7
    await db.write(batch)
    assert (await found.page()).items == [(2, Product(sku="b"))]
    assert (await plain.get("n"), await db.get(b"raw"), await db.get(b"gone")) == (1, b"1", None)
    await check(db)
    before = await contents(db)
    batch.clear()
    batch.put(b"raw", b"2")
    found.within(batch).put(3, Product(sku="c"))
    found.within(batch).put(4, Product(sku="b"))
    with pytest.raises(slate.UniqueError):
        await db.write(batch)
    assert await contents(db) == before
    inner = products(db.namespace("n"), SKU)
    batch.clear()
    batch.put(b"k", b"")
    inner.within(batch).put(1, Product(sku="x"))
    await db.namespace("n").write(batch)
    assert await inner.by("sku").key("x") == 1
    assert await db.namespace("n").get(b"k") == b""


async def test_maps_in_snapshots_and_readers() -> None:
    store = memory_store()
    async with open_db(store) as db:
        found = products(db, SKU, COLOR)
        inner = products(db.namespace("n"), SKU)
        await found.put(1, Product(sku="a"))
        await inner.put(7, Product(sku="a"))
        async with db.snapshot() as snapshot, open_reader(store) as reader:
            await found.put(1, Product(sku="b"))
            assert await found.within(snapshot).by("sku").key("a") == 1
            assert await found.within(snapshot).by("sku").key("b") is None
            view = reader.map("p", key=int, value=Product, indexes=[SKU])
            assert await view.by("sku").get("a") == Product(sku="a")
            await reader.refresh()
            assert (await view.by("sku").key("b"), await view.by("sku").key("a")) == (1, None)
            assert (await view.page()).items == [(1, Product(sku="b"))]
            of_namespace = reader.namespace("n").map("p", key=int, value=Product, indexes=[SKU])
            assert await of_namespace.by("sku").key("a") == 7
            with reader.snapshot() as earlier:
                await found.delete(1)
                await reader.refresh()
                assert await view.within(earlier).by("sku").key("b") == 1
                assert await view.get(1) is None
                with pytest.raises(slate.InvalidError, match="of its own database"):
                    found.within(earlier)


async def test_a_cleared_namespace_has_no_entries(db: slate.Db) -> None:
    space = db.namespace("n")
    found = products(space, SKU)
    await found.put(1, Product(sku="a"))
    await space.clear()
    assert await contents(db) == {}
    assert await found.by("sku").get("a") is None
    await found.put(2, Product(sku="a"))
    assert await found.by("sku").key("a") == 2


async def test_a_range_delete_takes_rows_entries_and_catalogue_in_one_step() -> None:
    async with open_db(memory_store()) as db:
        space = db.namespace("n")
        found = products(space, SKU)
        await found.put(1, Product(sku="a"))
        tx = db.transaction()
        await found.within(tx).put(2, Product(sku="b"))
        await space.delete_range(None, None)
        with pytest.raises(slate.ConflictError):
            await tx.commit()
        assert await contents(db) == {}
        assert await found.by("sku").get("a") is None
        await found.put(3, Product(sku="a"))
        assert await found.by("sku").key("a") == 3
        batch = slate.WriteBatch()
        batch.delete_range(b"a", b"b")
        found.within(batch).put(4, Product(sku="b"))
        with pytest.raises(slate.InvalidError, match="deletes no range of keys"):
            await db.write(batch)
        assert await found.get(4) is None


async def test_bad_input_is_refused(db: slate.Db) -> None:
    found = products(db, SKU, COLOR)
    await found.put(1, Product(sku="a"))
    before = await contents(db)
    for call in (
        lambda: slate.Index(""),
        lambda: slate.Index("a\0"),
        lambda: slate.Index("\ud800"),
        lambda: slate.Index("a" * 256),
        lambda: slate.Index(7),  # type: ignore[arg-type]
        lambda: slate.Index("a", 7),  # type: ignore[arg-type]
        lambda: slate.Index("a", unique=1),  # type: ignore[arg-type]
        lambda: slate.Index("a", version="1"),  # type: ignore[arg-type]
        lambda: products(db, SKU, SKU),
        lambda: products(db, slate.Index("none")),
        lambda: db.map("p", key=int, value=Product, indexes=SKU),  # type: ignore[call-overload]
        lambda: db.map("p", key=int, value=Product, indexes=["sku"]),  # type: ignore[list-item]
        lambda: found.by("price"),
        lambda: found.by(7),  # type: ignore[arg-type]
        lambda: found.within("tx"),  # type: ignore[call-overload]
        lambda: found.within(db),  # type: ignore[call-overload]
        lambda: found.put(1, "text"),  # type: ignore[arg-type]
        lambda: db.map("p", key=int, value=Product, default_ttl=-1),
    ):
        with pytest.raises(slate.InvalidError):
            call()
    broken = slate.Index[Product]("broken", lambda product: [product.sku])
    raises = slate.Index[Product]("raises", lambda product: 1 // 0)
    empty = slate.Index[Product]("empty", lambda product: ())
    long = slate.Index[Product]("long", lambda product: (product.sku or "") * 70_000)
    for index, text in (
        (broken, "index 'broken' of map 'm' makes no key of the value: a part of a key is"),
        (raises, "index 'raises' of map 'm' makes no key of the value: ZeroDivisionError"),
        (empty, "without parts"),
        (long, "65535"),
    ):
        other = db.map("m", key=int, value=Product, indexes=[index])
        async with db.transaction() as tx:
            with pytest.raises(slate.InvalidError, match=text):
                await other.within(tx).put(1, Product(sku="a"))
        with pytest.raises(slate.InvalidError, match=text):
            await other.put(1, Product(sku="a"))
        assert await other.get(1) is None
    for wait in (
        lambda: found.by("color").get("red"),
        lambda: found.by("sku").get(),
        lambda: found.by("sku").get(["a"]),
        lambda: found.by("sku").page(prefix="a"),
        lambda: found.by("sku").page(limit=0),
        lambda: found.by("sku").page(after="x"),
        lambda: found.build(progress=7),
        lambda: found.drop_index(7),
        lambda: found.put(1, Product(sku="b"), if_absent=1),
        lambda: found.put(1, Product(sku="b"), ttl=-1),
        lambda: found.touch(1),
        lambda: found.update(1, 7),
    ):
        with pytest.raises(slate.InvalidError):
            await wait()  # type: ignore[no-untyped-call]
    with pytest.raises(slate.NotFoundError):
        await found.drop_index("none")
    async with db.transaction(isolation="snapshot") as tx:
        assert await found.within(tx).get(1) == Product(sku="a")
        with pytest.raises(slate.InvalidError, match="serializable"):
            await found.within(tx).put(2, Product(sku="b"))
    async with open_db(memory_store()) as elsewhere:
        with pytest.raises(slate.InvalidError, match="not one of the database"):
            found.within(elsewhere.transaction())
        batch = slate.WriteBatch()
        found.within(batch).put(2, Product(sku="b"))
        with pytest.raises(slate.InvalidError, match="not one of the database"):
            await elsewhere.write(batch)
    left = {key: value for key, value in (await contents(db)).items() if not key.startswith(b"\xfdm")}
    assert left == before


async def test_a_catalogue_of_a_later_release_is_refused(db: slate.Db) -> None:
    key = layout_of(b"\xfdp\0").catalogue
    for data, text in ((b'{"version":2,"indexes":{}}', "version 2"), (b"?", "cannot be read")):
        await db.put(key, data)
        for found in (products(db), products(db, SKU)):
            with pytest.raises(slate.InvalidError, match=text):
                await found.put(1, Product(sku="a"))
    assert set(await contents(db)) == {key}


async def test_errors_of_reads_by_an_index_have_no_outcome() -> None:
    def refuses(product: Product) -> str:
        if product.color == "green":
            raise ValueError("green")
        return product.color

    async with open_db(memory_store()) as db:
        await products(db, SKU, COLOR).put(1, Product(sku="a", color="green"))
        await db.map("q", key=int, value=Product, indexes=[slate.Index("color")]).put(
            1, Product(sku="a", color="green")
        )
        reads: list[tuple[Callable[[], Any], str]] = [
            (lambda: products(db, SKU).by("sku").page(after="x"), "no cursor"),
            (lambda: products(db, slate.Index("sku", unique=True, version=2)).by("sku").get("a"), "is stored with"),
            (lambda: products(db, slate.Index("price")).by("price").page(), "is not built"),
            (
                lambda: db.map("q", key=int, value=Product, indexes=[slate.Index("color", refuses)]).by("color").page(),
                "makes no key",
            ),
        ]
        for read, text in reads:
            with pytest.raises(slate.InvalidError, match=text) as caught:
                await read()
            assert caught.value.outcome is None
        await db.put(layout_of(b"\xfdp\0").catalogue, b"?")
        for read in (products(db, SKU).by("sku").page, lambda: products(db, SKU).by("sku").get("a")):
            with pytest.raises(slate.InvalidError, match="cannot be read") as caught:
                await read()
            assert caught.value.outcome is None
        for make in (db.namespace, lambda name: db.map(name, key=int, value=bytes)):
            with pytest.raises(slate.InvalidError, match="a name has") as caught:
                make("")
            assert caught.value.outcome is None


async def test_stored_bytes_and_cursors_are_pinned() -> None:
    async with open_db(memory_store()) as db:
        found = products(db, SKU, COLOR)
        await found.put(7, Product(sku="a\0"))
        await found.put(300, Product(sku="b", color="blue", price=-1))
        cursors = [
            (await found.page(limit=1)).next,
            (await found.page(limit=1, reverse=True)).next,
            (await found.by("sku").page(limit=1)).next,
            (await found.by("color").page(limit=1)).next,
        ]
        stored_rows = [f"{key.hex()} {value.hex()}" for key, value in sorted((await contents(db)).items())]
        assert PINNED.read_text(encoding="utf-8").splitlines() == [*stored_rows, *map(str, cursors)]
