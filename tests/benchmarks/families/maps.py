"""Typed maps in memory, beside the same keys and values packed and encoded by hand; and what an index costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

import slate_async as slate
from tests.benchmarks.engines import SlateAsync, taking_turns
from tests.benchmarks.engines.protocol import started
from tests.benchmarks.family import Family
from tests.benchmarks.goals import OURS, Goal
from tests.benchmarks.rounds import Turn, require

PUT, GET, UPDATE, PAGE = "put", "get", "update", "pages of 100"
BY_HAND, INDEXED, BY_INDEX = "{}, packed and encoded by hand", "{}, with a unique index", "get by a unique index"
PREFIX = b"\xfdraw\0\x01"
PAGE_ROWS = 100


class Product(msgspec.Struct):
    name: str
    color: str
    price: int


Key = tuple[str, int]
Rows = Sequence[tuple[Key, Product]]


def rows_of(count: int, seed: int) -> list[tuple[Key, Product]]:
    """Rows in an order that is not that of their keys."""
    return [
        ((f"shelf {number * 7 % 10}", number * 7919 % count), Product(f"product {seed} {number}", "red", number))
        for number in range(count)
    ]


class ByHand:
    """What a program does that has no maps."""

    def __init__(self, db: slate.Db) -> None:
        self._db = db
        self._encode, self._decode = msgspec.json.Encoder().encode, msgspec.json.Decoder(Product).decode

    async def put_all(self, rows: Rows) -> None:
        put, pack, encode = self._db.put, slate.keys.pack, self._encode
        for key, value in rows:
            await put(PREFIX + pack(*key), encode(value), await_durable=False)

    async def get_all(self, rows: Rows) -> list[Product | None]:
        get, pack, decode = self._db.get, slate.keys.pack, self._decode
        found: list[Product | None] = []
        for key, _ in rows:
            data = await get(PREFIX + pack(*key))
            found.append(None if data is None else decode(data))
        return found

    async def update_all(self, rows: Rows) -> None:
        update, pack, encode, decode = self._db.update, slate.keys.pack, self._encode, self._decode

        def dearer(data: bytes | None) -> bytes:
            assert data is not None
            return encode(changed(decode(data)))

        for key, _ in rows:
            await update(PREFIX + pack(*key), dearer, await_durable=False)

    async def pages(self) -> list[tuple[Any, Product]]:
        found: list[tuple[Any, Product]] = []
        start, end, unpack = PREFIX, PREFIX + b"\xff", slate.keys.unpack
        while True:
            rows = [row async for row in self._db.scan(start, end, limit=PAGE_ROWS)]
            found += [(unpack(key[len(PREFIX) :]), self._decode(value)) for key, value in rows]
            if len(rows) < PAGE_ROWS:
                return found
            start = rows[-1][0] + b"\0"


class ByMap:
    """The same with a map."""

    def __init__(self, found: slate.Map[Key, Product]) -> None:
        self.map = found

    async def put_all(self, rows: Rows) -> None:
        put = self.map.put
        for key, value in rows:
            await put(key, value, await_durable=False)

    async def get_all(self, rows: Rows) -> list[Product | None]:
        get = self.map.get
        return [await get(key) for key, _ in rows]

    async def update_all(self, rows: Rows) -> None:
        update = self.map.update

        def dearer(product: Product | None) -> Product:
            assert product is not None
            return changed(product)

        for key, _ in rows:
            await update(key, dearer, await_durable=False)

    async def pages(self) -> list[tuple[Any, Product]]:
        found: list[tuple[Any, Product]] = []
        after: str | None = None
        while True:
            page = await self.map.page(limit=PAGE_ROWS, after=after)
            found += page.items
            if (after := page.next) is None:
                return found


def changed(product: Product) -> Product:
    return Product(product.name, product.color, product.price + 1)


async def measure(turn: Turn, way: ByHand | ByMap, rows: Rows, name: Callable[[str], str]) -> None:
    count = len(rows)
    with turn.timed(name(PUT), OURS, count):
        await way.put_all(rows)
    with turn.timed(name(GET), OURS, count):
        found = await way.get_all(rows)
    require(found == [value for _, value in rows], OURS, name(GET))
    with turn.timed(name(UPDATE), OURS, count):
        await way.update_all(rows)
    with turn.timed(name(PAGE), OURS, count):
        pages = await way.pages()
    require(pages == sorted((key, changed(value)) for key, value in rows), OURS, name(PAGE))


async def one_round(turn: Turn) -> None:
    rows = rows_of(turn.plan.choose(200, 20_000, 50_000), turn.number)
    few = rows[: turn.plan.choose(100, 5_000, 10_000)]
    for kind in taking_turns(turn, SlateAsync):
        for by_hand in (False, True) if turn.number % 2 else (True, False):
            async with started(kind) as engine:
                way = ByHand(engine.db) if by_hand else ByMap(engine.db.map("raw", key=Key, value=Product))
                await measure(turn, way, rows, BY_HAND.format if by_hand else str)
        async with started(kind) as engine:
            indexed = engine.db.map("raw", key=Key, value=Product, indexes=[slate.Index("name", unique=True)])
            with turn.timed(INDEXED.format(PUT), OURS, len(few)):
                await ByMap(indexed).put_all(few)
            reads = indexed.by("name")
            with turn.timed(BY_INDEX, OURS, len(few)):
                found = [await reads.get(value.name) for _, value in few]
            require(found == [value for _, value in few], OURS, BY_INDEX)


FAMILY = Family(
    "maps",
    "Typed maps",
    tuple(Goal(15, measure, 0.83, (BY_HAND.format(measure), OURS)) for measure in (PUT, GET, UPDATE, PAGE)),
    one_round,
    notes=(
        "Keys are a text and an integer, values a msgspec struct as JSON; nothing waits for durability.",
        "A put to a map with an index is a transaction: it reads row and entry, and writes both.",
    ),
)
