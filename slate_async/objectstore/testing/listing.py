"""Listings: byte order across folders, prefixes, starting points, more than a page."""

from __future__ import annotations

from slate_async.objectstore.testing.base import ConformanceBase, keys_of

KEYS = ["a", "a!", "a-b", "a.b/c", "a/", "a/0", "a/b", "a/b-c", "a/b/c", "a0", "ab", "b", "b/x/y/z", "log/0", "log/1"]


class ListingTests(ConformanceBase):
    """`list` and deletes of many."""

    async def test_prefix_and_start_after(self) -> None:
        async with self.opened() as store:
            keys = [key for key in KEYS if not key.endswith("/")]
            await self.put_many(store, keys)
            starts = ["", "a", "a-", "a/", "a/b", "a/b/", "a/b~", "aa", "b", "log", "log/0", "z"]
            for prefix in ["", "a", "a/", "a/b", "a/b/", "a.", "l", "log/", "log/1", "log/12", "nothing", "a!"]:
                for start in starts:
                    expected = [key for key in keys if key.startswith(prefix) and key > start]
                    assert await keys_of(store, prefix, start) == expected, (prefix, start)

    async def test_listed_information(self) -> None:
        async with self.opened() as store:
            etag = await store.put("folder/key", b"12345", metadata={"a": "b"})
            infos = [info async for info in store.list("folder/")]
            head = await store.head("folder/key")
            assert [(info.key, info.size, info.etag, dict(info.metadata)) for info in infos] == [
                ("folder/key", 5, etag, {})
            ]
            assert abs(infos[0].last_modified_ms - head.last_modified_ms) < 1000

    async def test_more_than_a_page_then_delete(self) -> None:
        async with self.opened() as store:
            folders = ("n/", "n-", "n.d/")
            keys = sorted(f"{folders[number % 3]}{number:06}" for number in range(self.many_keys))
            await self.put_many(store, keys)
            assert await keys_of(store) == keys
            middle = keys[len(keys) // 2]
            assert await keys_of(store, start_after=middle) == keys[len(keys) // 2 + 1 :]
            assert await keys_of(store, "n/") == [key for key in keys if key.startswith("n/")]
            first = []
            async for info in store.list("n"):
                first.append(info.key)
                if len(first) == 3:
                    break
            assert first == keys[:3]
            await store.delete([*keys[1:], "n/missing"])
            assert await keys_of(store) == keys[:1]

    async def test_listing_sees_what_was_written_before(self) -> None:
        async with self.opened() as store:
            for number in range(20):
                await store.put(f"log/{number:020}", b"")
                assert await keys_of(store, "log/", f"log/{max(0, number - 1):020}") == (
                    [f"log/{number:020}"] if number else []
                )
                assert len(await keys_of(store, "log/")) == number + 1
