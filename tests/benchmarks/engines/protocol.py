"""What the engines under comparison have in common. Every engine keeps its database in a folder."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, Self, TypeVar, runtime_checkable

from tests.benchmarks.rounds import folder
from tests.benchmarks.rows import Pair


class Engine(Protocol):
    """One open database. Methods take everything at once so that each engine loops in its fastest way."""

    name: str
    module: str
    """What is imported for it."""

    @classmethod
    async def start(cls, folder: str) -> Self:
        """Open an empty database in ``folder``."""

    async def put_all(self, pairs: Sequence[Pair]) -> None:
        """Put one by one, not waiting for durability."""

    async def write_all(self, batches: Sequence[Sequence[Pair]]) -> None:
        """Write batch by batch, not waiting for durability. Filling the batches counts."""

    async def flush(self) -> None:
        """Make everything durable and move it out of the memtable."""

    async def get_all(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Get one by one."""

    async def stop(self) -> None:
        """Close."""


@runtime_checkable
class DurablePuts(Protocol):
    """Can wait until one write is durable in the store."""

    async def put_durable(self, pair: Pair) -> None:
        """Put and wait until it is durable."""


@runtime_checkable
class Transacts(Protocol):
    """Has transactions. None of these waits for durability."""

    async def read_write_all(self, pairs: Sequence[Pair]) -> None:
        """Get each key and put it, without a transaction."""

    async def transact_all(self, pairs: Sequence[Pair]) -> None:
        """Get each key and put it, in a serializable transaction of its own."""

    async def increment(self, key: bytes) -> None:
        """Add one to a decimal number, in a transaction in which other tasks have a turn between read and write; again
        until it commits."""


@runtime_checkable
class ManyGets(Protocol):
    """Reads many keys in one call."""

    async def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of ``keys``, in one call."""


@runtime_checkable
class Compacts(Protocol):
    """Compacts only when the benchmark asks for it."""

    async def compact(self) -> None:
        """Flush, and merge everything into one sorted run."""


@runtime_checkable
class RowScans(Protocol):
    """Reads in key order, row by row."""

    async def scan_rows(self) -> list[Pair]:
        """Everything."""

    async def scan_short(self, starts: Sequence[bytes], rows: int) -> list[list[Pair]]:
        """At most so many rows from each of ``starts`` on, one scan after the other."""


@runtime_checkable
class BatchScans(Protocol):
    """Reads in key order, in batches of the engine's own kind."""

    async def scan_batches(self) -> int:
        """Everything; the number of rows."""


class OnS3(Engine, DurablePuts, BatchScans, Protocol):
    """Works on S3 as well as in a folder."""

    @classmethod
    async def start_on_s3(cls, endpoint: str, bucket: str, path: str) -> Self:
        """Open the database there, with the tests' credentials."""


E = TypeVar("E", bound=Engine)


@asynccontextmanager
async def started(kind: type[E]) -> AsyncIterator[E]:
    """An empty database of that kind in a folder of its own."""
    with folder() as path:
        engine = await kind.start(path)
        try:
            yield engine
        finally:
            await engine.stop()
