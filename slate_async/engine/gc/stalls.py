"""Stalls: since when the registered compactions stand as they do, kept as the name of an empty object under
``gc/compactors/``.

A compaction whose compactor died holds ``sst_floor`` down, and nothing in the store tells a dead compactor from a live
one; but a live one finishes a key range now and then. So a collector notes the `work_mark` of what is registered, as
``gc/compactors/{mark}.{wall clock ms:015}``, and by the time of the oldest such note it knows for how long nothing was
put down, however often collectors are started anew.

Nothing rests on it for safety: a wrong clock makes a compactor begin again, or garbage wait.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_KEY = re.compile(r"gc/compactors/(\d{20}\.[0-9a-f]{16})\.(\d{15})")


class Stall(NamedTuple):
    """At ``seen_ms`` the registered compactions stood as ``mark`` says."""

    mark: str
    seen_ms: int

    @property
    def key(self) -> str:
        """The key that says so."""
        return f"gc/compactors/{self.mark}.{self.seen_ms:015}"


def parse_stall(key: str) -> Stall | None:
    """What ``key`` says, or ``None`` if it is not the key of such a note."""
    match = _KEY.fullmatch(key)
    return Stall(match[1], int(match[2])) if match else None


def stands_since(known: Sequence[Stall], mark: str, now_ms: int, skew_ms: int) -> int:
    """When the work was first seen as ``mark`` says: now, unless it was noted. What is noted of a time that no clock
    can have reached is wrong."""
    return min(
        (stall.seen_ms for stall in known if stall.mark == mark and stall.seen_ms <= now_ms + skew_ms), default=now_ms
    )


class StallChanges(NamedTuple):
    """Keys to put and to delete."""

    add: tuple[str, ...]
    remove: tuple[str, ...]


def revise_stalls(known: Sequence[Stall], mark: str, now_ms: int, skew_ms: int) -> StallChanges:
    """What makes of ``known`` the one oldest note of ``mark``; none if that is empty."""
    wanted = {Stall(mark, stands_since(known, mark, now_ms, skew_ms)).key} if mark else set[str]()
    there = [stall.key for stall in known]
    return StallChanges(
        add=tuple(key for key in wanted if key not in there), remove=tuple(key for key in there if key not in wanted)
    )
