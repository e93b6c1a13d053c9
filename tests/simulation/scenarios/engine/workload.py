"""One life of a writer: open, look around, write and read from several tasks, then close, or stay and fall asleep."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import slate_async as slate
from slate_async.errors import ClosedError, ConflictError, FencedError, SlateError, UnavailableError
from slate_async.storage.sst.reader import MissingError
from tests.simulation.checkers import Violation
from tests.simulation.history import Kind, Write
from tests.simulation.node import Node
from tests.simulation.scenarios.engine.attempts import Attempt
from tests.simulation.scenarios.engine.database import SimulatedDatabase
from tests.simulation.scenarios.engine.rows import CONTENDED, EXPIRING, MARKER, record_view

CONTENDED_KEYS = [CONTENDED + b"%d" % number for number in range(3)]
EXPECTED = (FencedError, ClosedError, UnavailableError)
"""What a database may raise in a world like this."""
FOREVER_SECONDS = 1e6
NO_TIME_SECONDS = 0.002


class Session:
    """A `slate.Db` in one process, and what was seen through it.

    poll_ms: its polling interval, if not by chance
    """

    def __init__(self, database: SimulatedDatabase, node: Node, poll_ms: int | None = None) -> None:
        self.database = database
        self._poll_ms = poll_ms
        self.node = node
        self.history = database.history
        self.rng = node.rng
        self.snapshots = 0
        self._db: slate.Db | None = None
        self._attempt: Attempt | None = None
        self._began = 0.0

    @property
    def db(self) -> slate.Db:
        """The open database."""
        assert self._db is not None
        return self._db

    @property
    def is_open(self) -> bool:
        """Whether there is a database, open or not any more."""
        return self._db is not None

    # ---- opening and closing

    async def open(self) -> bool:
        """Take over; whether that succeeded. Notes what was found there."""
        self._began = self.history.now()
        attempt = self._attempt = self.database.attempts.begin(self.node.name, self._began)
        try:
            self._db = await self._opened()
        except (FencedError, UnavailableError):
            self.database.count("failed-openings")
            return False
        finally:
            attempt.ended = self.history.now()
        self.database.count("openings")
        self.epoch = attempt.epoch = self.db.status().epoch
        await self.look(Kind.OPENED)
        return True

    async def _opened(self) -> slate.Db:
        return await self.database.open(self.node, self._poll_ms)

    async def look(self, kind: Kind) -> bool:
        """Scan everything; whether the answer came."""
        durable = kind is not Kind.MEMORY
        before = self._memory_stands()
        if durable and kind is Kind.DURABLE and self.database.params.ack == "flushed":
            kind = Kind.MEMORY  # a takeover may undo what was flushed
        try:
            with self._reading():
                async with self.db.snapshot(durable=durable) as snapshot:
                    scan = snapshot.scan(reverse=self.rng.random() < 0.2)
                    rows = [(row.key, row.value, row.seq) async for row in scan.rows()]
                    got = await snapshot.get_many(CONTENDED_KEYS)
        except EXPECTED:
            return False
        if not durable and self._memory_stands() != before:
            return False  # what is in memory alone may have been undone
        scanned = {key: value for key, value, _ in rows}
        if [scanned.get(key) for key in CONTENDED_KEYS] != got:
            raise Violation("value", f"{self.node.name}: one snapshot was scanned as {scanned} and read as {got}")
        epoch = self.epoch if kind is Kind.OPENED else None
        record_view(self.history, self.node.name, kind, rows, epoch, self._began)
        return True

    def _memory_stands(self) -> tuple[int, bool]:
        """Changes when an outage begins or ends, which may undo what is in memory alone."""
        status = self.db.status()
        return status.epoch, status.outage is None

    async def close(self) -> None:
        """Close; afterwards nothing may run in this process."""
        try:
            await self.db.close()
        except EXPECTED:
            self.database.count("failed-closes")
        self.database.count("collected-beside", self.db.metrics()["gc.objects"])

    def check_end(self) -> None:
        """A database that closed itself had a reason that this world can give."""
        cause = self.db._cause
        if cause is not None and not isinstance(cause, EXPECTED):
            raise Violation("broken", f"{self.node.name} closed itself: {cause!r}") from cause

    def check_work(self) -> None:
        """What must hold when all tasks are over."""

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """A scan or snapshot whose log objects were compacted and collected need not find its read point again. Nothing
        else may fail for that."""
        try:
            yield
        except ConflictError as error:
            missing = error.__cause__
            if not isinstance(missing, MissingError) or missing.object_name not in self.database.collected:
                raise
            self.database.count("lost-moments")
            raise UnavailableError("collected") from error

    @property
    def has_ended(self) -> bool:
        """Whether the database has closed, or been closed."""
        return self.db.status().state not in ("open", "degraded")

    # ---- what its tasks do

    async def work(self, rounds: int) -> None:
        """Random operations, one after another, until the database is closed or the rounds are up."""
        steps = (self.write, self.read_confirmed, self.scan, self.hold_snapshot, self.flush, self.flush_l0)
        weights = (0.50, 0.12, 0.06, 0.06, 0.06, self.database.params.l0_flushes)
        for _ in range(rounds):
            step = self.rng.choices(steps, weights)[0]
            try:
                with self._reading():
                    await step()
            except EXPECTED:
                if self.has_ended:
                    return
            if self.rng.random() < 0.6:
                await self.node.runtime.clock.sleep(self.rng.uniform(0, 0.15))

    async def write(self) -> None:
        """One atomic write, waited for or not."""
        write = self._begin()
        call = self._call(write)
        way = self.rng.random()
        try:
            if way < 0.6:
                handle = await call(True)
                write.seq = handle.seq
            else:
                handle = await call(False)
                write.seq = handle.seq
                if way < 0.7:
                    return
                if way < 0.8:
                    await self.look(Kind.MEMORY)
                await _waited(handle, None if way < 0.95 else 0.01)
        except SlateError as error:
            if error.outcome == "not_applied":
                write.refused = True
            if not isinstance(error, EXPECTED):
                raise
            if self.has_ended:
                raise
        except TimeoutError:
            return
        else:
            self._acknowledged(write)

    def _begin(self) -> Write:
        changes: dict[bytes, bytes | None] = {}
        expiring: dict[bytes, bytes | None] = {}
        number = self.history.next_id
        for _ in range(self.rng.choice((0, 1, 1, 2))):
            value = None if self.rng.random() < 0.35 else b"%d" % number + b"." * self.rng.choice((0, 0, 20))
            changes[self.rng.choice(CONTENDED_KEYS)] = value
        if self.rng.random() < 0.1:
            expiring[EXPIRING + b"%d" % self.rng.randrange(2)] = self.rng.choice((None, b"%d" % number))
        self.epoch = self.db.status().epoch  # another one after each outage
        write = self.history.begin(self.node.name, self.epoch, changes)
        write.expiring = expiring
        return write

    def _call(self, write: Write) -> Any:
        marker = MARKER + b"%06d" % write.id
        if not write.changes and not write.expiring:
            return lambda durable: self.db.put(marker, b"", await_durable=durable)
        batch = slate.WriteBatch()
        for key, value in write.changes.items():
            batch.delete(key) if value is None else batch.put(key, value)
        put_expiring(batch, write.expiring)
        batch.put(marker, b"")
        return lambda durable: self.db.write(batch, await_durable=durable)

    def _acknowledged(self, write: Write) -> None:
        """It is durable. At level ``flushed`` that is a promise only while nobody else is taking over."""
        assert self._attempt is not None
        if self.database.params.ack == "committed" or self.database.attempts.undisturbed(self._attempt):
            self.history.ack(write)

    async def read_confirmed(self) -> None:
        """A durable read that is checked against the head: linearizable."""
        key = self.rng.choice(CONTENDED_KEYS)
        start = self.history.now()
        value = await self.db.get(key, durable=True)
        await self.db.confirm()
        if self.database.params.ack == "committed":
            self.history.read(self.node.name, key, value, start)
            self.database.count("confirmed-reads")

    async def scan(self) -> None:
        """Durable rows, or all."""
        await self.look(self.rng.choice((Kind.DURABLE, Kind.MEMORY)))

    async def hold_snapshot(self) -> None:
        """Read one snapshot twice, with time between."""
        self.snapshots += 1
        name = f"{self.node.name}/{self.epoch}/{self.snapshots}"  # a process may open it more than once
        durable = self.rng.random() < 0.5
        async with self.db.snapshot(durable=durable) as snapshot:
            for _ in range(2):
                if not durable and self.db.status().outage is not None:
                    return  # what is in memory alone may have been undone
                rows = [(row.key, row.seq) async for row in snapshot.scan(prefix=CONTENDED).rows()]
                self.history.snapshot_read(name, "contended", rows)
                key = CONTENDED + b"0"
                self.history.snapshot_read(name, "k0", await snapshot.get(key))
                await self.node.runtime.clock.sleep(self.rng.uniform(0, 0.5))

    async def flush(self) -> None:
        """Make everything durable."""
        await self.db.flush()

    async def flush_l0(self) -> None:
        """Move everything out of the log."""
        await self.db.flush(l0=True)


def put_expiring(batch: slate.WriteBatch, expiring: Mapping[bytes, bytes | None]) -> None:
    """Add what has a time to live, and may be over at once."""
    for key, value in expiring.items():
        if value is None:
            batch.put(key, b"expired", ttl=NO_TIME_SECONDS)
        else:
            batch.put(key, value, ttl=FOREVER_SECONDS)


async def _waited(handle: slate.WriteHandle, seconds: float | None) -> None:
    async with asyncio.timeout(seconds):
        await handle.durable()


async def live(database: SimulatedDatabase, node: Node) -> None:
    """The whole life of a writer."""
    await live_in(Session(database, node))


async def live_in(session: Session) -> None:
    """The whole life of a writer: several tasks work beside each other, then it closes or stays."""
    if not await session.open():
        check_quiet(session.node)
        return
    params = session.database.params
    tasks = [asyncio.create_task(session.work(params.rounds), name=f"work {n}") for n in range(params.tasks)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    session.check_end()
    session.check_work()
    await end(session)


async def end(session: Session) -> None:
    """Close it, or leave it idle: it must find out by itself that it was fenced."""
    if session.rng.random() < 0.6:
        await session.close()
        session.check_end()
        check_quiet(session.node)
    else:
        await session.db.wait_closed()


def check_quiet(node: Node) -> None:
    """Nothing runs in this process but the caller."""
    me = asyncio.current_task()
    waiting = [task.get_name() for task in node.pending() if task is not me]
    if waiting:
        raise Violation("leak", f"{node.name} still runs {', '.join(waiting)}")
