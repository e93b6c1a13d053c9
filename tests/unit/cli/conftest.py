"""A fake database behind `slate_async.open`, and a way to run the command line over it."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import pytest
from typer.testing import CliRunner

import slate_async
from slate_async.cli.app import app
from slate_async.engine.write.batch import WriteBatch, rows_of
from slate_async.errors import InvalidError
from slate_async.settings import Settings
from slate_async.storage.liveness.observer import WriterLife


@dataclass
class FakeHandle:
    """Durable once asked, unless the database fails then."""

    database: FakeDatabase
    seq: int

    async def durable(self) -> None:
        self.database.confirmed.append(self.seq)
        if self.database.durable_error is not None and self.seq >= self.database.durable_error_from:
            raise self.database.durable_error


@dataclass(frozen=True)
class FakeStatus:
    path: str
    state: str = "open"
    wal_enabled: bool = True
    nested: dict[str, int] = field(default_factory=lambda: {"inner": 7})
    nothing: None = None


@dataclass
class FakeDatabase:
    """Rows in a dict; errors on request; a record of what was asked."""

    rows: dict[bytes, bytes] = field(default_factory=dict)
    exists: bool = True
    error: BaseException | None = None
    durable_error: BaseException | None = None
    durable_error_from: int = 0
    opened: list[dict[str, Any]] = field(default_factory=list)
    closed: int = 0
    seq: int = 0
    ttls: list[float | None] = field(default_factory=list)
    confirmed: list[int] = field(default_factory=list)
    in_flight: list[int] = field(default_factory=list)

    def open(self, path: str, *, metastore: str | None, settings: Settings, create: bool) -> Self:
        if not self.exists and not create:
            raise InvalidError(f"there is no database at {path}")
        self.exists = True
        self.opened.append({"path": path, "metastore": metastore, "settings": settings, "create": create})
        return self

    def open_reader(
        self, path: str, *, checkpoint: str | None, pin: bool, metastore: str | None, settings: Settings
    ) -> Self:
        found = self.open(path, metastore=metastore, settings=settings, create=False)
        self.opened[-1].update(checkpoint=checkpoint, pin=pin)
        return found

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.closed += 1

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error

    def _handle(self) -> FakeHandle:
        self.seq += 1
        return FakeHandle(self, self.seq)

    async def put(
        self, key: bytes, value: bytes, *, ttl: float | None = None, await_durable: bool = True
    ) -> FakeHandle:
        self._fail()
        self.rows[key] = value
        self.ttls.append(ttl)
        return self._handle()

    async def get(self, key: bytes) -> bytes | None:
        self._fail()
        return self.rows.get(key)

    async def delete(self, key: bytes, *, await_durable: bool = True) -> FakeHandle:
        self._fail()
        self.rows.pop(key, None)
        return self._handle()

    async def write(self, batch: WriteBatch, *, await_durable: bool = True) -> FakeHandle:
        self._fail()
        assert not await_durable
        rows = rows_of(batch)
        self.rows.update(zip(rows.keys, rows.values, strict=True))
        handle = self._handle()
        self.in_flight.append(handle.seq - len(self.confirmed))
        return handle

    async def scan(
        self,
        start: bytes | None = None,
        end: bytes | None = None,
        *,
        prefix: bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[tuple[bytes, bytes]]:
        self._fail()
        keys = [k for k in sorted(self.rows, reverse=reverse) if k.startswith(prefix or b"")]
        keys = [k for k in keys if (start is None or k >= start) and (end is None or k < end)]
        for key in keys[:limit]:
            yield key, self.rows[key]

    def status(self) -> FakeStatus:
        self._fail()
        return FakeStatus("memory://fake")

    async def writer_life(self) -> WriterLife:
        return WriterLife("alive", 3, 30_000)

    def metrics(self) -> dict[str, int]:
        return {"puts": 3}


@dataclass
class Result:
    """What one run of the command left behind."""

    code: int
    out: str
    err: str
    raw: bytes

    @property
    def objects(self) -> list[dict[str, Any]]:
        """Standard output as JSON, an object a line."""
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Result]


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> FakeDatabase:
    """The fake that every path opens."""
    fake = FakeDatabase()
    monkeypatch.setattr(slate_async, "open", fake.open, raising=False)
    monkeypatch.setattr(slate_async, "open_reader", fake.open_reader, raising=False)
    return fake


@pytest.fixture
def slate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs ``slate --path memory://fake ARGUMENTS``."""
    for name in ("SLATE_PATH", "SLATE_METASTORE", "SLATE_SETTINGS"):
        monkeypatch.delenv(name, raising=False)
    level = logging.getLogger().level

    def run(*arguments: str, path: str | None = "memory://fake", options: tuple[str, ...] = ()) -> Result:
        before = [] if path is None else ["--path", path]
        done = CliRunner().invoke(app, [*before, *options, *arguments], catch_exceptions=False)
        return Result(done.exit_code, done.stdout, done.stderr, done.stdout_bytes)

    yield run
    logging.getLogger().setLevel(level)
