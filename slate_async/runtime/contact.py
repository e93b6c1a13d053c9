"""`Contact`: whether the store answers a database's requests. Operators read it; no code decides by it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from slate_async.errors import UnavailableError
from slate_async.runtime.protocol import Clock

Kind = Literal["log", "manifest", "read", "write"]
"""``read``: of SSTs; ``write``: SSTs and beats."""
UNANSWERED_S = 1.0
"""Contact is lost when a request has no answer for so long, or one has failed and no other of its kind has one since;
one with a body may take longer."""
SLOWEST_BYTES_PER_S = 2 << 20
FORGOTTEN_S = 60.0
"""A failure so old counts no more if other kinds are answered: its own may never be asked again."""


@dataclass(slots=True)
class _Failing:
    """A kind whose newest request failed: from when on it counts, and when that request did."""

    counts_from: float
    newest: float


class Contact:
    """Whether contact is lost: see `UNANSWERED_S`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = clock.monotonic()
        self._failing: dict[Kind, _Failing] = {}
        self._due: dict[int, float] = {}
        self._number = 0

    @contextmanager
    def asking(self, kind: Kind, nbytes: int = 0) -> Iterator[None]:
        """The body sends a request, retries included, that moves ``nbytes``."""
        number = self._number = self._number + 1
        began = self._clock.monotonic()
        due = self._due[number] = began + UNANSWERED_S + nbytes / SLOWEST_BYTES_PER_S
        try:
            yield
        except UnavailableError:
            self._failed(kind, due)
            raise
        except Exception:
            self._answered(kind, began)  # a conflict, or what a store says of a request, is an answer
            raise
        except BaseException:
            if self._clock.monotonic() >= due:
                self._failed(kind, due)  # cut off by its caller
            raise
        else:
            self._answered(kind, began)
        finally:
            del self._due[number]

    def _failed(self, kind: Kind, due: float) -> None:
        now = self._clock.monotonic()
        counts_from = min(due, now + UNANSWERED_S)
        known = self._failing.get(kind)
        self._failing[kind] = _Failing(counts_from if known is None else min(known.counts_from, counts_from), now)

    def _answered(self, kind: Kind, began: float) -> None:
        self._last = self._clock.monotonic()
        if self._failing:
            self._failing.pop(kind, None)
            old = [other for other, failing in self._failing.items() if began - failing.newest >= FORGOTTEN_S]
            for other in old:
                del self._failing[other]

    def found(self) -> None:
        """All that was lost answers again."""
        self._failing.clear()
        self._last = self._clock.monotonic()

    @property
    def lost(self) -> bool:
        """See the class."""
        now = self._clock.monotonic()
        return any(failing.counts_from <= now for failing in self._failing.values()) or any(
            due <= now for due in self._due.values()
        )

    @property
    def last_ms(self) -> int:
        """How long ago the last answer came, milliseconds."""
        return max(0, int((self._clock.monotonic() - self._last) * 1000))
