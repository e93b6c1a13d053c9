"""Operators of numbers, byte strings and sets of byte strings.

========== ============================================== ==================================================
name       operand and value                              merged
========== ============================================== ==================================================
add_i64    8 bytes, little-endian, two's complement       their sum modulo 2^64; an absent value counts as 0
max, min   any bytes                                      the highest, the lowest in byte order
append     any bytes                                      one after another
set_union  members, each: u32 little-endian length, bytes all members, ascending in byte order, each once
========== ============================================== ==================================================
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from slate_async.errors import InvalidError

I64_BYTES: Final = 8
LENGTH_BYTES: Final = 4


def pack_i64(number: int) -> bytes:
    """``number`` modulo 2^64, as operands and values of ``add_i64`` are. Raises `InvalidError` for what is no int."""
    if not isinstance(number, int):
        raise InvalidError(f"pack_i64 takes an int, not {type(number).__name__}")
    return (number % 2**64).to_bytes(I64_BYTES, "little")


def unpack_i64(data: bytes) -> int:
    """The number in ``data``, from -2^63 to 2^63 - 1. Raises ``ValueError`` unless it has 8 bytes."""
    if len(data) != I64_BYTES:
        raise ValueError(f"a 64-bit integer has {I64_BYTES} bytes, not {len(data)}")
    return int.from_bytes(data, "little", signed=True)


def pack_set(members: Iterable[bytes]) -> bytes:
    """``members``, each once, as operands and values of ``set_union`` are. Raises `InvalidError` for what is none."""
    each = set(members)
    if not all(isinstance(member, bytes) for member in each):
        raise InvalidError("pack_set takes byte strings, a list or another iterable of them")
    return b"".join(len(member).to_bytes(LENGTH_BYTES, "little") + member for member in sorted(each))


def unpack_set(data: bytes) -> list[bytes]:
    """The members in ``data``, in its order. Raises ``ValueError`` if it does not end with a whole one."""
    return list(_members(data))


def _members(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        start = at + LENGTH_BYTES
        at = start + int.from_bytes(data[at:start], "little")
        if start > len(data) or at > len(data):
            raise ValueError("a set ends within a member; make one with pack_set")
        yield data[start:at]


class AddI64:
    """See the module docstring."""

    name = "add_i64"

    def check(self, operand: bytes) -> None:
        """See `MergeOperator`."""
        if len(operand) != I64_BYTES:
            unpack_i64(operand)  # which says what is wrong

    def fold(self, operands: Sequence[bytes]) -> bytes:
        """See `MergeOperator`."""
        if any(len(operand) != I64_BYTES for operand in operands):
            return pack_i64(sum(map(unpack_i64, operands)))  # which says what is wrong
        return pack_i64(sum(struct.unpack(f"<{len(operands)}q", b"".join(operands))))

    def apply(self, base: bytes | None, operands: Sequence[bytes]) -> bytes:
        """See `MergeOperator`."""
        return self.fold(operands if base is None else [base, *operands])


class Extreme:
    """``max`` and ``min``."""

    def __init__(self, name: str, choose: Callable[[Iterable[bytes]], bytes]) -> None:
        self.name = name
        self._choose = choose

    def check(self, operand: bytes) -> None:
        """See `MergeOperator`. Any bytes are an operand."""

    def fold(self, operands: Sequence[bytes]) -> bytes:
        """See `MergeOperator`."""
        return self._choose(operands)

    def apply(self, base: bytes | None, operands: Sequence[bytes]) -> bytes:
        """See `MergeOperator`."""
        return self._choose(operands if base is None else [base, *operands])


class Append:
    """See the module docstring."""

    name = "append"

    def check(self, operand: bytes) -> None:
        """See `MergeOperator`. Any bytes are an operand."""

    def fold(self, operands: Sequence[bytes]) -> bytes:
        """See `MergeOperator`."""
        return b"".join(operands)

    def apply(self, base: bytes | None, operands: Sequence[bytes]) -> bytes:
        """See `MergeOperator`."""
        return b"".join(operands if base is None else [base, *operands])


class SetUnion:
    """See the module docstring."""

    name = "set_union"

    def check(self, operand: bytes) -> None:
        """See `MergeOperator`."""
        for _ in _members(operand):
            pass

    def fold(self, operands: Sequence[bytes]) -> bytes:
        """See `MergeOperator`."""
        return pack_set(member for operand in operands for member in _members(operand))

    def apply(self, base: bytes | None, operands: Sequence[bytes]) -> bytes:
        """See `MergeOperator`."""
        return self.fold(operands if base is None else [base, *operands])
