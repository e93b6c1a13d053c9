"""The controller's rules, each with the way to break it. `SWITCHES`: those of which a history notices it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from slate_async.collections.codec.life import Appends
from slate_async.collections.controller import collect
from slate_async.collections.controller.context import ControllerContext
from slate_async.collections.controller.flights import Flights
from slate_async.collections.core.area import Area, MergedBatch, find_neighbours
from slate_async.collections.core.edits import Absorb, check_open
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.garbage import Listed, Picture
from slate_async.collections.core.sweep import Listing

Patches = Sequence[tuple[str, Any]]
_CONTROLLER, _CORE = "slate_async.collections.controller", "slate_async.collections.core"


@dataclass(frozen=True)
class Switch:
    """One rule, broken. ``within``: so many histories notice it."""

    name: str
    broken: str
    patches: Patches
    within: int = 24
    appends: Appends = Appends.DEFINITE


def always(*_: object) -> bool:
    """Yes."""
    return True


def never(*_: object) -> bool:
    """No."""
    return False


def unchecked(*_: object) -> None:
    """No assertion."""


UNCHECKED: Patches = (
    ("slate_async.collections.store.versions.check_successor", unchecked),
    (f"{_CORE}.edits.check_result", unchecked),
)
"""Assertions that notice what a wrong edit makes before a reader does."""


def as_met(head: Area, meet: Frontier | None) -> Frontier:
    """Whatever the holds allow that were listed."""
    return head.bound if meet is None or meet.is_done else meet


def last_of(sinces: list[Frontier]) -> Frontier:
    """Any hold speaks for all."""
    return sinces[-1]


def lowest_now(published: Area, held: Iterable[int]) -> int:
    """No version is needed but the head that was read, and those that are held."""
    return min((published.version, *held))


def untrimmed(taken: Any) -> bool:
    """All rows of a batch are taken."""
    return True


async def revoked_unasked(self: Any, name: str, stored: Any) -> bool:
    """A lease that ran out is taken for revoked."""
    return True


def all_counts(passed_ms: float, lease_ms: int) -> float:
    """A lease goes on while nobody could look."""
    return passed_ms


def ends_when_read(listing: Listing, number: int) -> bool:
    """The holds are listed once."""
    return number > 0 or not listing.unread


def unfenced(area: Area, epoch: int) -> None:
    """Any epoch may commit."""
    check_open(area)


def absorb_anywhere(self: Absorb, area: Area) -> Area | None:
    """Whatever the upper is by now."""
    unfenced(area, self.epoch)
    if self.batch.name in area.names():
        return None
    return area.following(
        batches=(*area.batches, self.batch), upper=area.upper.join(self.batch.bounds.upper), last=self.last
    )


def find_somewhere(batches: Sequence[MergedBatch], named: Sequence[str]) -> slice | None:
    """If the inputs are not there, those that stand where they might have."""
    found = find_neighbours(batches, named)
    if found is not None or not batches:
        return found
    return slice(max(len(batches) - len(named), 0), len(batches))


def lowest_and_head(lowest: int, head: int) -> Sequence[int]:
    """Versions between are not read."""
    return [lowest] if 0 < lowest < head else []


def head_cuts_off(lowest: Frontier, head: Frontier) -> Frontier:
    """Of the head."""
    return head


async def look_late(
    context: ControllerContext, lowest: int, flights: Flights, known: dict[int, Area]
) -> Picture | None:
    """Files are listed after the versions were read."""
    picture = await _look(context, lowest, flights, known)
    if picture is None:
        return None
    files = await collect.list_merged(context.store, context.schema)
    return replace(picture, listed=Listed(lowest, tuple(files), flights.names))


_look: Callable[..., Any] = collect.look

UNFENCED: Patches = (
    (f"{_CORE}.edits.check_epoch", unfenced),
    (f"{_CONTROLLER}.round.check_epoch", unfenced),
    (f"{_CONTROLLER}.merger.check_epoch", unfenced),
)

SWITCHES: Sequence[Switch] = (
    Switch("C4", "rows that were covered are taken again", [(f"{_CONTROLLER}.pending.is_whole", untrimmed)]),
    Switch("C16 of all", "one hold speaks for all", [(f"{_CORE}.sweep.meet_of", last_of)]),
    Switch("C20", "an edit of any epoch applies", UNFENCED, within=40),
    Switch(
        "C21 of an absorb",
        "what was absorbed is applied wherever the collection ends by now",
        [(f"{_CORE}.edits.Absorb.apply", absorb_anywhere), *UNFENCED, *UNCHECKED],
    ),
    Switch(
        "C21 of a merge",
        "a merge is applied if its inputs are not there",
        [(f"{_CORE}.edits.find_neighbours", find_somewhere), *UNFENCED, *UNCHECKED],
    ),
    Switch("C22", "files in flight are collected", [(f"{_CORE}.garbage.is_in_flight", never)]),
    Switch("C24 of the order", "files are listed last", [(f"{_CONTROLLER}.collect.look", look_late)]),
    Switch("C24 of versions", "versions between are not read", [(f"{_CORE}.garbage.needed_versions", lowest_and_head)]),
    Switch("C25", "pending batches go when the head covers them", [(f"{_CORE}.garbage.cut_off", head_cuts_off)]),
)
