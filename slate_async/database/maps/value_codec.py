"""Values of a typed map as bytes: bytes as they are, everything else as JSON in UTF-8."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, get_args

import msgspec
from msgspec.inspect import CustomType, Field, Type, type_info
from pydantic import BaseModel, TypeAdapter
from pydantic.errors import PydanticUserError

from slate_async.database.maps.key_codec import shown
from slate_async.errors import InvalidError

V = TypeVar("V")


class ValueCodec(Protocol[V]):
    """Between values and bytes, for ``value=`` of a map. Both raise ``ValueError`` or ``TypeError`` for what they
    cannot do."""

    def encode(self, value: V) -> bytes:
        """The bytes of ``value``."""

    def decode(self, data: bytes) -> V:
        """The value of bytes that `encode` made."""


class PlainBytes:
    """Bytes as they are."""

    def encode(self, value: bytes) -> bytes:
        """See `ValueCodec`."""
        if not isinstance(value, bytes | bytearray | memoryview):
            raise TypeError(f"a value is bytes, not {type(value).__name__}")
        return bytes(value)

    def decode(self, data: bytes) -> bytes:
        """See `ValueCodec`."""
        return data


class CheckedJson(Generic[V]):
    """Values as JSON. What is encoded is decoded and compared, so whatever is stored can be read as an equal value."""

    def __init__(self, kind: object, to_json: Callable[[V], bytes], from_json: Callable[[bytes], V]) -> None:
        self._kind, self._to_json = kind, to_json
        self.decode = from_json

    decode: Callable[[bytes], V]
    """See `ValueCodec`."""

    def encode(self, value: V) -> bytes:
        """See `ValueCodec`."""
        data = self._to_json(value)
        found = self.decode(data)
        if found == value or same(found, value):
            return data
        raise TypeError(
            f"a value of this map is {shown(self._kind)}, and this {type(value).__name__} would not be read as it is"
        )


def value_codec(kind: type[V] | ValueCodec[V]) -> ValueCodec[V]:
    """The codec of values of the type ``kind``, or ``kind`` if that is one. Raises `InvalidError` for a type that has
    none."""
    if kind is bytes:
        return PlainBytes()  # type: ignore[return-value]
    if not isinstance(kind, type) and hasattr(kind, "encode") and hasattr(kind, "decode"):
        return kind
    try:
        return _by_pydantic(kind) if _names_pydantic(kind) else _by_msgspec(kind) or _by_pydantic(kind)
    except (TypeError, NameError, PydanticUserError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidError(f"values of a map cannot be {shown(kind)}: {reason}") from error


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal, or have one class and the same parts: what has no ``==`` of its own, and NaN."""
    if one == other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return one != one and other != other
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(part, other[key]) for key, part in one.items())
    names = _parts(one)
    return bool(names) and all(same(getattr(one, name), getattr(other, name)) for name in names)


def _parts(value: Any) -> tuple[str, ...]:
    if isinstance(value, BaseModel):
        return ("__dict__", "__pydantic_extra__", "__pydantic_private__")
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    return tuple(field.name for field in fields(value)) if is_dataclass(value) else ()


def _by_pydantic(kind: Any) -> CheckedJson[Any]:
    """Fields have their own names: models may be read by other aliases than they are written by."""
    adapter = TypeAdapter[Any](kind)
    return CheckedJson(
        kind,
        partial(adapter.serializer.to_json, by_alias=False, round_trip=True, warnings=False),
        partial(adapter.validator.validate_json, by_alias=False, by_name=True),
    )


def _by_msgspec(kind: Any) -> CheckedJson[Any] | None:
    """``None`` if something in ``kind`` is a class that msgspec does not know."""
    found: Any = Any if kind is object else kind
    decoder = msgspec.json.Decoder(found)
    return None if _has_other(type_info(found)) else CheckedJson(kind, msgspec.json.Encoder().encode, decoder.decode)


def _has_other(info: object) -> bool:
    todo, seen = [info], set[int]()
    while todo:
        found = todo.pop()
        if isinstance(found, list | tuple):
            todo += found
        elif isinstance(found, Type | Field) and id(found) not in seen:
            seen.add(id(found))
            kind = getattr(found, "cls", None)
            if _is_pydantic(kind) or (isinstance(found, CustomType) and kind is not object):
                return True
            todo += [getattr(found, name) for name in found.__struct_fields__]
    return False


def _names_pydantic(kind: object) -> bool:
    return _is_pydantic(kind) or any(map(_names_pydantic, get_args(kind)))


def _is_pydantic(kind: object) -> bool:
    """Whether it is a model, or a dataclass of pydantic's."""
    return isinstance(kind, type) and hasattr(kind, "__pydantic_validator__")
