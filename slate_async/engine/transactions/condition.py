"""`Condition`: what must hold of a key's row for a conditional write. Pure."""

from __future__ import annotations

from typing import NamedTuple, TypedDict

from slate_async.arguments import BytesLike, value_bytes
from slate_async.errors import InvalidError
from slate_async.types import RowHit


class Condition(NamedTuple):
    """One of them: no live row; a live row with number ``seq``; a live row with ``value``."""

    absent: bool
    seq: int | None
    value: bytes | None

    def broken(self, hit: RowHit | None) -> str | None:
        """Why it does not hold where the key's live row is ``hit``; ``None``: it holds."""
        if self.absent:
            return None if hit is None else "present"
        if hit is None:
            return "absent"
        if self.seq is not None:
            return None if hit.seq == self.seq else "changed"
        return None if hit.value == self.value else "changed"


def condition(if_absent: bool, if_seq: int | None, if_value: BytesLike | None) -> Condition:
    """The condition that these arguments of a call ask for. Raises `InvalidError` for more than one."""
    if type(if_absent) is not bool:
        raise InvalidError(f"if_absent is True or False, not {if_absent!r}", outcome="not_applied")
    if if_absent + (if_seq is not None) + (if_value is not None) != 1:
        raise InvalidError("give one of if_absent, if_seq and if_value", outcome="not_applied")
    if if_seq is not None and (type(if_seq) is not int or if_seq < 1):
        raise InvalidError(f"if_seq is a row's sequence number, not {if_seq!r}", outcome="not_applied")
    return Condition(if_absent, if_seq, None if if_value is None else value_bytes(if_value))


class PutConditions(TypedDict, total=False):
    """Conditions of a put, of which a call gives one: see `Db.put`. ``None`` and ``False`` are none."""

    if_absent: bool
    """The key is not there, or its row has expired."""
    if_seq: int | None
    """The row has this sequence number."""
    if_value: BytesLike | None
    """The row has this value."""


CONDITIONS = PutConditions.__optional_keys__


def put_condition(conditions: PutConditions) -> Condition | None:
    """The condition among the keyword arguments of a put, if there is one. Raises `InvalidError` as `condition`.

    (Parameters of their own would cost every put a look for the default of each.)"""
    for name in conditions:
        if name not in CONDITIONS:
            raise TypeError(f"put() got an unexpected keyword argument {name!r}")
    if_absent, if_seq = conditions.get("if_absent", False), conditions.get("if_seq")
    if_value = conditions.get("if_value")
    if if_absent is False and if_seq is None and if_value is None:
        return None
    return condition(if_absent, if_seq, if_value)
