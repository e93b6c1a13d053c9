"""This package, with its default settings unless a family says otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Self

import slate_async
from tests.benchmarks.rows import Pair

MOST_RETRIES = 100_000


class SlateAsync:
    """`slate_async.Db` on a local folder."""

    name = "slate_async"
    module = "slate_async"
    settings = slate_async.Settings()

    def __init__(self, db: slate_async.Db) -> None:
        self.db = db

    @classmethod
    async def start(cls, folder: str) -> Self:
        return cls(await slate_async.open(folder, settings=cls.settings))

    @classmethod
    async def start_on_s3(cls, endpoint: str, bucket: str, path: str) -> Self:
        """See `OnS3`."""
        return cls(await slate_async.open(f"s3://{bucket}/{path}?endpoint_url={endpoint}", settings=cls.settings))

    async def put_all(self, pairs: Sequence[Pair]) -> None:
        put = self.db.put
        for key, value in pairs:
            await put(key, value, await_durable=False)

    async def write_all(self, batches: Sequence[Sequence[Pair]]) -> None:
        for pairs in batches:
            batch = slate_async.WriteBatch()
            put = batch.put
            for key, value in pairs:
                put(key, value)
            await self.db.write(batch, await_durable=False)

    async def put_durable(self, pair: Pair) -> None:
        await self.db.put(*pair)

    async def read_write_all(self, pairs: Sequence[Pair]) -> None:
        get, put = self.db.get, self.db.put
        for key, value in pairs:
            await get(key)
            await put(key, value, await_durable=False)

    async def transact_all(self, pairs: Sequence[Pair]) -> None:
        transaction = self.db.transaction
        for key, value in pairs:
            async with transaction(await_durable=False) as tx:
                await tx.get(key)
                tx.put(key, value)

    async def update_all(self, pairs: Sequence[Pair]) -> None:
        update = self.db.update
        for key, value in pairs:
            await update(key, lambda _, value=value: value, await_durable=False)

    async def increment(self, key: bytes) -> None:
        async def once(tx: slate_async.Transaction) -> None:
            number = int(await tx.get(key) or b"0")
            await asyncio.sleep(0)
            tx.put(key, b"%d" % (number + 1))

        await self.db.transact(once, retries=MOST_RETRIES, await_durable=False)

    async def flush(self) -> None:
        await self.db.flush(l0=True)

    async def compact(self) -> None:
        await self.db.compact(full=True)

    async def get_all(self, keys: Sequence[bytes]) -> list[bytes | None]:
        get = self.db.get
        return [await get(key) for key in keys]

    async def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return await self.db.get_many(keys)

    async def scan_rows(self) -> list[Pair]:
        return [pair async for pair in self.db.scan()]

    async def scan_short(self, starts: Sequence[bytes], rows: int) -> list[list[Pair]]:
        scan = self.db.scan
        return [[pair async for pair in scan(start, limit=rows)] for start in starts]

    async def scan_batches(self) -> int:
        return sum([batch.num_rows async for batch in self.db.scan().batches()])

    async def stop(self) -> None:
        await self.db.close()


class Uncompacted(SlateAsync):
    """Without a compactor: flushed SSTs, and the runs that `Db.compact` makes, stay as they are."""

    settings = slate_async.Settings(auto_compaction=False, l0_max_ssts=10_000)


class Uncompressed(Uncompacted):
    """As `Uncompacted`, and blocks are stored as they are."""

    name = "slate_async, no zstd"
    settings = Uncompacted.settings.replace(compression="none")


class Still(Uncompacted):
    """As `Uncompacted`, and asks the store for nothing by itself for a while, so that requests can be counted."""

    settings = Uncompacted.settings.replace(manifest_poll_interval_ms=60_000)


class Gathering(SlateAsync):
    """Its writes wait for `flush_interval_ms`, as slatedb's do."""

    name = "slate_async, not at once"
    settings = slate_async.Settings(flush_at_once=False, flush_interval_ms=100)
