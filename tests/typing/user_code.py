"""What applications write with slate_async, as type checkers see it: `scripts/check` has mypy and pyright read it.

Nothing here runs. A line that must not pass is marked for both checkers, which complain of marks that are not needed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import assert_type

import slate_async as slate


class Users:
    """A repository over whatever can be read."""

    def __init__(self, rows: slate.Readable) -> None:
        self._rows = rows

    async def name(self, user: str) -> str | None:
        """One value."""
        value = await self._rows.get(user.encode())
        assert_type(value, bytes | None)
        return None if value is None else value.decode()

    async def names(self, users: Sequence[str]) -> list[str]:
        """Several."""
        found = await self._rows.get_many([user.encode() for user in users])
        return [value.decode() for value in found if value is not None]

    async def all(self) -> AsyncIterator[tuple[str, int]]:
        """A scan by rows."""
        async for row in self._rows.scan(prefix=b"user:").rows():
            yield row.key.decode(), row.seq


class Cached:
    """A user's own view is one, too, with plain ``async def``."""

    def __init__(self, below: slate.Readable) -> None:
        self._below = below
        self._known: dict[bytes, bytes | None] = {}

    async def get(self, key: bytes | bytearray | memoryview, *, durable: bool = False) -> bytes | None:
        """From memory, if it was asked for before."""
        own = bytes(key)
        if own not in self._known:
            self._known[own] = await self._below.get(own, durable=durable)
        return self._known[own]

    async def get_many(
        self, keys: Sequence[bytes | bytearray | memoryview], *, durable: bool = False
    ) -> list[bytes | None]:
        """One after another."""
        return [await self.get(key, durable=durable) for key in keys]

    async def get_row(self, key: bytes | bytearray | memoryview, *, durable: bool = False) -> slate.Row | None:
        """Never from memory."""
        return await self._below.get_row(key, durable=durable)

    def scan(
        self,
        start: bytes | bytearray | memoryview | None = None,
        end: bytes | bytearray | memoryview | None = None,
        *,
        prefix: bytes | bytearray | memoryview | None = None,
        reverse: bool = False,
        limit: int | None = None,
        durable: bool = False,
    ) -> slate.Scan:
        """As it is below."""
        return self._below.scan(start, end, prefix=prefix, reverse=reverse, limit=limit, durable=durable)

    async def splits(
        self,
        start: bytes | bytearray | memoryview | None = None,
        end: bytes | bytearray | memoryview | None = None,
        *,
        prefix: bytes | bytearray | memoryview | None = None,
        target_bytes: int = 64 << 20,
        durable: bool = False,
    ) -> list[slate.Split]:
        """As they are below."""
        return await self._below.splits(start, end, prefix=prefix, target_bytes=target_bytes, durable=durable)


class Service:
    """The lifespan of a web service."""

    db: slate.Db

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """One database for as long as it runs."""
        settings = slate.Settings(flush_interval_ms=50)
        async with slate.open("s3://bucket/db", metastore="dynamodb://table", settings=settings) as self.db:
            assert_type(self.db, slate.Db)
            yield

    async def save(self, rows: Mapping[str, bytes]) -> int:
        """Writes, in every form."""
        batch = slate.WriteBatch()
        for key, value in rows.items():
            batch.put(key.encode(), value, ttl=timedelta(days=1))
        handle = await self.db.write(batch, await_durable=False)
        assert_type(handle, slate.WriteHandle)
        await handle.durable()
        await asyncio.gather(self.db.put(b"a", b"1"), self.db.delete(b"b"))
        task = asyncio.create_task(self.db.put(b"c", b"2", ttl=60))
        return (await task).seq

    async def classify(self, key: bytes) -> str:
        """Errors by what to do next."""
        try:
            async with asyncio.timeout(1):
                await self.db.put(key, b"")
        except slate.FencedError:
            return "stop"
        except slate.NotFoundError:
            return "create"
        except slate.ConfigError:
            return "deploy"
        except slate.InvalidError:
            return "refuse"
        except slate.SlateError as error:
            return error.outcome or "read"
        return "done"


async def read_everywhere() -> None:
    """Everything that can be read is `slate_async.Readable`."""
    async with slate.open("memory://scratch") as db, slate.open_reader("memory://scratch", pin=False) as reader:
        async with db.snapshot() as snapshot, reader.snapshot() as later:
            for view in (db, reader, snapshot, later, db.as_of(seq=1), reader.as_of(time=0.0)):
                await Users(view).names(["a", "b"])
            await Users(Cached(db)).name("a")
        async for key, value in db.scan(b"a", b"b", reverse=True, limit=3):
            assert_type((key, value), tuple[bytes, bytes])
        async with db.scan() as scan:
            async for batch in scan.batches(1000, times=True):
                assert_type(batch, slate.RecordBatch)
                print(batch.num_rows, batch.column("key"))
        async for change in db.changes(from_seq=0, follow=False):
            assert_type(change, slate.Change)
        assert_type(db.status(), slate.Status)
        assert_type(reader.status(), slate.ReaderStatus)


