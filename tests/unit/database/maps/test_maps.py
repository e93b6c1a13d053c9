"""Typed maps: keys, values, pages, and what is refused."""

from __future__ import annotations

import asyncio
import math
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

import slate_async as slate
from slate_async.database.maps.cursor import cursor_of
from slate_async.database.maps.key_codec import KeyCodec
from tests.engine import ManualClock, contents, memory_store, open_db


class Model(BaseModel):
    name: str
    price: int = 0


class Struct(msgspec.Struct):
    name: str
    price: int = 0


@dataclass
class Data:
    name: str
    price: int = 0


class Reversed:
    def encode(self, value: str) -> bytes:
        return value[::-1].encode()

    def decode(self, data: bytes) -> str:
        return data.decode()[::-1]


VALUES: list[tuple[Any, Any]] = [
    (Model, Model(name="a", price=7)),
    (Struct, Struct("a", 7)),
    (Data, Data("a", 7)),
    (bytes, b"\xff"),
    (dict[str, int], {"a": 7}),
    (list[str], ["a"]),
    (object, {"a": [None, 1.5, True]}),
    (Reversed(), "abc"),
]


@pytest.mark.parametrize(("kind", "value"), VALUES, ids=lambda part: str(part)[:30])
async def test_values_come_back(kind: Any, value: Any) -> None:
    async with open_db(memory_store()) as db:
        found = db.map("m", key=str, value=kind)
        await found.put("k", value)
        assert await found.get("k") == value
        assert await found.get_many(["none", "k"]) == [None, value]
        assert (await found.page()).items == [("k", value)]
        assert await found.update("k", lambda now: now) == value
        assert await found.update("none", lambda now: now) is None
        await found.delete("k")
        assert await contents(db) == {}


async def test_rows_lie_as_the_format_page_says() -> None:
    async with open_db(memory_store()) as db:
        await db.map("m", key=tuple[str, int], value=Model).put(("a", 1), Model(name="x"))
        await db.namespace("n").map("m", key=int, value=Struct).put(0, Struct("y"))
        assert await contents(db) == {
            b"\xfdm\0\x01\x02a\0\x15\x01": b'{"name":"x","price":0}',
            b"\xfen\0\xfdm\0\x01\x14": b'{"name":"y","price":0}',
        }
        await db.namespace("n").clear()
        assert set(await contents(db)) == {b"\xfdm\0\x01\x02a\0\x15\x01"}


async def test_updates_are_all_counted_and_puts_may_expect_absence() -> None:
    async with open_db(memory_store()) as db:
        found = db.map("m", key=int, value=int)
        await asyncio.gather(*(found.update(1, lambda now: (now or 0) + 1) for _ in range(50)))
        assert await found.get(1) == 50
        with pytest.raises(slate.ConflictError):
            await found.put(1, 2, if_absent=True)
        await found.put(2, 2, if_absent=True, ttl=5)
        assert await found.update(1, lambda now: None) is None
        assert await found.get(1) is None
        assert [key for key, _ in (await found.page()).items] == [2]


