"""`Pins`: which versions the scans and listeners of one handle use. The hold moves past none of them (C13).

Rule C13 of collections.
"""

from __future__ import annotations

from slate_async.collections.core.area import Area


class Pins:
    """Of one handle."""

    def __init__(self) -> None:
        self._used: dict[int, int] = {}

    def take(self, area: Area) -> Pin:
        """Pin ``area``, which the hold covers."""
        self._used[area.version] = self._used.get(area.version, 0) + 1
        return Pin(self, area)

    def lowest(self, newest: int) -> int:
        """What the hold may move to: the lowest version that is used, or ``newest``."""
        return min(self._used, default=newest)

    def release(self, version: int) -> None:
        """Once for each `take`."""
        self._used[version] -= 1
        if not self._used[version]:
            del self._used[version]


class Pin:
    """One use of ``area``, until it is released or nobody refers to it."""

    def __init__(self, pins: Pins, area: Area) -> None:
        self._pins: Pins | None = pins
        self.area = area

    def again(self) -> Pin:
        """One more pin of the same version."""
        if self._pins is None:
            raise RuntimeError(f"version {self.area.version} was released")
        return self._pins.take(self.area)

    def release(self) -> None:
        """Idempotent."""
        pins, self._pins = self._pins, None
        if pins is not None:
            pins.release(self.area.version)

    def __del__(self) -> None:
        self.release()
