"""A workload over a wire that breaks, and the ledger that says afterwards whether a write was lost or doubled.

Every write puts rows under keys of its own (one row, or a batch of several) and the number of the write under its
task's one ``last`` key, so the ledger can tell rows that are missing, torn, doubled, or out of order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

import slate_async as slate
from tests.netproxy import PASS, Fault, Request

BATCH_EVERY = 4
L0_EVERY = 3
Kind = Callable[[Request], bool]


@dataclass(frozen=True)
class Write:
    """One attempted write. ``seq``: of its last row, ``None`` if it raised before it had one."""

    task: int
    number: int
    rows: tuple[tuple[bytes, bytes], ...]
    seq: int | None
    outcome: str
    """"acknowledged", "unknown" or "not_applied"."""

    def sequenced(self) -> Iterator[tuple[bytes, bytes, int]]:
        """Key, value and sequence number of each row."""
        assert self.seq is not None
        for index, (key, value) in enumerate(self.rows):
            yield key, value, self.seq - len(self.rows) + 1 + index


def last_key(tag: str, task: int) -> bytes:
    return f"{tag}/{task:+03}/last".encode()


def rows_of(tag: str, task: int, number: int) -> tuple[tuple[bytes, bytes], ...]:
    count = 3 if number % BATCH_EVERY == 0 else 1
    own = [f"{tag}/{task:+03}/{number:05}/{part}".encode() for part in range(count)]
    return *((key, b"value of " + key) for key in own), (last_key(tag, task), b"%d" % number)


@dataclass
class Ledger:
    """The answers that the writers got. ``tag`` sets the keys of this run apart; ``refusals`` are errors of flushes and
    reads, each of which ended its task."""

    tag: str
    writes: list[Write] = field(default_factory=list)
    refusals: list[slate.SlateError] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def work(self, db: slate.Db, *, tasks: int, writes: int) -> None:
        """Write from ``tasks`` tasks at once, each one write after another, reading in between; ends early when
        the database closes itself. What the second half puts stays in the log."""
        async with asyncio.TaskGroup() as group:
            for task in range(tasks):
                group.create_task(self._work(db, task, writes))

    async def write_one_more(self, db: slate.Db) -> None:
        """One write by a task of its own."""
        await self._write(db, -1, 0)

    async def _work(self, db: slate.Db, task: int, writes: int) -> None:
        for number in range(writes):
            await self._write(db, task, number)
            if self.writes_of(task)[-1].outcome != "acknowledged":
                return
            try:
                if (number + task) % L0_EVERY == 0 and number < writes // 2:
                    await db.flush(l0=True)
                read = await db.get(last_key(self.tag, task), durable=True)
            except slate.SlateError as error:
                self.refusals.append(error)
                return
            assert read == b"%d" % number

    async def _write(self, db: slate.Db, task: int, number: int) -> None:
        rows = rows_of(self.tag, task, number)
        batch = slate.WriteBatch()
        for key, value in rows:
            batch.put(key, value)
        seq = None
        try:
            handle = await db.write(batch, await_durable=False)
            seq = handle.seq
            await handle.durable()
            outcome = "acknowledged"
        except slate.SlateError as error:
            outcome = error.outcome or f"{error!r} without an outcome"
        self.writes.append(Write(task, number, rows, seq, outcome))
        self.news.set()

    async def grown(self, count: int, working: asyncio.Task[None]) -> None:
        """Wait until so many writes of those that are ``working`` have ended. Raises what ended them before."""
        working.add_done_callback(lambda _: self.news.set())
        while len(self.writes) < count:
            if working.done():
                working.result()
                raise AssertionError(f"the writers ended early: {self.outcomes()}, {self.refusals}")
            self.news.clear()
            await self.news.wait()

    def writes_of(self, task: int) -> list[Write]:
        return [write for write in self.writes if write.task == task]

    def outcomes(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for write in self.writes:
            counts[write.outcome] = counts.get(write.outcome, 0) + 1
        return counts

    async def check(self, db: slate.Db) -> None:
        """Hold every stored row of this run against what was said of its write."""
        stored = {row.key: row async for row in db.scan(prefix=self.tag.encode() + b"/").rows()}
        seqs = [row.seq for row in stored.values()]
        assert len(set(seqs)) == len(seqs), "one sequence number, one row"
        last: dict[int, Write] = {}
        for write in self.writes:
            assert write.outcome in ("acknowledged", "unknown", "not_applied"), write
            own = write.rows[:-1]
            found = [key in stored for key, _ in own]
            assert all(found) or not any(found), f"torn: {write}"
            assert write.outcome == "unknown" or found[0] == (write.outcome == "acknowledged"), f"{write}: {found}"
            if not found[0]:
                continue
            previous = last.get(write.task)
            assert write.number == (0 if previous is None else previous.number + 1), f"a gap before {write}"
            last[write.task] = write
            for key, value, seq in write.sequenced():
                if key.endswith(b"/last"):
                    continue
                row = stored.pop(key)
                assert (row.value, row.seq) == (value, seq), f"{write}: stored as {row}"
        for task, write in last.items():
            row = stored.pop(last_key(self.tag, task))
            assert (row.value, row.seq) == (b"%d" % write.number, write.seq), f"{write}: stored as {row}"
        assert not stored, f"rows nobody wrote: {list(stored)[:3]}"


def _stored_at(folder: str, *methods: str, conditional: bool | None = None) -> Kind:
    def holds(request: Request) -> bool:
        named = f"/db/{folder}" in request.path and "list-type" not in request.query
        return named and request.method in methods and conditional in (None, request.conditional)

    return holds


def _listed(prefix: str) -> Kind:
    return lambda request: "list-type" in request.query and f"prefix=db/{prefix}" in unquote(request.query) + "&"


def _operation(name: str) -> Kind:
    return lambda request: request.operation == name


KINDS: dict[str, Kind] = {
    "probe put": _stored_at("gc/", "PUT"),
    "manifest commit": _stored_at("manifest/", "PUT", conditional=True),
    "manifest body put": _stored_at("manifest/", "PUT", conditional=False),
    "manifest get": _stored_at("manifest/", "GET"),
    "boundary list": _listed("manifest/boundary/"),
    "manifest list": _listed("manifest/&"),
    "register put": _stored_at("writer/", "PUT"),
    "register get": _stored_at("writer/", "GET"),
    "log put": _stored_at("log/", "PUT"),
    "log get": _stored_at("log/", "GET"),
    "log list": _listed("log"),
    "SST put": _stored_at("sst/", "PUT"),
    "SST get": _stored_at("sst/", "GET"),
    "PutItem": _operation("PutItem"),
    "GetItem": _operation("GetItem"),
    "DescribeTable": _operation("DescribeTable"),
}
"""The kinds of requests an engine makes of S3 and DynamoDB."""


@dataclass
class OncePerKind:
    """A chooser: in each of ``phases`` the first request of every kind meets the fault ``fault`` makes of it.

    ``met`` holds "phase: kind" of all that did."""

    fault: Callable[[Request], Fault]
    phases: Sequence[str]
    met: dict[str, Request] = field(default_factory=dict)
    _phase: str = ""

    def begin(self, phase: str) -> None:
        """A phase begins, and ends the one before."""
        self._phase = phase

    def __call__(self, request: Request) -> Fault:
        if self._phase not in self.phases:
            return PASS
        for name, kind in KINDS.items():
            key = f"{self._phase}: {name}"
            if key not in self.met and kind(request):
                fault = self.fault(request)
                if fault is not PASS:
                    self.met[key] = request
                return fault
        return PASS