@given(
    st.sets(st.tuples(st.text("ab\0\xff", max_size=2), st.integers(-2, 300)), max_size=12),
    st.integers(1, 5),
    st.booleans(),
    st.none() | st.text("ab\0\xff", max_size=2),
)
def test_pages_give_each_row_once_in_order(
    keys: set[tuple[str, int]], limit: int, reverse: bool, first: str | None
) -> None:
    async def run() -> None:
        async with open_db(memory_store()) as db:
            found = db.map("m", key=tuple[str, int], value=bytes)
            for key in keys:
                await found.put(key, b"", await_durable=False)
            prefix = () if first is None else (first,)
            pages: list[slate.Page[tuple[str, int], bytes]] = []
            after = None
            while not pages or after is not None:
                page = await found.page(after=after, limit=limit, prefix=prefix, reverse=reverse)
                pages.append(page)
                after = page.next
            wanted = sorted((key for key in keys if first in (None, key[0])), reverse=reverse)
            assert [key for page in pages for key, _ in page.items] == wanted
            assert all(len(page.items) == limit for page in pages[:-1])
            assert len(pages) == max(1, -(-len(wanted) // limit))

    asyncio.run(run())


async def test_a_cursor_stays_good_while_rows_come_and_go() -> None:
    store = memory_store()
    async with open_db(store) as db:
        found = db.map("m", key=int, value=bytes)
        for number in range(0, 10, 2):
            await found.put(number, b"")
        page = await found.page(limit=2)
        await found.delete(2)
        await found.put(1, b"")
        await found.put(3, b"")
    async with open_db(store) as db:
        found = db.map("m", key=int, value=bytes)
        assert [key for key, _ in (await found.page(after=page.next)).items] == [3, 4, 6, 8]


async def test_other_cursors_are_refused() -> None:
    async with open_db(memory_store()) as db:
        found, other = (db.map(name, key=tuple[int, int], value=bytes) for name in "mn")
        for number in range(4):
            await found.put((1, number), b"")
        cursor = (await found.page(limit=2)).next
        assert cursor is not None
        forged = cursor_of(db.namespace("x").prefix, b"\x15\x01")
        for call in (
            lambda: other.page(after=cursor),
            lambda: found.page(after=cursor, reverse=True),
            lambda: found.page(after=cursor, prefix=(1,)),
            *(
                lambda text=text: found.page(after=text)
                for text in ("", "a", "\u00e9", cursor[:-1], cursor + "A", cursor + "=", " " + cursor, forged, 7, b"a",
                             "A" * 200_000, urlsafe_b64encode(b"\x02" + b"\0" * 9).decode())
            ),
        ):  # fmt: skip
            with pytest.raises(slate.InvalidError, match="after is"):
                await call()


@pytest.mark.parametrize("kind", [dict, list[int], tuple[()], tuple[int, ...], tuple[str, object], str | list[int]])
async def test_types_that_keys_cannot_have_are_refused(kind: Any) -> None:
    async with open_db(memory_store()) as db:
        with pytest.raises(slate.InvalidError, match="key"):
            db.map("m", key=kind, value=bytes)


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (int, 1, [True, 1.0, "1", None, (1,)]),
        (tuple[str], ("a",), ["a", ("a", "b"), (), (b"a",), ["a"]]),
        (tuple[str | None, bool], (None, True), [("a", 1), (1, True)]),
        (
            tuple[tuple[int, str], date],
            ((1, "a"), date(2026, 1, 1)),
            [((1,), date(2026, 1, 1)), ((1, "a"), datetime.now)],
        ),
        (UUID, UUID(int=1), [str(UUID(int=1))]),
        (float, 1.5, [1]),
    ],
)
async def test_keys_are_checked(kind: Any, good: Any, bad: list[Any]) -> None:
    async with open_db(memory_store()) as db:
        found = db.map("m", key=kind, value=bytes)
        await found.put(good, b"1")
        assert (await found.page()).items == [(good, b"1")]
        calls: list[Callable[[Any], Any]] = [found.get, found.delete, lambda key: found.put(key, b"2")]
        for key in bad:
            for call in calls:
                with pytest.raises(slate.InvalidError, match="a key of this map is"):
                    await call(key)
        assert await found.get(good) == b"1"


async def test_many_keys_come_from_anywhere() -> None:
    async with open_db(memory_store()) as db:
        found = db.map("m", key=int, value=bytes)
        await found.put(1, b"1")
        assert await found.get_many(key for key in (1, 2)) == [b"1", None]
        async with db.transaction() as tx:
            assert await found.within(tx).get_many(iter([2, 1])) == [None, b"1"]
        with pytest.raises(slate.InvalidError, match="get_many takes keys, not NoneType"):
            await found.get_many(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "key"),
    [(int, "a"), (datetime, datetime(2026, 1, 1)), (str, "\ud800"), (int, 256**255)],  # noqa: DTZ001 - refused
)
async def test_refused_keys_say_of_writes_that_nothing_was_applied(kind: Any, key: Any) -> None:
    async with open_db(memory_store()) as db:
        found = db.map("m", key=kind, value=bytes)
        async with db.transaction() as tx:
            within, batch = found.within(tx), found.within(slate.WriteBatch())
            writes: list[Callable[[], Any]] = [
                lambda: found.put(key, b""), lambda: found.delete(key), lambda: found.update(key, lambda _: b""),
                lambda: found.touch(key, ttl=5), lambda: within.put(key, b""), lambda: within.delete(key),
                lambda: within.update(key, lambda _: b""), lambda: batch.put(key, b""), lambda: batch.delete(key),
            ]  # fmt: skip
            for calls, outcome in (
                (writes, "not_applied"),
                ([lambda: found.get(key), lambda: found.get_many([key]), lambda: found.page(prefix=(key,))], None),
            ):
                for call in calls:
                    with pytest.raises(slate.InvalidError) as caught:
                        await call()
                    assert caught.value.outcome == outcome


class Given:
    """Values are bytes-like as they are."""

    def encode(self, value: Any) -> Any:
        return value

    def decode(self, data: bytes) -> Any:
        return data


