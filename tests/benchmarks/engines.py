"""The engines under comparison behind one face: slate_async, and SlateDB through its Python binding.

Both keep everything in a local folder. What is read is compared with what was written; a wrong answer ends the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Self

import slate_async

Pair = tuple[bytes, bytes]


class Engine(Protocol):
    """One open database."""

    name: str

    @classmethod
    async def start(cls, folder: str) -> Self:
        """Open an empty database in ``folder``."""

    async def put_in_memory(self, pairs: Sequence[Pair]) -> None:
        """Put one by one, not waiting for durability."""

    async def put_durable(self, pair: Pair) -> None:
        """Put and wait until it is durable."""

    async def settle(self) -> None:
        """Make everything durable and move it out of the memtable."""

    async def get_all(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Get one by one."""

    async def scan_rows(self) -> list[Pair]:
        """Everything, row by row."""

    async def scan_batches(self) -> int:
        """Everything, in the engine's own batches; the number of rows."""

    async def stop(self) -> None:
        """Close."""


class SlateAsync:
    """This package, default settings."""

    name = "slate_async"

    def __init__(self, db: slate_async.Db) -> None:
        self._db = db

    @classmethod
    async def start(cls, folder: str) -> Self:
        return cls(await slate_async.open(folder))

    async def put_in_memory(self, pairs: Sequence[Pair]) -> None:
        put = self._db.put
        for key, value in pairs:
            await put(key, value, await_durable=False)

    async def put_durable(self, pair: Pair) -> None:
        await self._db.put(*pair)

    async def settle(self) -> None:
        await self._db.flush(l0=True)

    async def get_all(self, keys: Sequence[bytes]) -> list[bytes | None]:
        get = self._db.get
        return [await get(key) for key in keys]

    async def scan_rows(self) -> list[Pair]:
        return [pair async for pair in self._db.scan()]

    async def scan_batches(self) -> int:
        return sum([batch.num_rows async for batch in self._db.scan().batches()])

    async def stop(self) -> None:
        await self._db.close()


class SlateDB:
    """The ``slatedb`` package from PyPI (Rust through UniFFI), default settings."""

    name = "slatedb"
    batch_rows = 1024

    def __init__(self, db: Any, binding: Any) -> None:
        self._db = db
        self._everything = binding.KeyRange(start=None, start_inclusive=True, end=None, end_inclusive=False)
        self._memtable = binding.FlushOptions(flush_type=binding.FlushType.MEM_TABLE)

    @classmethod
    async def start(cls, folder: str) -> Self:
        import slatedb.uniffi as binding

        store = binding.ObjectStore.resolve("file:///")
        return cls(await binding.DbBuilder(f"{folder.lstrip('/')}/db", store).build(), binding)

    async def put_in_memory(self, pairs: Sequence[Pair]) -> None:
        put = self._db.put
        for key, value in pairs:
            await put(key, value)

    async def put_durable(self, pair: Pair) -> None:
        handle = await self._db.put(*pair)
        await handle.await_durable()

    async def settle(self) -> None:
        await self._db.flush_with_options(self._memtable)

    async def get_all(self, keys: Sequence[bytes]) -> list[bytes | None]:
        get = self._db.get
        return [await get(key) for key in keys]

    async def scan_rows(self) -> list[Pair]:
        rows = await self._db.scan(self._everything)
        found = []
        while (row := await rows.next()) is not None:
            found.append((row.key, row.value))
        return found

    async def scan_batches(self) -> int:
        rows = await self._db.scan(self._everything)
        count = 0
        while batch := await rows.next_batch(self.batch_rows):
            count += len(batch)
        return count

    async def stop(self) -> None:
        await self._db.shutdown()


ENGINES: tuple[type[Engine], ...] = (SlateAsync, SlateDB)
