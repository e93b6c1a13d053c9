"""`FeedOptions`: the arguments of ``changes()``, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from slate_async.arguments import Duration
from slate_async.engine.checkpoint.manage import MAX_NAME, lifetime_ms
from slate_async.engine.read.time_travel import check_seq
from slate_async.errors import InvalidError

FromSeq: TypeAlias = int | Literal["now"] | None
"""Where a feed begins: above a number or ``"now"``; ``None``: where its subscription was, else the beginning."""
Initial: TypeAlias = Literal["snapshot", "error"]
"""What a feed from the beginning does where history was compacted: begin with a snapshot of what is left, or raise."""
SORT_MEMORY_BYTES = 64 << 20
"""Rows of SSTs are put in the order of their sequence numbers so many bytes at a time in memory."""
SORT_SPILL_BYTES = 1 << 30
"""So many bytes of others are put in order on disk meanwhile."""


@dataclass(frozen=True, slots=True)
class FeedOptions:
    """What ``changes()`` was asked for. ``sort_memory_bytes``, ``sort_spill_bytes``: see
    `slate_async.engine.changes.selection.select`."""

    from_seq: FromSeq
    until_seq: int | None
    follow: bool
    initial: Initial
    subscription: str | None
    subscription_lifetime: Duration | None
    sort_memory_bytes: int
    sort_spill_bytes: int

    def check(self, *, pinned: bool) -> None:
        """Raise `InvalidError` for what no database could give."""
        if self.from_seq is not None and self.from_seq != "now":
            check_seq(self.from_seq)
        if self.until_seq is not None:
            check_seq(self.until_seq)
        if self.initial not in ("snapshot", "error"):
            raise InvalidError(f"initial is 'snapshot' or 'error', not {self.initial!r}")
        if self.subscription is not None and (
            not isinstance(self.subscription, str) or not 0 < len(self.subscription) <= MAX_NAME
        ):
            raise InvalidError(
                f"a subscription's name is a text of 1 to {MAX_NAME} characters, not {self.subscription!r}"
            )
        if self.subscription is not None and not pinned:
            raise InvalidError(
                "a reader opened with pin=False writes nothing, so it retains nothing; give no subscription="
            )
        if self.subscription is None and self.subscription_lifetime is not None:
            raise InvalidError("subscription_lifetime is of a subscription by name; give it one with subscription=")
        lifetime_ms(self.subscription_lifetime)
        if (
            isinstance(self.sort_memory_bytes, bool)
            or not isinstance(self.sort_memory_bytes, int)
            or self.sort_memory_bytes < 1
        ):
            raise InvalidError(f"sort_memory_bytes is a positive number of bytes, not {self.sort_memory_bytes!r}")
        if (
            isinstance(self.sort_spill_bytes, bool)
            or not isinstance(self.sort_spill_bytes, int)
            or self.sort_spill_bytes < 0
        ):
            raise InvalidError(f"sort_spill_bytes is a number of bytes, or 0, not {self.sort_spill_bytes!r}")
