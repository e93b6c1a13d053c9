"""A few databases in memory that know each other by name, and processes that die between two of their requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import slate_async as slate
from metastores.factories import PutIfAbsentFactory
from slate_async.codec.header import HEADER_BYTES
from slate_async.engine.stored_database import OpenStored, StoredDatabase, open_stored
from slate_async.errors import UnavailableError
from slate_async.objectstore.memory import MemoryObjects
from slate_async.objectstore.protocol import OVERWRITE, ByteRange, GetResult, ObjectInfo, ObjectStore, PutMode
from slate_async.runtime.supervisor import Supervisor
from slate_async.storage.log.extent import find_extent
from slate_async.storage.manifest.edits.checkpoints import CreateCheckpoint
from slate_async.storage.manifest.state import ManifestState
from slate_async.types import Buffer
from tests.engine import Kind, ManualClock, contents, memory_store, runtime

PARENT, CLONE, GRANDCHILD = "memory://parent", "memory://clone", "memory://grandchild"


class Killed(BaseException):
    """The process is dead."""


@dataclass
class Life:
    """A process that makes ``requests`` requests and dies before the next one, or sleeps before it while ``meanwhile``
    happens. ``None``: it lives on. ``unanswered``: the number of the one request whose answer it never gets."""

    requests: int | None = None
    meanwhile: Callable[[], Awaitable[None]] | None = None
    unanswered: int | None = None
    made: int = 0

    async def request(self) -> None:
        if self.made == self.requests:
            if self.meanwhile is None:
                raise Killed
            self.requests = None
            await self.meanwhile()
        self.made += 1

    def answer(self) -> None:
        if self.made - 1 == self.unanswered:
            self.unanswered = None
            raise UnavailableError("the answer was lost", outcome="unknown")


@dataclass
class MortalStore:
    """A store as one process uses it."""

    inner: ObjectStore
    life: Life

    async def put(
        self,
        key: str,
        data: Buffer | Sequence[Buffer],
        *,
        mode: PutMode = OVERWRITE,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        await self.life.request()
        etag = await self.inner.put(key, data, mode=mode, metadata=metadata)
        self.life.answer()
        return etag

    async def get(self, key: str, byte_range: ByteRange | None = None) -> GetResult:
        await self.life.request()
        found = await self.inner.get(key, byte_range)
        self.life.answer()
        return found

    async def head(self, key: str) -> ObjectInfo:
        await self.life.request()
        return await self.inner.head(key)

    async def list(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        await self.life.request()
        async for info in self.inner.list(prefix, start_after=start_after):
            yield info
        self.life.answer()

    async def delete(self, keys: Sequence[str]) -> None:
        await self.life.request()
        await self.inner.delete(keys)
        self.life.answer()

    async def close(self) -> None:
        await self.inner.close()


@dataclass
class Town:
    """Databases by name, all of one kind. ``clock`` is everybody's."""

    kind: Kind
    clock: ManualClock = field(default_factory=ManualClock)
    objects: dict[str, MemoryObjects] = field(default_factory=dict)

    def copy(self) -> Town:
        """The same databases, to go their own way."""
        town = Town(self.kind, self.clock)
        for name, old in self.objects.items():
            new = town.objects[name] = MemoryObjects()
            new.objects, new.sorted_keys, new.writes = dict(old.objects), list(old.sorted_keys), old.writes
        return town

    def store(self, name: str) -> ObjectStore:
        return memory_store(self.objects.setdefault(name, MemoryObjects()))

    def keys(self, name: str) -> list[str]:
        return list(self.objects[name].sorted_keys)

    def data(self, name: str) -> list[str]:
        """Keys of SSTs and of log objects but fences."""
        objects = self.objects[name].objects
        return [key for key in objects if key.startswith(("log/", "sst/")) and objects[key][0].size > HEADER_BYTES]

    @asynccontextmanager
    async def process(self, life: Life | None = None) -> AsyncIterator[OpenStored]:
        """Opens databases as they lie in the store, in one process."""
        alive = Life() if life is None else life
        supervisor = Supervisor("process", lambda cause: None)

        def open_at(name: str) -> AbstractAsyncContextManager[StoredDatabase]:
            store = MortalStore(self.store(name), alive)
            settings = self.kind.settings(retry_deadline_ms=2000, takeover_deadline_ms=2000)
            return open_stored(name, store, PutIfAbsentFactory(), supervisor, runtime(self.clock), settings)

        try:
            yield open_at
        finally:
            await supervisor.close()

    @asynccontextmanager
    async def open(self, name: str, **more: Any) -> AsyncIterator[slate.Db]:
        """The database, opened as its writer."""
        environment = slate.Environment(
            runtime=runtime(self.clock), stores={other: self.store(other) for other in self.objects}
        )
        settings = self.kind.settings(**{"l0_sst_bytes": 4096, "block_bytes": 256, "flush_bytes": 1024, **more})
        async with environment, environment.open(self.store(name), name=name, settings=settings) as db:
            yield db

    async def rows(self, name: str) -> dict[bytes, bytes]:
        """Everything in the database."""
        async with self.open(name) as db:
            return await contents(db)

    async def state(self, name: str) -> ManifestState:
        async with self.process() as open_at, open_at(name) as database:
            return await database.head()

    async def checkpoint(self, name: str, expire_ms: int | None = None) -> UUID:
        """A user's checkpoint of the head, called "mine"."""
        async with self.process() as open_at, open_at(name) as database:
            state = await database.head()
            async with database.register(state.log_protocol) as register:
                extent = await find_extent(database.store, database.driver.load, register)
            made = database.runtime.ids.uuid()
            edit = CreateCheckpoint(
                made, "user", self.clock.now_ms(), expire_ms, "mine", None, extent.end, extent.ranges
            )
            await database.driver.commit(edit)
            return made

    async def write(self, name: str, rows: Mapping[bytes, bytes | None], *, l0: bool = False, **more: Any) -> None:
        """Write rows (``None``: delete) as one batch, with ``l0`` into SSTs."""
        batch = slate.WriteBatch()
        for key, value in rows.items():
            batch.delete(key) if value is None else batch.put(key, value)
        async with self.open(name, **more) as db:
            await db.write(batch)
            if l0:
                await db.flush(l0=True)


def numbered(first: int, end: int, value: bytes = b"v") -> dict[bytes, bytes]:
    """Rows ``first`` to ``end - 1``."""
    return {b"%04d" % number: value for number in range(first, end)}