async def test_plain_writes_keep_to_the_limits_and_lives_of_the_database() -> None:
    clock = ManualClock()
    async with open_db(memory_store(), clock=clock, max_key_bytes=16, max_value_bytes=8, default_ttl_ms=1000) as db:
        found = db.map("m", key=str, value=Given())
        kept = db.map("m", key=str, value=Given(), default_ttl=math.inf)
        await found.put("seen", b"")
        for value in (b"9" * 9, "text", 7, None):
            with pytest.raises(slate.InvalidError) as caught:
                await found.put("k", value)
            assert caught.value.outcome == "not_applied"
        for call in (
            lambda: found.put("k" * 13, b""),
            lambda: found.update("k" * 13, lambda _: b""),
            lambda: found.update("k", lambda _: b"9" * 9),
            lambda: found.put("k", b"", ttl=-1),
            lambda: found.put("k", b"", ttl="1"),
        ):
            with pytest.raises(slate.InvalidError) as caught:
                await call()
            assert caught.value.outcome == "not_applied"
        assert await found.get("k") is None
        await found.put("k", bytearray(b"8" * 8))
        await found.update("u", lambda _: memoryview(b"u"))
        for key, life in (("long", 5), ("ever", math.inf)):
            await found.put(key, b"", ttl=life, await_durable=False)
        await kept.put("kept", b"")
        await kept.update("too", lambda _: b"")
        clock.wall_ms += 2_000
        assert [await found.get(key) for key in ("k", "u", "seen", "long", "ever", "kept", "too")] == [
            *[None] * 3, *[b""] * 4
        ]  # fmt: skip
    for call in (lambda: found.put("k", b""), lambda: found.update("k", lambda _: b"")):
        with pytest.raises(slate.ClosedError) as closed:
            await call()
        assert closed.value.outcome == "not_applied"


PARTS: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    int: st.integers() | st.integers(-70_000, 70_000),
    bytes: st.binary(max_size=5),
    bool: st.booleans(),
    UUID: st.uuids(),
    (str | None): st.none() | st.just("a"),
}
KEYS = st.lists(st.sampled_from(list(PARTS)), min_size=1, max_size=4).flatmap(
    lambda kinds: st.tuples(st.just(tuple(kinds)), st.tuples(*(PARTS[kind] for kind in kinds)))
)


@given(KEYS)
def test_keys_of_a_map_are_packed_keys(drawn: tuple[tuple[Any, ...], tuple[Any, ...]]) -> None:
    kinds, key = drawn
    codec = KeyCodec[Any](tuple.__class_getitem__(kinds))
    packed = slate.keys.pack(*key)
    assert codec.pack(key) == codec.pack_to_write(key) == packed
    assert codec.unpack(packed) == key
    assert KeyCodec[Any](kinds[0]).pack(key[0]) == slate.keys.pack(key[0])
    for other in (key[:-1], (*key, 1), list(key), (*key[:-1], 1.5)):
        with pytest.raises(slate.InvalidError, match="a key of this map is"):
            codec.pack(other)


async def test_an_update_of_a_row_of_another_type_says_that_nothing_was_applied() -> None:
    async with open_db(memory_store()) as db:
        await db.map("m", key=int, value=bytes).put(1, b"no JSON")
        found = db.map("m", key=int, value=Model)
        with pytest.raises(slate.InvalidError, match="of another type") as caught:
            await found.update(1, lambda now: now)
        assert caught.value.outcome == "not_applied"
        with pytest.raises(slate.InvalidError, match="of another type") as caught:
            await found.get(1)
        assert caught.value.outcome is None


async def test_bad_input_is_refused_and_nothing_is_applied() -> None:
    async with open_db(memory_store()) as db:
        found = db.map("m", key=int, value=Model)
        typed = db.map("t", key=int, value=dict[str, int])
        for call in (
            lambda: found.put(1, {"name": "a"}),
            lambda: found.put(1, Struct("a")),
            lambda: found.update(1, lambda now: "a"),
            lambda: found.update(1, None),
            lambda: typed.put(1, {"a": "b"}),
            lambda: typed.put(1, [1]),
            lambda: db.map("b", key=int, value=bytes).put(1, "text"),
            lambda: found.page(limit=0),
            lambda: found.page(limit=10_001),
            lambda: found.page(limit=True),
            lambda: found.page(reverse=1),
            lambda: found.page(prefix=("a",)),
            lambda: found.page(prefix=(1, 2)),
            lambda: found.page(prefix=1),
        ):
            with pytest.raises(slate.InvalidError):
                await call()  # type: ignore[no-untyped-call]
        for name in ("", "a\0"):
            with pytest.raises(slate.InvalidError):
                db.map(name, key=int, value=bytes)
        with pytest.raises(slate.InvalidError, match="cannot be"):
            db.map("m", key=int, value=dict[bytes | int | str, int] | list[int] | set[int])  # type: ignore[arg-type]
        assert await contents(db) == {}


async def test_rows_of_another_type_are_named() -> None:
    async with open_db(memory_store()) as db:
        await db.map("m", key=str, value=bytes).put("k", b"no JSON")
        for kind in (Model, Struct, dict[str, int]):
            with pytest.raises(slate.InvalidError, match="row 'k' of map 'm' has a value of another type"):
                await db.map("m", key=str, value=kind).get("k")
        with pytest.raises(slate.InvalidError, match=r"a row of this map has a key of another type: \('k',\), not int"):
            await db.map("m", key=int, value=bytes).page()
