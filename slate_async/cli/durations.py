"""Durations as people write them: ``"7days 30min 10s"``, ``"90s"``, ``"1.5h"``."""

from __future__ import annotations

import re

from slate_async.errors import InvalidError

_UNITS_MS = {
    "ms": 1,
    "s": 1_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 7 * 86_400_000,
    "y": 365 * 86_400_000,
}
_NAMES = {
    "ms": ("ms", "millisecond", "milliseconds"),
    "s": ("s", "sec", "secs", "second", "seconds"),
    "min": ("m", "min", "mins", "minute", "minutes"),
    "h": ("h", "hr", "hrs", "hour", "hours"),
    "d": ("d", "day", "days"),
    "w": ("w", "week", "weeks"),
    "y": ("y", "year", "years"),
}
_MS = {name: _UNITS_MS[unit] for unit, names in _NAMES.items() for name in names}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*,?", re.IGNORECASE)
LONGEST_MS = 1_000 * _UNITS_MS["y"]


def parse_duration(text: str, *, what: str) -> int:
    """Milliseconds. A year has 365 days. Raises `InvalidError`, naming ``what``, for anything but such a duration
    longer than 0 and up to 1,000 years."""
    total, end = 0.0, 0
    while end < len(text.rstrip()):
        part = _PART.match(text, end)
        unit = None if part is None else _MS.get(part[2].lower())
        if part is None or unit is None:
            raise InvalidError(f"{what}: {text!r} is no duration; write it like '7days 30min 10s', '90s' or '1.5h'")
        total += float(part[1]) * unit
        end = part.end()
    if not 0.5 < total <= LONGEST_MS:  # judged before rounding, which infinity does not survive
        raise InvalidError(f"{what}: {text!r} is not longer than 0 and up to 1,000 years")
    return round(total)
