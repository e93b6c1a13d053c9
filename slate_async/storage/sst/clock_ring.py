"""A clock: things in a circle, and a hand that takes out the next one nobody has used since it last came by.

Nearly as good as taking the one unused longest, and a use costs one attribute instead of a move in a list (the CLOCK
algorithm; Corbato 1968).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

SECOND_CHANCES = 64
"""The hand passes no more things than this at once, however many were used: a bound of one step's work."""


class Kept(Protocol):
    """Something in a ring. ``nbytes`` does not change; its user sets ``used``, the ring takes that back."""

    nbytes: int
    used: bool


Name = TypeVar("Name", bound=Hashable)
Thing = TypeVar("Thing", bound=Kept)


class Ring(Generic[Name, Thing]):
    """See the module docstring. ``nbytes``: of all things in it."""

    __slots__ = ("nbytes", "things")

    def __init__(self) -> None:
        self.things: OrderedDict[Name, Thing] = OrderedDict()
        self.nbytes = 0

    def add(self, name: Name, thing: Thing) -> None:
        """Put ``thing`` where the hand comes last. The name must be new."""
        self.things[name] = thing
        self.nbytes += thing.nbytes

    def remove(self, name: Name) -> Thing | None:
        """Take out what has that name, if anything has."""
        thing = self.things.pop(name, None)
        if thing is not None:
            self.nbytes -= thing.nbytes
        return thing

    def evict(self) -> tuple[Name, Thing]:
        """Take out the next thing that was not used. The ring must not be empty."""
        things = self.things
        for _ in range(SECOND_CHANCES):
            name, thing = things.popitem(last=False)
            if not thing.used:
                break
            thing.used = False
            things[name] = thing
        else:
            name, thing = things.popitem(last=False)
        self.nbytes -= thing.nbytes
        return name, thing

    def step(self) -> Thing | None:
        """Move the hand by one: take out what it comes to unless that was used. The ring must not be empty."""
        name, thing = self.things.popitem(last=False)
        if thing.used:
            thing.used = False
            self.things[name] = thing
            return None
        self.nbytes -= thing.nbytes
        return thing
