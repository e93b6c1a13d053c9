"""How the values of collections are stored in MessagePack maps.

A frontier is an array of its elements: integers where times are u64, arrays of two integers where they are pairs; the
empty array is ``done``. Bounds are an array of three frontiers. A sum of differences may leave 64 bits: it is an
integer while it fits, else its bytes.
"""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import Any

from slate_async.codec.records import Conversion, Conversions
from slate_async.collections.core.bounds import Bounds
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.times import TIME_END, Time, TimeKind

_INT64_END = 2**63


def pack_frontier(frontier: Frontier) -> list[Any]:
    """``frontier`` as MessagePack knows it."""
    return [element[0] if len(element) == 1 else list(element) for element in frontier.elements]


def unpack_frontier(packed: list[Any], kind: TimeKind) -> Frontier:
    """What `pack_frontier` was given. Raises `ValueError` or `TypeError` for anything else."""
    elements = tuple(_time(element, kind) for element in packed)
    frontier = Frontier(elements)
    if frontier.elements != elements:
        raise ValueError(f"{packed} is no sorted antichain")
    return frontier


def pack_sum(total: int) -> int | bytes:
    """A sum of differences."""
    if -_INT64_END <= total < _INT64_END:
        return total
    return total.to_bytes(total.bit_length() // 8 + 1, "big", signed=True)


def unpack_sum(packed: int | bytes) -> int:
    """What `pack_sum` was given."""
    return packed if isinstance(packed, int) else int.from_bytes(packed, "big", signed=True)


@cache
def conversions(kind: TimeKind) -> Conversions:
    """Conversions of a collection whose times are of ``kind``: of frontiers, bounds, and the field ``diff_sum``."""

    def frontier(packed: list[Any]) -> Frontier:
        return unpack_frontier(packed, kind)

    def bounds(packed: list[Any]) -> Bounds:
        lower, upper, since = map(frontier, packed)
        return Bounds(lower, upper, since)

    return MappingProxyType(
        {
            Frontier: Conversion(pack_frontier, frontier),
            Bounds: Conversion(_pack_bounds, bounds),
            "diff_sum": Conversion(pack_sum, unpack_sum),
        }
    )


def _pack_bounds(bounds: Bounds) -> list[Any]:
    return [pack_frontier(frontier) for frontier in (bounds.lower, bounds.upper, bounds.since)]


def _time(packed: Any, kind: TimeKind) -> Time:
    """An element of a frontier; its numbers may be `TIME_END`."""
    numbers = tuple(packed) if isinstance(packed, list) else (packed,)
    return kind.time(numbers, TIME_END + 1)
