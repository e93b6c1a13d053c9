"""When to flush: adaptive group commit, as a pure decision.

A flush starts at once when nothing is in flight, so an idle database answers within one store round trip. Under load
it waits for ``flush_interval_ms`` since the last start, for ``flush_bytes`` or for a crowd of waiting writes, whichever
comes first, so a busy one sends few, full objects. ``max_flushes_per_second`` caps the cost of PUT requests.
"""

from __future__ import annotations

from dataclasses import dataclass

from slate_async.write.group import CROWD

FULL_WINDOW_CROWDS = 4
"""So many crowds of tasks that are being told are not waited for any longer."""


@dataclass(frozen=True, slots=True)
class FlushPolicy:
    """interval_s: seconds; flush_bytes: bytes; min_gap_s: seconds between two starts at least (0: no cap)"""

    interval_s: float
    flush_bytes: int
    min_gap_s: float = 0.0

    def delay(
        self,
        *,
        now: float,
        last_start: float,
        in_flight: int,
        pending_bytes: int,
        waiting: int,
        waking: bool,
        forced: bool,
    ) -> float:
        """Seconds until the next flush should start; 0 for now. The caller checks the window's room.

        waiting: tasks that wait for what is pending
        waking: tasks are being told of a flush, and write what the next one should hold; they need not all be waited
            for once there are so many that the store may as well work meanwhile"""
        gap = max(0.0, last_start + self.min_gap_s - now)
        if forced or pending_bytes >= self.flush_bytes:
            return gap
        if waking:
            return gap if waiting >= FULL_WINDOW_CROWDS * CROWD else max(gap, self.interval_s)
        if in_flight == 0 or waiting >= CROWD:
            return gap
        return max(gap, last_start + self.interval_s - now, 0.0)
