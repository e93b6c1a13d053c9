"""Group commit: takes segments, writes them in parallel, acknowledges them in order.

Ordering rule: ids are issued in segment order; an object may land in any order; an acknowledgement waits for its
object *and every earlier one* and for the log to have published them. The first failure ends the writer: every
later segment fails with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio

from slate_async.engine.write.flush_policy import FlushPolicy
from slate_async.engine.write.memtables import MemtableList, Segment
from slate_async.runtime.contact import Contact
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.supervisor import Supervisor
from slate_async.storage.log.protocol import Log
from slate_async.storage.log.window import FlushWindow


@dataclass(slots=True)
class FlushStats:
    """Counters of one writer."""

    flushes: int = 0
    rows: int = 0
    bytes: int = 0
    window_waits: int = 0
    put_s: float | None = None  # of late, seconds to put one


class LogFlusher:
    """The two tasks between a memtable and an acknowledgement.

    ``encode(segment)`` makes the object's bytes; ``acknowledged(segment)`` is called in order, synchronously,
    when a segment may be acknowledged; ``published(log_id)`` when the log holds everything up to there for good;
    ``slowdown()`` says how many seconds should lie between two starts now, whatever the policy; ``completing()``
    whether waiters of what was acknowledged are still to be completed.
    """

    def __init__(
        self,
        *,
        memtables: MemtableList,
        log: Log,
        window: FlushWindow,
        policy: FlushPolicy,
        early_ack: bool,
        encode: Callable[[Segment], Awaitable[bytes]],
        acknowledged: Callable[[Segment], None],
        published: Callable[[int], None],
        slowdown: Callable[[], float],
        completing: Callable[[], bool],
        contact: Contact,
        runtime: Runtime,
        supervisor: Supervisor,
    ) -> None:
        self._memtables = memtables
        self._log = log
        self._window = window
        self._policy = policy
        self._early_ack = early_ack
        self._encode = encode
        self._acknowledged = acknowledged
        self._published = published
        self._slowdown = slowdown
        self._completing = completing
        self._contact = contact
        self._runtime = runtime
        self._supervisor = supervisor
        self._wake = asyncio.Event()
        self._landed = asyncio.Event()
        self._progress = asyncio.Event()
        self._issued: dict[int, Segment] = {}
        self._acked_end = window.resolved_end
        self._published_end = window.resolved_end
        self._last_start = float("-inf")
        self._stopped = False
        self.stats = FlushStats()

    def start(self) -> None:
        """Start the tasks."""
        self._supervisor.spawn("log flusher", self._run())
        self._supervisor.spawn("log publisher", self._publish())

    def notify(self) -> None:
        """Rows were added, a cut was made, a full group waits, or an object landed."""
        if self._memtables.has_pending:
            self._wake.set()

    def stop(self) -> None:
        """Issue nothing any more: rows without a log id are about to be declared not written."""
        self._stopped = True
        self._progressed()

    def _progressed(self) -> None:
        self._progress.set()
        self._progress = asyncio.Event()

    async def until_published(self, log_id: int) -> None:
        """Wait until the log holds everything up to ``log_id`` for good, or the flusher has stopped."""
        while self._published_end < log_id and not self._stopped:
            await self._progress.wait()

    def force(self) -> None:
        """Flush what is there now without waiting for interval or bytes."""
        self._memtables.cut()
        self._wake.set()

    @property
    def in_flight(self) -> int:
        """Log objects on their way."""
        return self._window.in_flight

    @property
    def published_end(self) -> int:
        """The last log position that every successor inherits."""
        return self._published_end

    @property
    def acknowledged_end(self) -> int:
        """The last log position that is acknowledged."""
        return self._acked_end

    def issued_segments(self) -> list[Segment]:
        """Segments with an id that are not acknowledged: their outcome is unknown if the writer ends now."""
        return list(self._issued.values())

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._memtables.has_pending and not self._stopped:
                if not self._window.has_room:
                    self.stats.window_waits += 1
                    break  # an object that lands wakes us
                delay = self._policy.delay(
                    now=self._runtime.clock.monotonic(),
                    last_start=self._last_start,
                    in_flight=self._window.in_flight,
                    pending_bytes=self._memtables.pending_bytes,
                    waiting=self._memtables.group.waiting,
                    completing=self._completing(),
                    forced=bool(self._memtables.queue),
                )
                delay = max(delay, self._last_start + self._slowdown() - self._runtime.clock.monotonic())
                if delay > 0:
                    await self._wait_at_most(delay)
                    continue
                self._issue()

    async def _wait_at_most(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self._wake.wait()
        self._wake.clear()

    def _issue(self) -> None:
        segment = self._memtables.next_segment(self._window.issue())
        self._last_start = self._runtime.clock.monotonic()
        self._issued[segment.log_id] = segment
        self._supervisor.spawn(f"flush {segment.log_id}", self._flush(segment))

    async def _flush(self, segment: Segment) -> None:
        data = await self._encode(segment)
        segment.object_bytes = len(data)
        began = self._runtime.clock.monotonic()
        with self._contact.asking("log", len(data)):
            await self._log.write(segment.log_id, data)
        self.stats.put_s = _averaged(self.stats.put_s, self._runtime.clock.monotonic() - began)
        self.stats.flushes += 1
        self.stats.rows += segment.stop - segment.start
        self.stats.bytes += len(data)
        self._resolve(segment.log_id)

    def _resolve(self, log_id: int) -> None:
        moved = self._window.resolve(log_id)
        self.notify()
        if moved:
            if self._early_ack:
                self._acknowledge(self._ack_end())
            self._landed.set()

    def _ack_end(self) -> int:
        """Up to where acknowledgements may go: the end of the contiguous landed prefix."""
        return self._window.resolved_end

    async def _publish(self) -> None:
        while True:
            await self._landed.wait()
            self._landed.clear()
            while (end := self._ack_end()) > self._published_end:
                with self._contact.asking("log"):
                    await self._log.publish(end)
                self._published_end = end
                self._progressed()
                self._acknowledge(end)
                self._published(end)

    def _acknowledge(self, end: int) -> None:
        for log_id in range(self._acked_end + 1, end + 1):
            self._acknowledged(self._issued[log_id])
            del self._issued[log_id]
        self._acked_end = max(self._acked_end, end)


def _averaged(before: float | None, now: float) -> float:
    return now if before is None else 0.9 * before + 0.1 * now
