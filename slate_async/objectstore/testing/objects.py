"""Single objects: writing, reading whole and in part, metadata, deletion, what is refused."""

from __future__ import annotations

import asyncio

from slate_async.errors import InvalidError
from slate_async.objectstore.protocol import (
    CREATE,
    ByteRange,
    Match,
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    Span,
    Suffix,
)
from slate_async.objectstore.testing.base import ConformanceBase, keys_of

DATA = bytes(range(256)) * 4
UNUSUAL_KEYS = ["with space", "a%41", "a%2Fb", "%tmp/x", "%cas", "a+b", "a&b=c", "a?b", "a#b", "{a}^`|<b>", "[a]*", "~"]
UNUSUAL_KEYS += ["'\"", "a:b;c,d@e!$()", "-", ".hidden", "a.b..c", "c/" * 100 + "c", "d" * 200]


class ObjectTests(ConformanceBase):
    """What one caller sees."""

    async def test_put_then_get(self) -> None:
        async with self.opened() as store:
            etag = await store.put("a/b", DATA)
            result = await store.get("a/b")
            assert (result.data, result.offset) == (DATA, 0)
            assert (result.info.key, result.info.size, result.info.etag) == ("a/b", len(DATA), etag)
            assert result.info.last_modified_ms > 0

    async def test_bodies_of_all_shapes(self) -> None:
        async with self.opened() as store:
            changing = bytearray(b"before")
            await store.put("array", changing)
            changing[:] = b"after!"
            await store.put("view", memoryview(DATA)[::2])
            await store.put("parts", [b"one", memoryview(b"two"), bytearray(b"three")])
            await store.put("empty", b"")
            large = [bytes([number]) * 40_000 for number in range(50)]
            await store.put("large parts", large)
            assert (await store.get("large parts")).data == b"".join(large)
            assert (await store.get("array")).data == b"before"
            assert (await store.get("view")).data == DATA[::2]
            assert (await store.get("parts")).data == b"onetwothree"
            assert (await store.get("empty")).data == b""

    async def test_overwrite_replaces_all(self) -> None:
        async with self.opened() as store:
            first = await store.put("key", b"first, and longer", metadata={"a": "1", "b": "2"})
            second = await store.put("key", b"second", metadata={"a": "3"})
            result = await store.get("key")
            assert first != second
            assert (result.data, dict(result.info.metadata)) == (b"second", {"a": "3"})
            assert result.info.etag == second

    async def test_create_and_match(self) -> None:
        async with self.opened() as store:
            with self.refused(ObjectChangedError):
                await store.put("key", b"0", mode=Match('"0123456789abcdef0123456789abcdef"'))
            first = await store.put("key", b"1", mode=CREATE)
            with self.refused(ObjectExistsError):
                await store.put("key", b"2", mode=CREATE)
            second = await store.put("key", b"3", mode=Match(first))
            with self.refused(ObjectChangedError):
                await store.put("key", b"4", mode=Match(first))
            assert (await store.get("key")).data == b"3"
            await store.delete(["key"])
            with self.refused(ObjectChangedError):
                await store.put("key", b"5", mode=Match(second))
            await store.put("key", b"6", mode=CREATE)
            assert (await store.get("key")).data == b"6"

    async def test_etags_agree(self) -> None:
        async with self.opened() as store:
            etag = await store.put("key", DATA)
            listed = [info.etag async for info in store.list()]
            head = await store.head("key")
            part = await store.get("key", Span(1, 2))
            assert [etag, head.etag, part.info.etag] == [etag] * 3
            assert listed == [etag]
            await store.put("key", b"more", mode=Match(head.etag))

    async def test_metadata_is_kept(self) -> None:
        async with self.opened() as store:
            metadata = {"epoch": "17", "crc32c-of-body": "00ff a-B_c%d=e;f", "x1": "~!"}
            etag = await store.put("key", b"body", mode=CREATE, metadata=metadata)
            assert dict((await store.head("key")).metadata) == metadata
            assert dict((await store.get("key")).info.metadata) == metadata
            assert dict((await store.get("key", Span(1, 1))).info.metadata) == metadata
            await store.put("key", b"body 2", mode=Match(etag), metadata={"epoch": "18"})
            assert dict((await store.head("key")).metadata) == {"epoch": "18"}
            await store.put("key", b"body 3")
            assert dict((await store.head("key")).metadata) == {}

    async def test_ranges(self) -> None:
        async with self.opened() as store:
            await store.put("key", DATA)
            size = len(DATA)
            cases: list[tuple[ByteRange, int, int]] = [
                (Span(0, 1), 0, 1),
                (Span(10, 20), 10, 30),
                (Span(0, size), 0, size),
                (Span(size - 1, 1), size - 1, size),
                (Span(size - 5, 100), size - 5, size),
                (Suffix(1), size - 1, size),
                (Suffix(size), 0, size),
                (Suffix(size + 100), 0, size),
            ]
            for wanted, start, end in cases:
                result = await store.get("key", wanted)
                assert (result.offset, result.data) == (start, DATA[start:end]), wanted
                assert result.info.size == size

    async def test_ranges_that_cannot_be_read(self) -> None:
        async with self.opened() as store:
            await store.put("key", DATA)
            await store.put("empty", b"")
            size = len(DATA)
            wrong: list[ByteRange] = [Span(size, 1), Span(size + 50, 10), Span(-1, 5), Span(0, 0), Suffix(0)]
            for wanted in wrong:
                with self.refused(InvalidError):
                    await store.get("key", wanted)
            with self.refused(InvalidError):
                await store.get("empty", Span(0, 1))
            assert (await store.get("empty", Suffix(10))).data == b""

    async def test_missing_objects(self) -> None:
        async with self.opened() as store:
            await store.put("there/below", b"")
            for key in ("missing", "there", "there/below/that", "there/below2"):
                with self.refused(ObjectNotFoundError):
                    await store.get(key)
                with self.refused(ObjectNotFoundError):
                    await store.get(key, Span(0, 1))
                with self.refused(ObjectNotFoundError):
                    await store.get(key, Suffix(1))
                with self.refused(ObjectNotFoundError):
                    await store.head(key)

    async def test_a_key_may_be_the_folder_of_another(self) -> None:
        async with self.opened() as store:
            keys = ["a", "a/a", "a/a/a", "a.obj", "a.obj/b", "a.obj.obj"]
            for key in keys:
                await store.put(key, key.encode())
            assert [(await store.get(key)).data.decode() for key in keys] == keys
            assert await keys_of(store) == sorted(keys)

    async def test_unusual_keys(self) -> None:
        async with self.opened() as store:
            keys = sorted(UNUSUAL_KEYS)
            for key in keys:
                await store.put(key, key.encode(), mode=CREATE)
            assert await keys_of(store) == keys
            for key in keys:
                assert (await store.get(key)).data.decode() == key
            await store.delete(keys)
            assert await keys_of(store) == []

    async def test_wrong_keys_and_metadata_are_refused(self) -> None:
        async with self.opened() as store:
            for key in ("", "/a", "a/", "a//b", "./a", "a/..", "a\\b", "a\nb", "ä", "k" * 201, "k/" * 450 + "k"):
                with self.refused(InvalidError):
                    await store.put(key, b"")
                with self.refused(InvalidError):
                    await store.get(key)
                with self.refused(InvalidError):
                    await store.delete([key])
            for name, value in (("A", "x"), ("1", "x"), ("a_b", "x"), ("", "x"), ("a", ""), ("a", " x"), ("a", "ü")):
                with self.refused(InvalidError):
                    await store.put("key", b"", metadata={name: value})
            with self.refused(InvalidError):
                await store.put("key", b"", metadata={"a": "x" * 2048})
            assert await keys_of(store) == []

    async def test_delete(self) -> None:
        async with self.opened() as store:
            await self.put_many(store, ["a", "a/b", "a-b", "c"])
            await store.delete([])
            await store.delete(["a", "missing", "c", "also/missing"])
            assert await keys_of(store) == ["a-b", "a/b"]
            await store.delete(["a", "a/b", "a-b"])
            assert await keys_of(store) == []

    async def test_large_object(self) -> None:
        async with self.opened() as store:
            body = DATA * (self.large_bytes // len(DATA))
            etag = await store.put("large", body, mode=CREATE)
            assert (await store.get("large")).data == body
            assert (await store.get("large", Suffix(5000))).data == body[-5000:]
            await store.put("large", body[:-1], mode=Match(etag))
            assert (await store.head("large")).size == len(body) - 1

    async def test_close_is_idempotent(self) -> None:
        store = await self.make_store()
        await asyncio.gather(store.close(), store.close())
        await store.close()
