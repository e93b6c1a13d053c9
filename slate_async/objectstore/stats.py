"""Counters of one object store: what it was asked, what it moved, what went wrong."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class StoreStats:
    """Counts since the store was opened, at ``opened`` of the monotonic clock. ``requests`` counts attempts, by
    operation name."""

    opened: float = 0.0
    requests: dict[str, int] = field(default_factory=dict)
    retries: int = 0
    errors: int = 0
    """Attempts that ended in an error, except answers: not found, exists, changed."""
    conflicts: int = 0
    """Conditional puts whose condition did not hold."""
    bytes_in: int = 0
    """Bytes read from the store."""
    bytes_out: int = 0
    """Bytes of bodies sent to the store, repeats included."""

    def metrics(self) -> dict[str, int | float]:
        """By dotted name."""
        return {
            "store.retries": self.retries,
            "store.errors": self.errors,
            "store.conflicts": self.conflicts,
            "store.read_bytes": self.bytes_in,
            "store.written_bytes": self.bytes_out,
            **{f"store.requests.{operation}": count for operation, count in self.requests.items()},
        }

    def count(self, operation: str) -> None:
        """One more attempt of ``operation``."""
        self.requests[operation] = self.requests.get(operation, 0) + 1
