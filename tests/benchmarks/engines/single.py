"""Engines one operation at a time, as a service's tasks use them, opened where they were filled with a cache of a given
size."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, ClassVar, Protocol, Self, TypeVar

import slate_async
from tests.benchmarks.engines.ours import SlateAsync
from tests.benchmarks.engines.protocol import Engine
from tests.benchmarks.engines.rocks import Rocks
from tests.benchmarks.engines.slatedb import SlateDB
from tests.benchmarks.rows import Pair


class SingleOperations(Engine, Protocol):
    """One operation a call. ``cache_bytes`` is what is cached of blocks, of those that are opened from now on."""

    cache_bytes: ClassVar[int]

    async def get_one(self, key: bytes) -> bytes | None:
        """The value of ``key``."""

    async def put_one(self, key: bytes, value: bytes) -> None:
        """Put, not waiting for durability."""

    async def scan_one(self, start: bytes, rows: int) -> Sequence[Any]:
        """At most so many rows from ``start`` on."""


class SingleOperationsOnS3(SingleOperations, Protocol):
    """On S3 as well as in a folder."""

    @classmethod
    async def start_on_s3(cls, endpoint: str, bucket: str, path: str) -> Self:
        """Open the database there, with the tests' credentials."""


S = TypeVar("S", bound=SingleOperations)


def with_cache(kind: type[S], nbytes: int) -> type[S]:
    """``kind`` with a block cache of ``nbytes``."""
    return type(kind.__name__, (kind,), {"cache_bytes": nbytes})


class OneSlateAsync(SlateAsync):
    """Default settings, but for the cache."""

    cache_bytes: ClassVar[int] = 64 << 20

    @classmethod
    def _settings(cls) -> slate_async.Settings:
        return cls.settings.replace(block_cache_bytes=cls.cache_bytes)

    @classmethod
    async def start(cls, folder: str) -> Self:
        return cls(await slate_async.open(folder, settings=cls._settings()))

    @classmethod
    async def start_on_s3(cls, endpoint: str, bucket: str, path: str) -> Self:
        return cls(await slate_async.open(f"s3://{bucket}/{path}?endpoint_url={endpoint}", settings=cls._settings()))

    async def get_one(self, key: bytes) -> bytes | None:
        return await self.db.get(key)

    async def put_one(self, key: bytes, value: bytes) -> None:
        await self.db.put(key, value, await_durable=False)

    async def scan_one(self, start: bytes, rows: int) -> list[Pair]:
        return [pair async for pair in self.db.scan(start, limit=rows)]


class OneSlateDB(SlateDB):
    """Default settings, but for the cache: by default it has one of 512 MiB."""

    cache_bytes: ClassVar[int] = 64 << 20

    @classmethod
    def configure(cls, builder: Any, binding: Any) -> None:
        options = binding.MokaCacheOptions(max_capacity=cls.cache_bytes, time_to_live=None, time_to_idle=None)
        builder.with_db_cache(binding.DbCache.new_moka_cache(options), 0)

    async def get_one(self, key: bytes) -> bytes | None:
        found: bytes | None = await self._db.get(key)
        return found

    async def put_one(self, key: bytes, value: bytes) -> None:
        await self._db.put(key, value)

    async def scan_one(self, start: bytes, rows: int) -> Sequence[Any]:
        found: Sequence[Any] = await (await self._scan(start)).next_batch(rows)
        return found


class OneRocks(Rocks):
    """Filters of 10 bits a key, and the cache. Its calls never suspend."""

    cache_bytes: ClassVar[int] = 64 << 20

    @classmethod
    def options(cls, binding: Any) -> Any:
        table = binding.BlockBasedOptions()
        table.set_bloom_filter(10, False)
        table.set_block_cache(binding.Cache(cls.cache_bytes))
        options = super().options(binding)
        options.set_block_based_table_factory(table)
        return options

    async def get_one(self, key: bytes) -> bytes | None:
        found: bytes | None = self._db.get(key)
        return found

    async def put_one(self, key: bytes, value: bytes) -> None:
        self._db.put(key, value)

    async def scan_one(self, start: bytes, rows: int) -> list[Pair]:
        return list(islice(self._db.items(from_key=start), rows))
