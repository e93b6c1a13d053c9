"""`MergeOperator`: how operands become one, and how they change a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class MergeOperator(Protocol):
    """A pure function of bytes, the same in every process and every release: what it made is stored.

    Operands are given in the order they were written, one at least. A call may come in any thread. Whatever the groups
    in which operands are folded and applied, the value is the same:

        apply(apply(base, first), then) == apply(base, first + then)
        apply(base, [fold(first), *then]) == apply(base, first + then)

    Operands that passed `check`, and what `fold` made of such, never make `fold` fail. They make `apply` fail only for
    a base that was put and is no value of this operator.
    """

    @property
    def name(self) -> str:
        """What databases store of it: lower case letters, digits, ``_``, ``-`` and ``.``, and a letter first."""
        ...

    def check(self, operand: bytes) -> None:
        """Raises ``ValueError`` that says why ``operand`` is none. Called before an operand is written."""
        ...

    def fold(self, operands: Sequence[bytes]) -> bytes | None:
        """One operand that does what ``operands`` do one after another; ``None`` from an operator that has none."""
        ...

    def apply(self, base: bytes | None, operands: Sequence[bytes]) -> bytes:
        """What ``operands`` make of ``base``; ``None``: there is no row. Raises ``ValueError`` if ``base`` is no value
        that can be merged with."""
        ...