async def share() -> None:
    """Many databases of one process."""
    async with slate.Environment(block_cache_bytes=1 << 20) as env:
        users, orders = await env.open("memory://users"), await env.open("memory://orders")
        await asyncio.wait_for(orders.put(b"a", b"1"), 5)
        await users.close()


async def open_everything(spec: slate.IngestSpec) -> None:
    """A function opens what the method of its name opens, with the same arguments."""
    async with slate.Environment() as env:
        assert_type(env.open("db", standby=True), slate.Opening[slate.Db])
    assert_type(slate.open(path="db", settings=None, properties={"a": "b"}), slate.Opening[slate.Db])
    assert_type(slate.open_reader("db", "monday", False), slate.Opening[slate.DbReader])
    assert_type(slate.open_admin("db", name="db"), slate.Opening[slate.Admin])
    assert_type(slate.open_compactor("db", progress=print), slate.Opening[slate.DbCompactor])
    assert_type(slate.open_gc("db", periodic=False), slate.Opening[slate.GarbageCollector])
    assert_type(slate.open_ingest("db", lifetime=timedelta(days=1)), slate.Opening[slate.IngestJob])
    assert_type(slate.open_ingest_task("db", spec), slate.Opening[slate.IngestTask])


def open_everything_without_await(spec: slate.IngestSpec) -> None:
    """The same of the facade."""
    with slate.sync.Environment() as env:
        assert_type(env.open("db", standby=True), slate.sync.Db)
        assert_type(env.open_ingest_task("db", spec=spec), slate.sync.IngestTask)
    assert_type(slate.sync.open(path="db", settings=None), slate.sync.Db)
    assert_type(slate.sync.open_reader("db", "monday", False), slate.sync.DbReader)
    assert_type(slate.sync.open_admin("db", name="db"), slate.sync.Admin)
    assert_type(slate.sync.open_compactor("db", progress=print), slate.sync.DbCompactor)
    assert_type(slate.sync.open_gc("db", periodic=False), slate.sync.GarbageCollector)
    assert_type(slate.sync.open_ingest("db", lifetime=timedelta(days=1)), slate.sync.IngestJob)
    assert_type(slate.sync.open_ingest_task("db", spec), slate.sync.IngestTask)


async def administer() -> None:
    """Work that needs no writer."""
    async with slate.open_admin("s3://bucket/db") as admin:
        made = await admin.checkpoints.create(lifetime=3600, name="nightly")
        assert_type(made, slate.CheckpointInfo)
        report = await admin.verify()
        assert_type(report, slate.VerifyReport)


async def load(table: object) -> slate.IngestInfo:
    """A bulk ingest of what Arrow holds."""
    async with slate.open_ingest("s3://bucket/db", create=True) as job:
        written = await job.write([])
        assert_type(written, list[slate.IngestedSst])
        return await job.commit()


class Shelf:
    """A mapping for code that knows nothing of asyncio."""

    def __init__(self, url: str) -> None:
        self._db = slate.sync.open(url)

    def __getitem__(self, key: str) -> bytes:
        value = self._db.get(key.encode())
        assert_type(value, bytes | None)
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: str, value: bytes) -> None:
        assert_type(self._db.put(key.encode(), value), slate.sync.WriteHandle)

    def close(self) -> None:
        """At the end."""
        self._db.close()


def count(rows: slate.sync.Readable) -> int:
    """Whatever can be read without ``await``."""
    return sum(1 for _key, _value in rows.scan(prefix=b"user:"))


def script() -> None:
    """A script, without ``await``."""
    with slate.sync.Environment(threads=1) as env, env.open("memory://scratch", create=True) as db:
        with db.snapshot() as snapshot:
            assert_type(db, slate.sync.Db)
            print(count(db), count(snapshot))
            for row in db.scan(limit=3).rows():
                assert_type(row, slate.Row)
            for batch in db.scan().batches():
                assert_type(batch, slate.RecordBatch)
            with db.changes(from_seq=0) as feed:
                for change in feed:
                    assert_type(change, slate.Change)
                    feed.acknowledge(change.seq)
    with slate.sync.open_reader("s3://bucket/db") as reader:
        print(count(reader))
    with slate.sync.open_admin("s3://bucket/db") as admin:
        assert_type(admin.verify(), slate.VerifyReport)


async def mistakes() -> None:
    """What a type checker is to find."""
    slate.open("memory://scratch", wrong=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    slate.open("memory://scratch", create="yes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    slate.open_ingest_task("memory://scratch")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    slate.sync.open_reader(pin=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    slate.sync.Environment().open_gc("db", wrong=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    slate.open("memory://scratch").put(b"a", b"1")  # type: ignore[operator]  # pyright: ignore[reportCallIssue]
    async with slate.open("memory://scratch") as db:
        await db.put("a", b"1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        db.fail(ValueError())  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
        print(db.noun)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
        db.on_closed(db.close)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
