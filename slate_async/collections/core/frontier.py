"""Frontiers: how far something has come in partially ordered time.

A frontier is an antichain: a set of times of which none is at or before another one. A time is *beyond* a frontier if
one of its elements is at or before that time. ``F <= G`` iff everything beyond G is beyond F as well. `DONE`, the empty
frontier, has nothing beyond it and is above all others. Frontiers are a lattice: what is beyond a join is beyond both
frontiers, what is beyond a meet is beyond one of them.

Text: ``120`` for u64 times, ``(0,5)|(3,0)`` for pairs, ``done``.

Invariant: ``elements`` are minimal, different, and sorted, so equal frontiers have equal elements and equal hashes.

Source: Murray et al., "Naiad: A Timely Dataflow System" (SOSP 2013); `Antichain` of timely dataflow.

Rules C1 and C2 of collections.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import SupportsIndex, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from slate_async.collections.core import times
from slate_async.collections.core.times import TIME_END, Time, TimeKind, TimeLike, Times
from slate_async.errors import InvalidError

MAX_ELEMENTS = 16
"""A list of times that a user gives has at most so many."""
MAX_JOINED = 256
"""Joins and meets may have more elements, as the coverage of several writers has. A user who was given one may give it
back, whole or as text, if it has at most so many."""

Mask: TypeAlias = npt.NDArray[np.bool_]

_DONE_TEXT = "done"
_PAIR = re.compile(r"\((0|[1-9][0-9]{0,18}),(0|[1-9][0-9]{0,18})\)")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Frontier:
    """An antichain of times; made of any times, of which it keeps the minimal ones.

    elements: sorted; none for `DONE`. All have as many coordinates
    """

    elements: tuple[Time, ...]

    def __init__(self, elements: Iterable[Time] = ()) -> None:
        object.__setattr__(self, "elements", _minimal(elements))

    @classmethod
    def minimum(cls, kind: TimeKind) -> Frontier:
        """The frontier that every time of ``kind`` is beyond."""
        return _MINIMA[kind]

    @classmethod
    def of(cls, value: FrontierLike, kind: TimeKind) -> Frontier:
        """What a user gives as a frontier: a `Frontier`, a time, or a list of times.

        Raises `InvalidError` for times of another kind, for an empty list (`DONE` says so by name), for a list of more
        than `MAX_ELEMENTS` times, and for a `Frontier` of more than `MAX_JOINED` elements."""
        if type(value) is int and kind is TimeKind.U64 and 0 <= value <= TIME_END:
            return cls(((value,),))
        if isinstance(value, Frontier):
            if any(len(element) != kind.coordinates for element in value.elements):
                raise InvalidError(f"the frontier {value} has no {kind.value} times")
            elements: Sequence[Time] = [kind.time(element, TIME_END + 1) for element in value.elements]
            most = MAX_JOINED
        else:
            elements, most = _elements(value, kind), MAX_ELEMENTS
        frontier = cls(elements)
        if len(frontier.elements) > most:
            raise InvalidError(f"a frontier has at most {most} elements, not {len(frontier.elements)}")
        return frontier

    @classmethod
    def parse(cls, text: str, kind: TimeKind) -> Frontier:
        """What ``str`` of a frontier gave. Raises `InvalidError` for any other text."""
        if text == _DONE_TEXT:
            return DONE
        form = _NUMBER if kind is TimeKind.U64 else _PAIR
        parts = text.split("|")
        found = [form.fullmatch(part) for part in parts]
        if (kind is TimeKind.U64 and len(parts) > 1) or not all(found):
            example = "120" if kind is TimeKind.U64 else "(0,5)|(3,0)"
            raise InvalidError(f"{text!r} is no frontier of {kind.value} times, such as {example} or {_DONE_TEXT}")
        numbers = [(match.groups() or (match[0],)) for match in found if match]
        return cls.of(cls(tuple(map(int, number)) for number in numbers), kind)

    @property
    def is_done(self) -> bool:
        """Whether nothing is beyond it."""
        return not self.elements

    def less_equal(self, time: Time) -> bool:
        """Whether ``time`` is beyond this frontier: at or after one of its elements."""
        return any(times.less_equal(element, time) for element in self.elements)

    def mask(self, columns: Times) -> Mask:
        """`less_equal` of each of ``columns``."""
        beyond = np.zeros(len(columns[0]), np.bool_)
        for element in self.elements:
            after = columns[0] >= np.uint64(element[0])
            for column, number in zip(columns[1:], element[1:], strict=True):
                after &= column >= np.uint64(number)
            beyond |= after
        return beyond

    def __le__(self, other: Frontier) -> bool:
        """Whether everything beyond ``other`` is beyond this one. Two frontiers may be so neither way round."""
        mine, its = self.elements, other.elements
        if len(mine) == len(its) == 1:
            return times.less_equal(mine[0], its[0])
        return all(self.less_equal(element) for element in other.elements)

    def __lt__(self, other: Frontier) -> bool:
        return self != other and self <= other

    def __ge__(self, other: Frontier) -> bool:
        return other <= self

    def __gt__(self, other: Frontier) -> bool:
        return other < self

    def join(self, other: Frontier) -> Frontier:
        """The lowest frontier at or above both: beyond it is what is beyond both."""
        return Frontier(times.join(mine, its) for mine in self.elements for its in other.elements)

    def meet(self, other: Frontier) -> Frontier:
        """The highest frontier at or below both: beyond it is what is beyond one of them."""
        return Frontier(self.elements + other.elements)

    def step_back(self) -> Frontier:
        """The highest frontier strictly below this one: each number one lower, where it is not 0."""
        return Frontier(tuple(max(number - 1, 0) for number in element) for element in self.elements)

    def strictly_below(self, other: Frontier) -> bool:
        """Whether times that were advanced to this frontier can still be cut at ``other``.

        For every element c of ``other`` some element s of this one has ``s[i] < c[i]`` or ``s[i] == 0`` in every
        coordinate. No such s is above c stepped back, so it is ``self <= other.step_back()``."""
        return self <= other.step_back()

    def coarsened(self, limit: int = MAX_ELEMENTS) -> Frontier:
        """A frontier at or below this one with at most ``limit`` elements, the last of which stands for the rest.

        What may be compacted to a frontier may be compacted to a lower one, so a since can be kept small."""
        if len(self.elements) <= limit:
            return self
        rest = self.elements[limit - 1 :]
        return Frontier((*self.elements[: limit - 1], tuple(map(min, zip(*rest, strict=True)))))

    def advance_by(self, columns: Times) -> Times:
        """``columns`` with each time as late as it may be for readers at or beyond this frontier."""
        return times.advance_by(columns, self.elements)

    def __str__(self) -> str:
        if not self.elements:
            return _DONE_TEXT
        if len(self.elements[0]) == 1:
            return str(self.elements[0][0])
        return "|".join(f"({','.join(map(str, element))})" for element in self.elements)

    def __repr__(self) -> str:
        return f"Frontier({self})"


FrontierLike: TypeAlias = Frontier | SupportsIndex | Sequence[SupportsIndex] | Sequence[Sequence[SupportsIndex]]
"""What users write: ``120``, ``(3, 0)``, ``[(3, 0), (0, 5)]``, or ``DONE``."""


def _minimal(elements: Iterable[Time]) -> tuple[Time, ...]:
    """Those of ``elements`` that are not at or after another one, sorted.

    A time sorts after all that are before it, so each needs to be compared with those that were kept only."""
    if type(elements) is tuple and len(elements) == 1:
        return elements
    found = set(elements)
    if len(found) == 1:
        return tuple(found)
    kept: list[Time] = []
    for element in sorted(found):
        if not any(times.less_equal(smaller, element) for smaller in kept):
            kept.append(element)
    return tuple(kept)


DONE = Frontier()
"""The empty frontier: nothing comes any more."""
_MINIMA = {kind: Frontier((kind.minimum,)) for kind in TimeKind}


def join_all(frontiers: Iterable[Frontier], start: Frontier) -> Frontier:
    """The join of ``start`` and all ``frontiers``."""
    for frontier in frontiers:
        start = start.join(frontier)
    return start


def meet_all(frontiers: Iterable[Frontier]) -> Frontier:
    """The meet of all ``frontiers``; `DONE` of none."""
    return Frontier(element for frontier in frontiers for element in frontier.elements)


def _elements(value: FrontierLike, kind: TimeKind) -> list[Time]:
    """``value`` as times. Their numbers may be `TIME_END`: the frontier after the last time."""
    if isinstance(value, list) or (isinstance(value, tuple) and any(isinstance(item, tuple | list) for item in value)):
        if not value:
            raise InvalidError("a frontier of no elements is written DONE")
        return [kind.time(element, TIME_END + 1) for element in value]
    return [kind.time(cast(TimeLike, value), TIME_END + 1)]
