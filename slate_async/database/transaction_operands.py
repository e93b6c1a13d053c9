"""`OwnOperands`: what a transaction merges into one key, until it commits."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import NamedTuple, TypeAlias

from slate_async.engine.write.batch import BatchRows
from slate_async.errors import InvalidError
from slate_async.merge_operators.guarded import Guarded, needed
from slate_async.types import DELETE, MERGE, PUT


class OwnRow(NamedTuple):
    """A row that a commit writes. ``life_ms``: its time to live, ``None`` for ever."""

    value: bytes
    kind: int
    life_ms: int | None


class OwnOperands:
    """Operands, oldest first, on top of ``base``: what the transaction wrote to the key before; ``None``: nothing."""

    __slots__ = ("_base", "_merging", "_operands")

    def __init__(self, merging: Guarded, base: OwnRow | None) -> None:
        self._merging = merging
        self._base = base
        self._operands: list[OwnRow] = []

    def add(self, operand: OwnRow) -> None:
        """Another one. Raises `InvalidError` if it is none."""
        self._merging.check(operand.value)
        self._operands.append(operand)

    @property
    def on_stored(self) -> bool:
        """Whether what is stored counts."""
        return self._base is None

    def merged(self, key: bytes, stored: bytes | None) -> bytes:
        """What the transaction reads of ``key``, whose live value is ``stored``. Raises `MergeError`."""
        base = stored
        if self._base is not None:
            base = None if self._base.kind == DELETE else self._base.value
        return self._merging.merged(key, base, [operand.value for operand in self._operands])

    def rows(self) -> Iterator[OwnRow]:
        """In the order in which they are written."""
        if self._base is not None:
            yield self._base
        yield from self._operands


OwnWrite: TypeAlias = tuple[bytes | OwnOperands | None, int | None]
"""The value, ``None`` for a delete, and the time to live in milliseconds."""


def own_row(write: OwnWrite) -> OwnRow | None:
    """The row of a write of a value, or of a delete; ``None`` of operands."""
    value, life_ms = write
    if isinstance(value, OwnOperands):
        return None
    return OwnRow(b"", DELETE, life_ms) if value is None else OwnRow(value, PUT, life_ms)


def add_operand(writes: dict[bytes, OwnWrite], key: bytes, operand: OwnRow, merging: Guarded | None) -> None:
    """Merge ``operand`` into what is written to ``key``. Raises `InvalidError` if it is none, or nothing is merged."""
    own = writes.get(key)
    operands = own[0] if own is not None else None
    if not isinstance(operands, OwnOperands):
        operands = OwnOperands(needed(merging), None if own is None else own_row(own))
    operands.add(operand)
    writes[key] = (operands, None)


def rows_of(writes: dict[bytes, OwnWrite]) -> BatchRows:
    """The rows of a commit: of each key the last write, and the operands on top of it."""
    keys: list[bytes] = []
    rows: list[OwnRow] = []
    for key, write in writes.items():
        value, row = write[0], own_row(write)
        if row is not None:
            keys.append(key)
            rows.append(row)
        elif isinstance(value, OwnOperands):
            own = list(value.rows())
            keys += [key] * len(own)
            rows += own
    lives = [row.life_ms for row in rows]
    nbytes = sum(map(len, keys)) + sum(len(row.value) for row in rows)
    kinds = bytes(row.kind for row in rows)
    return BatchRows(keys, [row.value for row in rows], kinds, lives if any(lives) else None, nbytes)


def take_rows(writes: dict[bytes, OwnWrite], rows: BatchRows, merging: Guarded | None) -> None:
    """Write all of ``rows``, which are checked and have their times to live. Raises `InvalidError` for other rows than
    of single keys."""
    lives = rows.ttls_ms or repeat(None)
    for key, value, kind, life in zip(rows.keys, rows.values, rows.kinds, lives, strict=False):
        if kind == MERGE:
            add_operand(writes, key, OwnRow(value, MERGE, life), merging)
            continue
        if kind not in (PUT, DELETE) or (kind == DELETE and value):
            raise InvalidError(
                "a batch with rows of maps has only rows of single keys beside them", outcome="not_applied"
            )
        writes[key] = (None, None) if kind == DELETE else (value, life)
