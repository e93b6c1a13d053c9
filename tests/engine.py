"""Databases for tests: a clock to turn by hand, no threads, and stores that block, fail and remember on request."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import slate_async as slate
from metastores.put_if_absent import PutIfAbsentMetaStore
from slate_async.objectstore.memory import MemoryObjects, MemoryStore
from slate_async.objectstore.meta_objects import MetaObjects
from slate_async.objectstore.protocol import OVERWRITE, ByteRange, GetResult, ObjectInfo, ObjectStore, PutMode
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.supervisor import Supervisor
from slate_async.runtime.system import SystemIds
from slate_async.settings import LogProtocol
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.protocol import Edit
from slate_async.types import Buffer

T = TypeVar("T")
START_MS = 1_750_000_000_000
UNCOMPACTED: dict[str, Any] = {"auto_compaction": False, "l0_max_ssts": 100_000, "auto_gc": False}
"""Settings of a database whose L0 stays as it was flushed."""


@dataclass(frozen=True)
class Kind:
    """One of the four ways a database keeps its log."""

    log_protocol: LogProtocol
    wal_enabled: bool

    def __str__(self) -> str:
        return f"{self.log_protocol}-{'wal' if self.wal_enabled else 'sst'}"

    def settings(self, **more: Any) -> slate.Settings:
        """Settings of such a database; small ones unless ``more`` says otherwise."""
        longest = min(60_000, more.get("takeover_deadline_ms", 60_000))
        small = {
            "flush_interval_ms": 5,
            "manifest_poll_interval_ms": longest,
            "on_outage": "close",
            **UNCOMPACTED,
        }
        return slate.Settings(log_protocol=self.log_protocol, wal_enabled=self.wal_enabled, **{**small, **more})


KINDS = [Kind(protocol, wal) for protocol in ("contiguous", "epoch_prefixed") for wal in (True, False)]
CONTIGUOUS, CONTIGUOUS_SST, EPOCHS, EPOCHS_SST = KINDS


class ManualClock:
    """A wall clock that only the test moves; monotonic time is the machine's."""

    def __init__(self) -> None:
        self.wall_ms = START_MS

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class InlineOffload:
    """Runs offloaded work in the loop itself, a turn later."""

    async def run(self, function: Callable[[], T]) -> T:
        await asyncio.sleep(0)
        return function()


def runtime(clock: ManualClock | None = None) -> Runtime:
    """A runtime without threads."""
    return Runtime(
        ManualClock() if clock is None else clock, random.Random(7), SystemIds(), InlineOffload(), InlineOffload()
    )


class on:
    """`slate.open` and its kin on a runtime of the test's, each in an environment that ends with what it opens."""

    def __init__(self, runtime: Runtime) -> None:
        self._environment = partial(slate.Environment, runtime=runtime)

    def __getattr__(self, name: str) -> Any:
        def opened(*args: Any, **kwargs: Any) -> Any:
            private = self._environment()
            return getattr(private, name)(*args, **kwargs)._ending(private.close)

        return opened


def memory_store(objects: MemoryObjects | None = None) -> MemoryStore:
    """A store in memory. Handles of the same ``objects`` show the same store."""
    return MemoryStore(ManualClock(), objects)


def open_db(store: ObjectStore, kind: Kind = CONTIGUOUS, **settings: Any) -> slate.Opening[slate.Db]:
    """Open the database in the root of ``store``. ``clock``, ``create`` and ``metastore`` are not settings."""
    clock = settings.pop("clock", None)
    passed = {name: settings.pop(name) for name in ("create", "metastore", "properties", "standby") if name in settings}
    return on(runtime(clock)).open(store, name="memory://test", settings=kind.settings(**settings), **passed)


async def abandon(db: slate.Db) -> None:
    """What a crash leaves: every task of ``db`` ends where it stands, and nothing more is written."""
    db._head.stop()
    await db._supervisor.close()


async def commit_elsewhere(store: ObjectStore, edit: Edit) -> None:
    """Commit ``edit`` as another process would."""
    supervisor = Supervisor("elsewhere", lambda cause: None)
    metastore = PutIfAbsentMetaStore(MetaObjects(store))
    driver = ManifestDriver(metastore, runtime(), supervisor, name="test", full_every=4, deadline_ms=1000)
    assert await driver.load() is not None
    await driver.commit(edit)


