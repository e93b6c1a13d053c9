"""`Condition`: what must hold of a key's row for a conditional write. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import NamedTuple, TypedDict, cast

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


class DeleteConditions(TypedDict, total=False):
    """Conditions of a delete, of which a call gives one: see `Db.delete`. ``None`` is no condition, but an error."""

    if_seq: int
    """The row has this sequence number."""
    if_value: BytesLike
    """The row has this value."""


class PutConditions(TypedDict, total=False):
    """Conditions of a put, of which a call gives one: see `Db.put`. ``if_absent=False`` is none."""

    if_seq: int
    """The row has this sequence number."""
    if_value: BytesLike
    """The row has this value."""
    if_absent: bool
    """The key is not there, or its row has expired."""


OF_DELETE = DeleteConditions.__optional_keys__
OF_PUT = PutConditions.__optional_keys__


def put_condition(conditions: PutConditions) -> Condition | None:
    """The condition among the keyword arguments of a put, if there is one. Raises `InvalidError` for more than one.

    (Parameters of their own would cost every put a look for the default of each.)"""
    return _condition("put", OF_PUT, conditions)


def delete_condition(conditions: DeleteConditions) -> Condition | None:
    """As `put_condition`, of a delete."""
    return _condition("delete", OF_DELETE, conditions)


def _condition(call: str, known: Set[str], given: Mapping[str, object]) -> Condition | None:
    for name in given:
        if name not in known:
            raise TypeError(f"{call}() got an unexpected keyword argument {name!r}")
    absent = given.get("if_absent", False)
    if type(absent) is not bool:
        raise InvalidError(f"if_absent is True or False, not {absent!r}", outcome="not_applied")
    if absent + ("if_seq" in given) + ("if_value" in given) > 1:
        raise InvalidError("give one of if_absent, if_seq and if_value", outcome="not_applied")
    if "if_seq" in given:
        seq = given["if_seq"]
        if type(seq) is not int or seq < 1:
            raise InvalidError(f"if_seq is a row's sequence number, not {seq!r}{_missing(seq)}", outcome="not_applied")
        return Condition(False, seq, None)
    if "if_value" in given:
        value = given["if_value"]
        if value is None:  # what a get of a missing key gives: a write without condition would overwrite others' rows
            raise InvalidError(f"if_value is a row's value, not None{_missing(value)}", outcome="not_applied")
        return Condition(False, None, value_bytes(cast("BytesLike", value)))
    return Condition(True, None, None) if absent else None


def _missing(given: object) -> str:
    return "; of a key that is not there ask for if_absent=True" if given is None else ""
