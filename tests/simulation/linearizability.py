"""Is a history of one register linearizable?

The search of Wing and Gong ("Testing and verifying concurrent objects", 1993) with the memo of Lowe ("Testing for
linearizability", 2017), for a register that is written and read. Three facts keep it small: a read that may go next
and shows the current value may always go at once; a write without an answer is worth placing only if a read that is
still to come shows its value; a set of placed operations together with a value is never searched twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

NEVER = math.inf


@dataclass(frozen=True, slots=True)
class RegisterOp:
    """One operation on the register.

    value: what was written or read, ``None`` for absent
    start, end: when it was called and when it returned; `NEVER` for a write whose outcome is not known: it may take
    effect at any time after its start, or not at all
    """

    kind: Literal["read", "write"]
    value: bytes | None
    start: float
    end: float


class SearchTooLargeError(Exception):
    """The history needs more steps than the limit. Not a verdict."""


def linearizable(ops: Sequence[RegisterOp], *, initial: bytes | None = None, max_states: int = 200_000) -> bool:
    """Whether one order of the operations explains every read and respects real time.

    Raises `SearchTooLargeError` after ``max_states`` states."""
    ordered = sorted((op for op in ops if op.kind == "write" or op.end != NEVER), key=lambda op: (op.start, op.end))
    required = sum(1 << index for index, op in enumerate(ordered) if op.end != NEVER)
    seen: set[tuple[int, bytes | None]] = set()
    stack: list[tuple[int, bytes | None]] = [(0, initial)]
    while stack:
        done, value = stack.pop()
        done = _place_reads(ordered, done, value)
        if done & required == required:
            return True
        if (done, value) in seen:
            continue
        seen.add((done, value))
        if len(seen) > max_states:
            raise SearchTooLargeError(f"{len(ordered)} operations, {max_states} states")
        wanted = {op.value for index, op in enumerate(ordered) if op.kind == "read" and not done >> index & 1}
        for index in _able(ordered, done):
            op = ordered[index]
            if op.kind == "write" and (op.end != NEVER or op.value in wanted):
                stack.append((done | 1 << index, op.value))
    return False


def _able(ordered: Sequence[RegisterOp], done: int) -> list[int]:
    """Operations that may go next: nothing unplaced returned before they were called."""
    able: list[int] = []
    first_end = NEVER
    for index, op in enumerate(ordered):  # by start: once one starts past an end, all later ones do
        if op.start > first_end:
            break
        if not done >> index & 1:
            able.append(index)
            first_end = min(first_end, op.end)
    return [index for index in able if ordered[index].start <= first_end]


def _place_reads(ordered: Sequence[RegisterOp], done: int, value: bytes | None) -> int:
    """Place every read that may go now and shows ``value``."""
    while True:
        placed = done
        for index in _able(ordered, done):
            op = ordered[index]
            if op.kind == "read" and op.value == value:
                placed |= 1 << index
        if placed == done:
            return done
        done = placed
