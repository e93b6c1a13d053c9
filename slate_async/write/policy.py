"""When to flush: adaptive group commit, as a pure decision.

A flush starts at once when nothing is in flight, so an idle database answers within one store round trip. Under load
it waits for ``flush_interval_ms`` since the last start, for ``flush_bytes`` or for a crowd of waiting writes, whichever
comes first, so a busy one sends few, full objects. ``max_flushes_per_second`` caps the cost of PUT requests.
"""

from __future__ import annotations

from dataclasses import dataclass


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
        crowded: bool,
        waking: bool,
        forced: bool,
    ) -> float:
        """Seconds until the next flush should start; 0 for now. The caller checks the window's room.

        While tasks are being told (``waking``) of a flush, they write what the next one should hold."""
        gap = max(0.0, last_start + self.min_gap_s - now)
        if forced or crowded or pending_bytes >= self.flush_bytes:
            return gap
        if waking:
            return max(gap, self.interval_s)
        if in_flight == 0:
            return gap
        return max(gap, last_start + self.interval_s - now, 0.0)
