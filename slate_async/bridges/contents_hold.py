"""`ContentsHold`: the critical hold that keeps the contents of an ``upsert`` collection readable at its end.

A run reads them a step before the upper. A reader may give up times that the collection has not reached yet: if its
hold were the only one, since would follow it, and no run could ever begin again.

All relays of a collection share the hold: with one each, a relay that never runs again would keep times for ever. Each
moves it to where it knows the collection to end, or leaves that to another one.

Ordering rules:
* the hold stands before the contents are read, and before the first of them is appended
* times are given up only after the collection ends a step beyond them
"""

from __future__ import annotations

from typing import Self

from slate_async.collections.collection import Collection
from slate_async.collections.core.errors import TokenMismatchError
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.reader.critical import CriticalHandle
from slate_async.runtime.protocol import Clock

HOLD = "upsert-relay"
"""Its name."""
DOWNGRADE_S = 1.0
"""Times are given up that often, not after each append."""


class ContentsHold:
    """Made by `ContentsHold.open`; see the module docstring."""

    def __init__(self, pin: CriticalHandle, clock: Clock) -> None:
        self._pin = pin
        self._clock = clock
        self._moved: float | None = None

    @classmethod
    async def open(cls, collection: Collection, clock: Clock) -> Self:
        """The one that ``collection`` has, or a new one. Raises as `Collection.critical`."""
        return cls(await collection.critical(HOLD, "relays of upserts"), clock)

    async def follow(self, upper: Frontier, *, now: bool) -> None:
        """The collection ends at ``upper`` at least: give up what no run reads any more, if it is time to.

        now: whatever the time. Raises `LeaseLostError` if the hold was given up, `UnavailableError`."""
        pin, since = self._pin, upper.step_back()
        is_due = self._moved is None or self._clock.monotonic() - self._moved >= DOWNGRADE_S
        if since <= pin.since or not (now or is_due):
            return
        self._moved = self._clock.monotonic()
        try:
            await pin.compare_and_downgrade(pin.token, str(upper), since)
        except TokenMismatchError:  # another relay has moved it, at most to where the collection ends
            await pin.refresh()
