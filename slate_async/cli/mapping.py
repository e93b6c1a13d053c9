"""From a record of a file to the key and value it is stored under.

Invariant: two records with different key columns never get one key, so nothing is overwritten by accident of naming;
a record whose key or value cannot be made without guessing is bad.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slate_async.cli.sources import BadRow, Record
from slate_async.errors import InvalidError
from slate_async.types import FORMAT_LIMITS, RowLimits


@dataclass(frozen=True, slots=True)
class Row:
    """One row to store, and the line it came from."""

    line: int
    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class Mapper:
    """Names the key columns (joined by ``separator`` after ``prefix``) and the value column; without one the value is
    the whole record as JSON, in the order of its columns."""

    key_columns: Sequence[str]
    value_column: str | None = None
    separator: str = ":"
    prefix: str = ""
    limits: RowLimits = FORMAT_LIMITS

    def check(self, columns: Sequence[str] | None) -> None:
        """Raise `InvalidError` if a named column does not exist in a file with these ``columns``."""
        if not self.key_columns:
            raise InvalidError("--key must name at least one column")
        if len(self.key_columns) > 1 and not self.separator:
            raise InvalidError("--key-separator must not be empty where the key has several columns")
        named = [*self.key_columns, *([] if self.value_column is None else [self.value_column])]
        for name in named if columns is not None else ():
            if name not in (columns or ()):
                raise InvalidError(f"there is no column {name!r}; the file has {', '.join(columns or ())}")

    def apply(self, record: Record) -> Row | BadRow:
        """The row to store, or why there is none."""
        try:
            key = self._key(record.fields)
            value = self._value(record.fields)
        except _UnusableError as error:
            return BadRow(record.line, str(error), record.fields)
        return Row(record.line, key, value)

    def _key(self, fields: Mapping[str, Any]) -> bytes:
        parts = [_scalar(fields, name) for name in self.key_columns]
        separator = self.separator.encode()
        if len(parts) > 1:
            for name, part in zip(self.key_columns, parts, strict=True):
                if separator in part:
                    raise _UnusableError(f"column {name!r} holds the separator {self.separator!r}")
        if not all(parts):
            raise _UnusableError(f"key column {self.key_columns[parts.index(b'')]!r} is empty")
        key = self.prefix.encode() + separator.join(parts)
        if len(key) > self.limits.max_key_bytes:
            raise _UnusableError(f"the key has {len(key)} bytes; it may have {self.limits.describe_key()}")
        return key

    def _value(self, fields: Mapping[str, Any]) -> bytes:
        if self.value_column is None:
            value = _json(fields)
        elif isinstance(fields.get(self.value_column), dict | list):
            value = _json(fields[self.value_column])
        else:
            value = _scalar(fields, self.value_column)
        if len(value) > self.limits.max_value_bytes:
            raise _UnusableError(f"the value has {len(value)} bytes; it may have {self.limits.describe_value()}")
        return value


class _UnusableError(Exception):
    """Why a record cannot be stored; becomes a `BadRow`."""


def _scalar(fields: Mapping[str, Any], name: str) -> bytes:
    value = fields.get(name)
    if value is None:
        raise _UnusableError(f"column {name!r} is missing" if name not in fields else f"column {name!r} is null")
    if isinstance(value, float) and math.isnan(value):
        raise _UnusableError(f"column {name!r} is not a number (NaN)")
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, dict | list):
        raise _UnusableError(f"column {name!r} is no single value")
    return _utf8(value if isinstance(value, str) else _text(value))


def _json(value: object) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_text)
    except (ValueError, TypeError) as error:
        raise _UnusableError(f"cannot be written as JSON: {error}") from error
    return _utf8(text)


def _text(value: object) -> str:
    """One notation for each type that JSON lacks: ISO 8601 times, base64 bytes, decimals in full."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return f"{value.total_seconds()!r}s"
    if isinstance(value, int | float | decimal.Decimal | uuid.UUID):
        return str(value)
    raise _UnusableError(f"a value of type {type(value).__name__} has no notation here")


def _utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise _UnusableError("holds half of a surrogate pair, which UTF-8 cannot") from error
