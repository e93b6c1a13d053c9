"""`WatchOptions`: the arguments of ``watch()``, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from slate_async.engine.changes.options import Initial
from slate_async.engine.read.time_travel import check_seq
from slate_async.errors import InvalidError

OnLag: TypeAlias = Literal["feed", "error"]
"""What becomes of a watcher that is too slow: it goes on from the shared change feed, or gets an error."""
WatchFrom: TypeAlias = int | Literal["now"]
"""Where a watch begins: above a number, or above the newest durable row."""


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """What ``watch()`` was asked for. ``cut``: so many bytes before keys are not given, those of a namespace."""

    prefix: bytes
    from_seq: WatchFrom
    initial: Initial
    on_lag: OnLag
    cut: int = 0

    def check(self) -> None:
        """Raise `InvalidError` for what no database could give."""
        if self.from_seq != "now":
            check_seq(self.from_seq)
        if self.initial not in ("snapshot", "error"):
            raise InvalidError(f"initial is 'snapshot' or 'error', not {self.initial!r}")
        if self.on_lag not in ("feed", "error"):
            raise InvalidError(f"on_lag is 'feed' or 'error', not {self.on_lag!r}")