async def until(condition: Callable[[], bool], what: str, seconds: float = 20) -> None:
    """Give the loop turns until ``condition()``."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s for: {what}"
        await asyncio.sleep(0.001)


async def settle(turns: int = 30) -> None:
    """Let everything that can run without waiting run."""
    for _ in range(turns):
        await asyncio.sleep(0)


@dataclass
class Put:
    """One put a `StoreInHand` was asked for."""

    key: str
    size: int
    mode: PutMode
    landed: bool = False


@dataclass
class StoreInHand:
    """A store whose puts under ``watch`` wait, fail or are only written down, as the test says.

    hold: puts wait in `held` until `release`
    fail_before, fail_after: made into an error before or after the put takes effect, by key
    """

    inner: ObjectStore
    watch: str = "log/"
    hold: bool = False
    fail_before: Callable[[str], Exception | None] = lambda key: None
    fail_after: Callable[[str], Exception | None] = lambda key: None
    puts: list[Put] = field(default_factory=list)
    held: dict[str, asyncio.Event] = field(default_factory=dict)
    most_in_flight: int = 0
    gets: list[str] = field(default_factory=list)
    closed: bool = False
    _in_flight: int = 0

    def release(self, *keys: str) -> None:
        """Let held puts go on: those named, or all, and none is held any more."""
        if not keys:
            self.hold = False
        for key in keys or tuple(self.held):
            self.held.pop(key).set()

    def landed(self) -> list[str]:
        """Watched keys that were put, in the order they took effect."""
        return [put.key for put in self.puts if put.landed]

    async def put(
        self,
        key: str,
        data: Buffer | Sequence[Buffer],
        *,
        mode: PutMode = OVERWRITE,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        if not key.startswith(self.watch):
            return await self.inner.put(key, data, mode=mode, metadata=metadata)
        size = len(data) if not isinstance(data, list | tuple) else sum(map(len, data))
        put = Put(key, size, mode)
        self.puts.append(put)
        self._in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self._in_flight)
        try:
            if self.hold:
                gate = self.held[key] = asyncio.Event()
                await gate.wait()
            if (error := self.fail_before(key)) is not None:
                raise error
            etag = await self.inner.put(key, data, mode=mode, metadata=metadata)
            put.landed = True
            if (error := self.fail_after(key)) is not None:
                raise error
            return etag
        finally:
            self._in_flight -= 1

    async def get(self, key: str, byte_range: ByteRange | None = None) -> GetResult:
        self.gets.append(key)
        return await self.inner.get(key, byte_range)

    async def head(self, key: str) -> ObjectInfo:
        return await self.inner.head(key)

    def list(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        return self.inner.list(prefix, start_after=start_after)

    async def delete(self, keys: Sequence[str]) -> None:
        await self.inner.delete(keys)

    async def close(self) -> None:
        self.closed = True
        await self.inner.close()


def starts(*calls: Awaitable[T]) -> list[asyncio.Future[T]]:
    """All of ``calls``, each in a task of its own."""
    return [asyncio.ensure_future(call) for call in calls]


async def contents(db: slate.Readable) -> dict[bytes, bytes]:
    """Everything a full scan shows."""
    return {key: value async for key, value in db.scan()}


def open_reader(store: ObjectStore, **options: Any) -> slate.Opening[slate.DbReader]:
    """Open a reader of the database in the root of ``store``, which polls only when the test asks for it. ``clock``,
    ``checkpoint``, ``pin``, ``metastore`` and ``environment`` are not settings."""
    environment, clock = options.pop("environment", None), options.pop("clock", None)
    passed = {name: options.pop(name) for name in ("checkpoint", "pin", "metastore") if name in options}
    settings = slate.Settings(**{"manifest_poll_interval_ms": 60_000, **options})
    opener = on(runtime(clock)) if environment is None else environment
    return opener.open_reader(store, name="memory://test", settings=settings, **passed)
