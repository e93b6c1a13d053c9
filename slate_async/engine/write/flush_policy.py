"""When to flush: adaptive group commit, as a pure decision.

A flush waits for ``flush_interval_ms`` since the last one started, or for ``flush_bytes``, whichever comes first; so a
write after a pause goes at once, and a database sends no more objects than there are intervals. With
``flush_at_once`` a flush also starts whenever nothing is in flight, so a lone writer waits for one store round trip,
and for a full group of waiting writes.
``max_flushes_per_second`` caps the cost of PUT requests whatever else holds.
"""

from __future__ import annotations

from dataclasses import dataclass

from slate_async.engine.write.commit_group import GROUP_COMMIT_WAITERS

FULL_WINDOW_GROUPS = 4
"""Once so many full groups of tasks wait, a flush does not wait for those that are being completed."""


@dataclass(frozen=True, slots=True)
class FlushPolicy:
    """interval_s: seconds; flush_bytes: bytes; min_gap_s: seconds between two starts at least (0: no cap); at_once:
    whether a flush may start before the interval has passed"""

    interval_s: float
    flush_bytes: int
    min_gap_s: float = 0.0
    at_once: bool = True

    def delay(
        self,
        *,
        now: float,
        last_start: float,
        in_flight: int,
        pending_bytes: int,
        waiting: int,
        completing: bool,
        forced: bool,
    ) -> float:
        """Seconds until the next flush should start; 0 for now. The caller checks the window's room.

        waiting: tasks that wait for what is pending
        completing: waiters of a flush are being completed, and write what the next one should hold; they need not all
            be waited for once there are so many that the store may as well work meanwhile"""
        gap = max(0.0, last_start + self.min_gap_s - now)
        if forced or pending_bytes >= self.flush_bytes:
            return gap
        if not self.at_once:
            return max(gap, last_start + self.interval_s - now, 0.0)
        if completing:
            return gap if waiting >= FULL_WINDOW_GROUPS * GROUP_COMMIT_WAITERS else max(gap, self.interval_s)
        if in_flight == 0 or waiting >= GROUP_COMMIT_WAITERS:
            return gap
        return max(gap, last_start + self.interval_s - now, 0.0)
