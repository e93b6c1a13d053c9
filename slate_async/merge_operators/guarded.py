"""An operator called so that nothing it does can cost a row.

A read that cannot merge raises, and names the key. Where rows are rewritten, a fold that fails is none: the operands
stay as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from slate_async.errors import InvalidError
from slate_async.merge_operators.protocol import MergeOperator
from slate_async.merge_operators.registry import merge_operator
from slate_async.types import MAX_VALUE_BYTES

logger = logging.getLogger(__name__)
SHOWN_KEY_BYTES = 64


class MergeError(InvalidError):
    """The value of a key cannot be merged with its operands. Put or delete the key, and it can be read again."""

    key: bytes
    """Whose value."""

    def __init__(self, message: str, *, key: bytes) -> None:
        super().__init__(message)
        self.key = key


def merging(name: str | None, *, of: str = "the database", numbered_by_newest: bool = False) -> Guarded | None:
    """The operator called ``name``, if there is to be one. Raises `ConfigError` if this process does not have it."""
    return None if name is None else Guarded(merge_operator(name, of=of), numbered_by_newest=numbered_by_newest)


def needed(found: Guarded | None) -> Guarded:
    """``found``, for a write of operands. Raises `InvalidError` if the database has no operator."""
    if found is None:
        raise InvalidError(
            "the database has no merge operator; one is chosen when a database is created (merge_operator)",
            outcome="not_applied",
        )
    return found


class Guarded:
    """``operator``, whose answers are checked.

    numbered_by_newest: a merged row has the number of its newest operand even if that has expired, not of the newest
    that counts
    """

    def __init__(self, operator: MergeOperator, *, numbered_by_newest: bool = False) -> None:
        self.operator = operator
        self.numbered_by_newest = numbered_by_newest
        self.failures = 0
        """How often `folded` and `settled` were given up."""

    def check(self, operand: bytes) -> None:
        """Raises `InvalidError` if ``operand`` is none."""
        try:
            self.operator.check(operand)
        except Exception as error:
            raise InvalidError(
                f"not an operand of {self.operator.name}: {_said(error)}", outcome="not_applied"
            ) from error

    def merged(self, key: bytes, base: bytes | None, operands: Sequence[bytes]) -> bytes:
        """The value of ``key``. Raises `MergeError`."""
        try:
            return _checked(self.operator.apply(base, operands))
        except Exception as error:
            shown = f"{key[:SHOWN_KEY_BYTES]!r}{'…' if len(key) > SHOWN_KEY_BYTES else ''}"
            raise MergeError(
                f"the value of {shown} cannot be merged by {self.operator.name}: {_said(error)}; put or delete the key",
                key=key,
            ) from error

    def folded(self, operands: Sequence[bytes]) -> bytes | None:
        """One operand in the place of ``operands``; ``None``: they stay."""
        try:
            found = self.operator.fold(operands)
            return None if found is None else _checked(found)
        except Exception as error:  # noqa: BLE001
            self._failed(error)
            return None

    def settled(self, base: bytes | None, operands: Sequence[bytes]) -> bytes | None:
        """One value in the place of ``base`` and ``operands``; ``None``: they stay."""
        try:
            return _checked(self.operator.apply(base, operands))
        except Exception as error:  # noqa: BLE001
            self._failed(error)
            return None

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        if self.failures == 1:
            logger.warning("operands of %s stay as they are: %s", self.operator.name, _said(error))


def _checked(made: object) -> bytes:
    if not isinstance(made, bytes):
        raise TypeError(f"it made {type(made).__name__}, not bytes")
    if len(made) > MAX_VALUE_BYTES:
        raise ValueError(f"{len(made)} bytes are more than a value has")
    return made


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
