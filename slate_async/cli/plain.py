"""Stored values as what JSON and tables can show: keys in the notation that is asked for, ids in hexadecimal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec

from slate_async.cli.encoding import Encoding, json_field, show

KEYS = frozenset(("first_key", "last_key", "start", "end"))
"""Fields that hold keys of rows; other bytes are ids."""


def plain(value: Any, encoding: Encoding) -> Any:
    """``value`` as dicts, lists, numbers and texts. Fields of newer releases are shown among the others."""
    if is_dataclass(value):
        return _named({field.name: getattr(value, field.name) for field in fields(value)}, encoding)
    if isinstance(value, msgspec.Struct):
        return _named({name: getattr(value, name) for name in value.__struct_fields__}, encoding)
    if hasattr(value, "_asdict"):
        return _named(value._asdict(), encoding)
    if isinstance(value, Mapping):
        return {str(name): plain(item, encoding) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item, encoding) for item in value]
    if isinstance(value, Enum) and isinstance(value, int):
        return value.name.lower()
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if isinstance(value, UUID | Enum) else value


def spans(ascending: Iterable[int]) -> str:
    """Numbers as people write them: ``1-3, 7``."""
    found: list[list[int]] = []
    for number in ascending:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def _named(values: Mapping[str, Any], encoding: Encoding) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for name, value in values.items():
        if name == "unknown":
            shown.update(plain(value, encoding))
        elif name in KEYS and isinstance(value, bytes):
            shown.update([json_field(name, value, encoding)])
        elif name == "bounds":
            shown[name] = [show(key, encoding) for key in value]
        else:
            shown[name] = plain(value, encoding)
    return shown
