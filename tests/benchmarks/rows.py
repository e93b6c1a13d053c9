"""The rows that are written and read: the same for every engine of a round."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Pair: TypeAlias = tuple[bytes, bytes]
KEY_BYTES = 16
VALUE_BYTES = 100
ROW_BYTES = KEY_BYTES + VALUE_BYTES


def make_rows(count: int, seed: int, value_bytes: int = VALUE_BYTES) -> list[Pair]:
    """Distinct random keys of 16 bytes with random values, which do not compress."""
    rng = random.Random(seed)
    return [(rng.randbytes(KEY_BYTES), rng.randbytes(value_bytes)) for _ in range(count)]


def compressible_rows(count: int, seed: int) -> list[Pair]:
    """As `make_rows`, but values halve when compressed: hexadecimal digits."""
    return [(key, value.hex().encode()) for key, value in make_rows(count, seed, VALUE_BYTES // 2)]


def missing_keys(count: int, seed: int) -> list[bytes]:
    """Keys between those of `make_rows`, none of which is there."""
    rng = random.Random(f"missing {seed}")
    return [rng.randbytes(KEY_BYTES) for _ in range(count)]


def cut(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """``items`` in pieces of ``size``."""
    return (items[at : at + size] for at in range(0, len(items), size))
