"""The flush window: which log ids are in flight, and up to where the log is resolved without a gap.

Invariant (rules 9, 10): never more than ``parallelism`` ids from the lowest unresolved one to the highest issued one.
A takeover's fence is that wide, so no put of a dead writer can land past it.

Rules 9 and 10: docs/design/protocol-rules.md
"""

from __future__ import annotations


class FlushWindow:
    """Ids from ``first_id`` upwards, issued in order, resolved in any order."""

    def __init__(self, first_id: int, parallelism: int) -> None:
        self._next = first_id
        self._end = first_id - 1
        self._resolved: dict[int, None] = {}
        self._parallelism = parallelism

    @property
    def resolved_end(self) -> int:
        """The highest id such that it and every earlier one are resolved."""
        return self._end

    @property
    def next_id(self) -> int:
        """The id `issue` gives next."""
        return self._next

    @property
    def in_flight(self) -> int:
        """Issued ids that are not resolved."""
        return self._next - 1 - self._end - len(self._resolved)

    @property
    def has_room(self) -> bool:
        """Whether one more id may be issued."""
        return self._next - self._end <= self._parallelism

    def issue(self) -> int:
        """Take the next id. There must be room."""
        if not self.has_room:
            raise ValueError(f"{self._parallelism} ids are in flight already")
        self._next += 1
        return self._next - 1

    def resolve(self, log_id: int) -> bool:
        """``log_id`` is in the store. Returns whether `resolved_end` moved."""
        if not self._end < log_id < self._next or log_id in self._resolved:
            raise ValueError(f"id {log_id} is not in flight")
        self._resolved[log_id] = None
        before = self._end
        while self._end + 1 in self._resolved:
            self._end += 1
            del self._resolved[self._end]
        return self._end > before
