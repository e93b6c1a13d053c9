"""`DatabaseRelay`: a collection of keys and values, kept as rows of a database.

Each delta is one `WriteBatch`, in which the upper that it leads to is a row, too. So the database always is what the
collection was at that upper, and a run goes on exactly there.

Ordering rules:
* a batch is written only while the database's upper is the delta's lower; both are under one lock of the process
* another process is the database's writer or this one is: a zombie's batch is fenced
* times are given up only once the batch behind them is durable, by a critical hold: so a run can go on where the
  database is, however long there was none
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar
from weakref import WeakKeyDictionary

from slate_async.arguments import BytesLike, key_bytes
from slate_async.bridges.delta_rows import KeyChange, check_applies, check_columns, key_changes
from slate_async.bridges.joined import runtime_of
from slate_async.bridges.one_run import OneRun
from slate_async.collections.collection import Collection
from slate_async.collections.core.errors import TokenMismatchError
from slate_async.collections.core.frontier import Frontier, FrontierLike
from slate_async.collections.core.names import check_name
from slate_async.collections.core.times import TimeKind
from slate_async.collections.reader.critical import CriticalHandle
from slate_async.collections.reader.handle import ReadHandle
from slate_async.collections.reader.listen import Delta
from slate_async.database.db import Db
from slate_async.engine.write.batch import WriteBatch
from slate_async.errors import ClosedError, ConflictError, InvalidError

logger = logging.getLogger(__name__)
T = TypeVar("T")
INLINE_ROWS = 1_024
DOWNGRADE_S = 1.0
"""Times are given up that often, not for each delta."""
_locks: WeakKeyDictionary[Db, asyncio.Lock] = WeakKeyDictionary()
"""Of each database: its relays look at their upper and write, one at a time."""


@dataclass(slots=True)
class DatabaseRelayProgress:
    """Where a relay is, and what it has done since it was made."""

    upper: Frontier
    runs: int = 0
    deltas: int = 0
    puts: int = 0
    deletes: int = 0


def relay_to_database(
    collection: Collection, database: Db, name: str, *, upper_key: BytesLike | None = None
) -> DatabaseRelay:
    """What keeps the rows of ``collection`` in ``database``. Its data columns are key and value, and expire_time if it
    has that; its times are u64; a key is there once or not at all.

    name: of the relay, and of its critical hold on the collection: 1 to 64 of a-z, 0-9 and -. A relay that is not to
    run again gives that up: ``(await collection.critical(name)).expire()``
    upper_key: the row that says how far the database is; ``relay/NAME`` if left out

    Use ``async with``, and `DatabaseRelay.run` within. Raises `InvalidError`."""
    check_name(name, "relay")
    if not isinstance(database, Db):
        raise InvalidError(f"a relay writes to a Db, not to a {type(database).__name__}")
    key = f"relay/{name}".encode() if upper_key is None else key_bytes(upper_key)
    return DatabaseRelay(collection, database, name, key)


class DatabaseRelay:
    """Made by `relay_to_database`. Its runs end with the ``async with`` block."""

    def __init__(self, collection: Collection, database: Db, name: str, upper_key: bytes) -> None:
        self._collection = collection
        self._database = database
        self._name = name
        self._upper_key = upper_key
        runtime = runtime_of(database)
        self._clock, self._offload = runtime.clock, runtime.offload
        self._one_run = OneRun()
        self._life: str | None = None  # of the collection, once entered
        self._progress = DatabaseRelayProgress(Frontier.minimum(TimeKind.U64))

    @property
    def upper(self) -> Frontier:
        """The database is what the collection was there, as far as this relay knows."""
        return self._progress.upper

    def metrics(self) -> dict[str, int | float]:
        """By dotted name: counters since the relay was made; ``database_relay.upper`` is of now."""
        progress = self._progress
        return {
            "database_relay.runs": progress.runs,
            "database_relay.deltas": progress.deltas,
            "database_relay.puts": progress.puts,
            "database_relay.deletes": progress.deletes,
            "database_relay.upper": 0 if progress.upper.is_done else progress.upper.elements[0][0],
        }

    async def run(self, until: FrontierLike | None = None) -> None:
        """Apply deltas as they come: until the database is at or beyond ``until``, or the collection is done.

        May be cancelled, and after any error called again: it goes on where the database is. One run at a time.

        Raises `InvalidError`, which names the key, for contents that no database has; `SinceError` if the collection
        no longer tells what came next; `ConflictError` if another relay writes; `FencedError`, `ClosedError`,
        `UnavailableError`, `CorruptionError`."""
        with self._one_run.running():
            await self._run(None if until is None else Frontier.of(until, TimeKind.U64))

    async def __aenter__(self) -> Self:
        info = await self._collection.info()
        if info.time != "u64":
            raise InvalidError(f"a database takes a collection with times of u64; those of {info.name} are {info.time}")
        check_columns(info.data, info.name)
        self._life = f"{info.name}/{info.life}"
        self._one_run.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Cancels a run that is under way in another task, and waits for its end."""
        await self._one_run.leave()

    # ---- a run

    async def _run(self, goal: Frontier | None) -> None:
        progress = self._progress
        progress.runs += 1
        pin = await self._collection.critical(self._name, "a relay to a database")
        await self._database.flush()  # what an earlier run wrote counts once it is durable
        stored = await self._stored()
        if stored is not None:
            progress.upper = stored
            if not pin.since.strictly_below(stored):  # another relay went on, perhaps the database's writer by now
                await self._database.confirm()
        async with AsyncExitStack() as stack:
            reader = await stack.enter_async_context(await pin.reader(f"relay {self._name}"))
            if self._is_there(goal):
                return
            if stored is None and reader.since.is_done:
                raise ClosedError(f"{self._collection.name} has given up all its times, so it cannot be read any more")
            first = reader.since.elements[0] if stored is None else None
            listener = reader.listen(start=stored) if first is None else reader.subscribe(first)
            stack.callback(listener.close)
            logger.info("%s: relaying to %s from %s", self._collection.name, self._database, progress.upper)
            downgraded = self._clock.monotonic()
            async for delta in listener:
                await self._apply(delta, stored)
                stored = progress.upper = delta.upper
                if self._clock.monotonic() - downgraded >= DOWNGRADE_S:
                    await self._downgrade(pin, reader)
                    downgraded = self._clock.monotonic()
                if self._is_there(goal):
                    break
            await self._downgrade(pin, reader)

    async def _downgrade(self, pin: CriticalHandle, reader: ReadHandle) -> None:
        """Give up all times but those that are needed to go on where the database is."""
        upper = self._progress.upper
        await reader.downgrade_since(upper)
        try:
            await pin.compare_and_downgrade(pin.token, str(upper), upper.step_back())
        except TokenMismatchError:  # an earlier run's landed late, which had come less far
            await pin.refresh()

    def _is_there(self, goal: Frontier | None) -> bool:
        upper = self._progress.upper
        return upper.is_done or (goal is not None and goal <= upper)

    async def _apply(self, delta: Delta, stored: Frontier | None) -> None:
        name = self._collection.name
        changes = await self._computed(delta.updates.num_rows, lambda: key_changes(delta.updates, name))
        async with _locks.setdefault(self._database, asyncio.Lock()):
            found = await self._stored()
            if found != stored:
                raise ConflictError(
                    f"another relay keeps {self._upper_key!r} of {self._database}: it is at {found}, not at {stored}",
                    outcome="not_applied",
                )
            there = await self._database.get_many([change.key for change in changes])
            batch = await self._computed(len(changes), lambda: self._batch(changes, there, self._clock.now_ms()))
            batch.put(self._upper_key, f"{self._life}@{delta.upper}".encode())
            await self._database.write(batch)
        deletes = sum(change.new is None for change in changes)
        self._progress.deltas += 1
        self._progress.deletes += deletes
        self._progress.puts += len(changes) - deletes

    async def _computed(self, rows: int, work: Callable[[], T]) -> T:
        """What ``work`` on so many rows gives; away from the event loop, if they are many."""
        return work() if rows <= INLINE_ROWS else await self._offload.run(work)

    def _batch(self, changes: list[KeyChange], there: list[bytes | None], now_ms: int) -> WriteBatch:
        """The rows of ``changes``, which apply to the values ``there``. Raises `InvalidError`, which names the key."""
        check_applies(changes, there, self._collection.name, now_ms)
        batch = WriteBatch()
        for change in changes:
            if change.key == self._upper_key:
                raise InvalidError(
                    f"{self._collection.name} has the key {change.key!r}, where the relay keeps its upper"
                )
            expired = change.expire_ms is not None and change.expire_ms <= now_ms
            if expired or change.new is None:
                batch.delete(change.key)
            else:
                ttl = None if change.expire_ms is None else (change.expire_ms - now_ms) / 1000
                batch.put(change.key, change.new, ttl=ttl)
        return batch

    async def _stored(self) -> Frontier | None:
        """How far the database is; ``None`` before the first batch."""
        row = await self._database.get(self._upper_key)
        if row is None:
            return None
        life, _, upper = row.decode(errors="replace").rpartition("@")
        if life != self._life:
            raise InvalidError(
                f"{self._upper_key!r} of {self._database} is {row[:80]!r}, so it is kept by a relay of another"
                f" collection, or of another life of one, than {self._life}"
            )
        return Frontier.parse(upper, TimeKind.U64)
