"""`Contact`: whether what a database sends is answered, for people who watch it. Nothing is decided by it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from slate_async.errors import UnavailableError
from slate_async.runtime.protocol import Clock

Kind = Literal["log", "manifest"]
UNANSWERED_S = 1.0
"""A request without an answer for so long counts as failed; one with a body may take longer."""
SLOWEST_BYTES_PER_S = 2 << 20


class Contact:
    """Counts as lost while the newest request of a kind failed, or one has no answer for too long."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = clock.monotonic()
        self._failing: dict[Kind, None] = {}
        self._due: dict[int, float] = {}
        self._number = 0

    @contextmanager
    def asking(self, kind: Kind, nbytes: int = 0) -> Iterator[None]:
        """The body sends a request, retries included, with a body of ``nbytes``."""
        number = self._number = self._number + 1
        due = self._due[number] = self._clock.monotonic() + UNANSWERED_S + nbytes / SLOWEST_BYTES_PER_S
        answered = False
        try:
            yield
            answered = True
        except UnavailableError:
            self._failing[kind] = None
            raise
        except Exception:
            answered = True  # a conflict, or what a store says of a request, is an answer
            raise
        finally:
            del self._due[number]
            now = self._clock.monotonic()
            if answered:
                self._last = now
                self._failing.pop(kind, None)
            elif now >= due:
                self._failing[kind] = None  # cut off by its caller

    def found(self) -> None:
        """All that was lost answers again."""
        self._failing.clear()
        self._last = self._clock.monotonic()

    @property
    def lost(self) -> bool:
        """See the class."""
        return bool(self._failing) or any(due <= self._clock.monotonic() for due in self._due.values())

    @property
    def last_ms(self) -> int:
        """How long ago the last answer came, milliseconds."""
        return max(0, int((self._clock.monotonic() - self._last) * 1000))
