"""Sightings: what the head was at which time, kept as the names of empty objects under ``gc/heads/``.

A collector may refuse work (by raising ``sst_floor`` past the version it was begun at) only when that work is older
than ``min_age``, so it must know what the head was that long ago. Collectors come and go, run from cron, and are
killed; so the knowledge is in the store, as ``gc/heads/{version:020}.{wall clock ms:015}``.

Nothing rests on it for safety: a wrong clock makes a collector refuse work too early, or delete garbage too late.
Sightings exist only while there is garbage that is too young, at most about `MOST` of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

PREFIX = "gc/heads/"
MOST = 8
_KEY = re.compile(r"gc/heads/(\d{20})\.(\d{15})")


class Sighting(NamedTuple):
    """At ``seen_ms`` the head was ``version``."""

    version: int
    seen_ms: int

    @property
    def key(self) -> str:
        """The key that says so."""
        return f"{PREFIX}{self.version:020}.{self.seen_ms:015}"


NEVER = Sighting(0, 0)


def parse_sighting(key: str) -> Sighting | None:
    """What ``key`` says, or ``None`` if it is not the key of a sighting."""
    match = _KEY.fullmatch(key)
    return Sighting(int(match[1]), int(match[2])) if match else None


def newest_until(sightings: Sequence[Sighting], time_ms: int) -> Sighting:
    """The newest version that was seen at ``time_ms`` or before; `NEVER` if there is none."""
    return max((sighting for sighting in sightings if sighting.seen_ms <= time_ms), default=NEVER)


class Changes(NamedTuple):
    """What to do about the sightings in the store."""

    add: tuple[Sighting, ...] = ()
    remove: tuple[Sighting, ...] = ()


def revise(known: Sequence[Sighting], now: Sighting, *, min_age_ms: int, skew_ms: int, waiting: bool) -> Changes:
    """Which sightings to keep, now that the head is ``now``. Without garbage ``waiting`` for its age, none.

    Those older than the newest one of ``min_age_ms`` are of no use any more, those from the future wrong."""
    if not waiting:
        return Changes(remove=tuple(known))
    aged = newest_until(known, now.seen_ms - min_age_ms)
    kept = [sighting for sighting in known if sighting >= aged and sighting.seen_ms <= now.seen_ms + skew_ms]
    seen_already = any(sighting.version == now.version for sighting in kept)
    recent = any(sighting.seen_ms > now.seen_ms - min_age_ms // MOST for sighting in kept)
    return Changes(
        add=() if seen_already or recent else (now,),
        remove=tuple(sighting for sighting in known if sighting not in kept),
    )
