"""What the engine may ask of the outside world besides stores: time, chance, names, threads.

Nothing else in the package calls ``time``, ``random``, ``uuid`` or starts threads. The simulator
passes its own `Runtime`, which is what makes every protocol run deterministically.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar
from uuid import UUID

T = TypeVar("T")


class Clock(Protocol):
    """Time. Wall time may jump; monotonic time never goes back."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since the Unix epoch."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary point, never decreasing."""

    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task. Cancellable."""


class Ids(Protocol):
    """Names that no other process will ever draw."""

    def uuid(self) -> UUID:
        """A random (version 4) UUID."""

    def ulid(self, now_ms: int) -> bytes:
        """16 bytes: 48 bits of ``now_ms`` (big-endian), then 80 random bits."""

    def token(self) -> str:
        """32 lower-case hex digits, 128 random bits."""


class Offload(Protocol):
    """Runs work away from the event loop.

    A cancelled caller stops waiting at once; the function itself runs to its end and its result
    is dropped, so it must not leave anything half done that the loop still reads.
    """

    async def run(self, function: Callable[[], T]) -> T:
        """Run ``function`` and return what it returns or raise what it raises."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """The bundle passed to every component.

    offload: for work that computes
    blocking: for work that waits for a disk, behind which what computes must not wait, nor it behind that
    parallel: for pieces of one read, of which its caller waits for all; ``None``: `offload` is
    """

    clock: Clock
    rng: random.Random
    ids: Ids
    offload: Offload
    blocking: Offload
    parallel: Offload | None = None

    @property
    def reading(self) -> Offload:
        """Where the pieces of one read are decoded side by side."""
        return self.offload if self.parallel is None else self.parallel
