"""Group commit: takes segments, writes them in parallel, acknowledges them in order.

Ordering rule: ids are issued in segment order; an object may land in any order; an acknowledgement waits for its
object *and every earlier one* and for the log to have published them. The first failure ends the writer: every
later segment fails with it.

Rule 24: docs/design/protocol-rules.md
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import anyio

from slate_async.engine.write.completions import CompletionQueue
from slate_async.engine.write.encoding import Encoder
from slate_async.engine.write.flush_policy import FlushPolicy
from slate_async.engine.write.l0_pressure import L0Pressure
from slate_async.engine.write.memtables import Segment
from slate_async.engine.write.signals import WriterSignals
from slate_async.engine.write.state import WriterState
from slate_async.runtime.contact import Contact
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.supervisor import Supervisor
from slate_async.storage.format.log_segment import log_object_id
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

    completions: of the waiters of what is acknowledged
    pressure: without a WAL a flush makes an SST, and waits longer the more of them wait for compaction
    """

    def __init__(
        self,
        *,
        state: WriterState,
        log: Log,
        window: FlushWindow,
        policy: FlushPolicy,
        early_ack: bool,
        encoder: Encoder,
        completions: CompletionQueue,
        pressure: L0Pressure,
        signals: WriterSignals,
        contact: Contact,
        runtime: Runtime,
        supervisor: Supervisor,
    ) -> None:
        self._state = state
        self._memtables = state.memtables
        self._log = log
        self._window = window
        self._policy = policy
        self._early_ack = early_ack
        self._encoder = encoder
        self._completions = completions
        self._pressure = pressure
        self._signals = signals
        self._contact = contact
        self._runtime = runtime
        self._supervisor = supervisor
        self._wake = asyncio.Event()
        self._landed = asyncio.Event()
        self._progress = asyncio.Event()
        self._issued: dict[int, Segment] = {}
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
        while self._state.published_end < log_id and not self._stopped:
            await self._progress.wait()

    def force(self) -> None:
        """Flush what is there now without waiting for interval or bytes."""
        self._memtables.cut()
        self._wake.set()

    @property
    def in_flight(self) -> int:
        """Log objects on their way."""
        return self._window.in_flight

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
                    completing=self._completions.busy,
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

    def _slowdown(self) -> float:
        """Seconds that should lie between two starts now, whatever the policy."""
        return 0.0 if self._state.manifest.wal_enabled else self._pressure.slowdown()

    async def _encode(self, segment: Segment) -> bytes:
        manifest = self._state.manifest
        if manifest.wal_enabled:
            return await self._encoder.segment(
                segment.entry.table,
                segment.start,
                segment.stop,
                nbytes=segment.nbytes,
                log_id=segment.log_id,
                manifest_version=manifest.version,
            )
        encoded = await self._encoder.sst(
            segment.entry.table, object_id=log_object_id(segment.log_id), manifest_version=manifest.version
        )
        segment.key_range = (encoded.stats.first_key, encoded.stats.last_key)
        return b"".join(encoded.buffers)

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
            while (end := self._ack_end()) > self._state.published_end:
                with self._contact.asking("log"):
                    await self._log.publish(end)
                self._state.published_end = end
                self._progressed()
                self._acknowledge(end)
                self._signals.published()

    def _acknowledge(self, end: int) -> None:
        for log_id in range(self._state.acknowledged_end + 1, end + 1):
            segment = self._issued[log_id]
            self._state.acknowledge(segment)
            self._signals.acknowledged(segment)
            segment.group.resolve(self._completions)
            del self._issued[log_id]
        self._state.acknowledged_end = max(self._state.acknowledged_end, end)


def _averaged(before: float | None, now: float) -> float:
    return now if before is None else 0.9 * before + 0.1 * now
