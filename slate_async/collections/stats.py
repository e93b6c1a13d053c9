"""What handles of collections count, by dotted name."""

from __future__ import annotations

from dataclasses import dataclass

from slate_async.collections.codec.version import encode_version
from slate_async.collections.core.area import Area, level_of
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.times import TimeKind

Metrics = dict[str, int | float]


@dataclass(slots=True)
class AppendStats:
    """Of one writer. ``seconds``: from calls to their answers, waits for the controller included."""

    calls: int = 0
    rows: int = 0
    nbytes: int = 0
    seconds: float = 0.0
    retries: int = 0
    mismatches: int = 0

    def metrics(self) -> Metrics:
        """By name."""
        return {
            "collections.append.calls": self.calls,
            "collections.append.rows": self.rows,
            "collections.append.bytes": self.nbytes,
            "collections.append.seconds": self.seconds,
            "collections.append.retries": self.retries,
            "collections.append.mismatches": self.mismatches,
        }


@dataclass(slots=True)
class ReadStats:
    """Of one read handle and its listeners. ``seconds``: in which deltas were read, without waits for them."""

    snapshots: int = 0
    deltas: int = 0
    rows: int = 0
    seconds: float = 0.0

    def metrics(self) -> Metrics:
        """By name."""
        return {
            "collections.read.snapshots": self.snapshots,
            "collections.listen.deltas": self.deltas,
            "collections.listen.rows": self.rows,
            "collections.listen.seconds": self.seconds,
        }


def area_metrics(area: Area) -> Metrics:
    """Of the newest version that a handle knows."""
    return {
        "collections.version": area.version,
        "collections.version_bytes": len(encode_version(area)) if area.version else 0,
        "collections.spine.batches": len(area.batches),
        "collections.spine.levels": len({level_of(batch.rows) for batch in area.batches}),
        "collections.spine.rows": area.rows,
        "collections.spine.fuel": sum(fuel.rows for fuel in area.fuel),
        "collections.since_lag": times_between(area.since, area.upper),
    }


def times_between(first: Frontier, last: Frontier) -> int:
    """How many times lie between; 0 for pairs, which are not counted, and when all is done."""
    ends = (last.elements, first.elements)
    if any(len(elements) != 1 or len(elements[0]) != TimeKind.U64.coordinates for elements in ends):
        return 0
    return max(0, ends[0][0][0] - ends[1][0][0])
