"""Times of updates: unsigned integers, or pairs of them under the product order.

A time is a tuple with one number for each coordinate, so a u64 time is a tuple of one. ``a <= b`` in the product order
iff it holds in every coordinate; join and meet are the larger and the smaller number of each coordinate. Columns of
times (`Times`) are one uint64 array for each coordinate.

Source: Murray et al., "Naiad: A Timely Dataflow System" (SOSP 2013), for partially ordered times; McSherry et al.,
"Differential Dataflow" (CIDR 2013), and its `Lattice` trait, for join, meet and `advance_by`.

Rule C1 of collections.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from enum import Enum
from typing import SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt

from slate_async.errors import InvalidError

TIME_END = 2**63
"""Times of updates are below it, so that they fit a signed column; a frontier may name it."""

Time: TypeAlias = tuple[int, ...]
"""One number for each coordinate."""

TimeLike: TypeAlias = SupportsIndex | Sequence[SupportsIndex]
"""What users write: ``5`` for a u64 time, ``(5, 0)`` for a pair."""

Times: TypeAlias = tuple[npt.NDArray[np.uint64], ...]
"""A column of times: an array for each coordinate, all of one length."""


class TimeKind(Enum):
    """What the times of a collection are; chosen when it is created. The value is its stored name.

    coordinates: how many numbers a time has
    minimum: the time at or before all others
    columns: names of the columns that hold times
    """

    U64 = "u64"
    U64X2 = "u64x2"

    coordinates: int
    minimum: Time
    columns: tuple[str, ...]

    def __init__(self, name: str) -> None:
        self.coordinates = 2 if name.endswith("x2") else 1
        self.minimum = (0,) * self.coordinates
        self.columns = ("_time", "_time2")[: self.coordinates]

    def time(self, value: TimeLike, end: int = TIME_END) -> Time:
        """``value`` as a time, each number of which is below ``end``.

        Raises `InvalidError` for other kinds of times, booleans, and numbers outside 0 to ``end - 1``."""
        if type(value) is int and self.coordinates == 1 and 0 <= value < end:
            return (value,)
        numbers = value if isinstance(value, tuple | list) else (value,)
        if len(numbers) != self.coordinates:
            raise InvalidError(f"{value!r} is no {self.value} time: that takes {self._takes}")
        return tuple(_number(number, end) for number in numbers)

    @property
    def _takes(self) -> str:
        return "an integer" if self is TimeKind.U64 else "a tuple of two integers"


def less_equal(time: Time, other: Time) -> bool:
    """Whether ``time`` is at or before ``other``: in every coordinate. Two times may be so neither way round."""
    if len(time) == 1:
        return time[0] <= other[0]
    return all(map(operator.le, time, other))


def join(time: Time, other: Time) -> Time:
    """The first time at or after both."""
    return tuple(map(max, time, other))


def meet(time: Time, other: Time) -> Time:
    """The last time at or before both."""
    return tuple(map(min, time, other))


def advance_by(times: Times, since: Sequence[Time]) -> Times:
    """Rule C1: each time as late as it may become without a change to the contents at any time at or beyond ``since``.

    since: the elements of a frontier; none of them leaves times as they are

    The definition is the meet over f in ``since`` of ``t join f``. Times are a distributive lattice, so that is
    ``t join (meet of all f)``: one comparison for each number, however many elements there are. Joining the elements
    in place of meeting them is right in one coordinate only."""
    if not since:
        return times
    return tuple(
        np.maximum(column, np.uint64(min(numbers)))
        for column, numbers in zip(times, zip(*since, strict=True), strict=True)
    )


def advance(time: Time, since: Sequence[Time]) -> Time:
    """`advance_by` of one time."""
    return (
        tuple(max(number, min(numbers)) for number, numbers in zip(time, zip(*since, strict=True), strict=True))
        if since
        else time
    )


def _number(value: SupportsIndex, end: int) -> int:
    if isinstance(value, bool | np.bool_):
        raise InvalidError(f"{value} is no number of a time")
    try:
        number = operator.index(value)
    except TypeError as error:
        raise InvalidError(f"{value!r} is no number of a time: it takes an integer") from error
    if not 0 <= number < end:
        raise InvalidError(f"{number} is outside the numbers of times, which are 0 to {end - 1}")
    return number
