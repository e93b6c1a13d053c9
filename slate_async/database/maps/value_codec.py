"""Values of a typed map as bytes: bytes as they are, everything else as JSON in UTF-8."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

import msgspec
from pydantic import BaseModel

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


class PydanticJson(Generic[V]):
    """Objects of a pydantic model, as JSON."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._to_json = model.__pydantic_serializer__.to_json
        self._from_json = model.__pydantic_validator__.validate_json

    def encode(self, value: V) -> bytes:
        """See `ValueCodec`."""
        if not isinstance(value, self._model):
            raise TypeError(f"a value is {self._model.__name__}, not {type(value).__name__}")
        made: bytes = self._to_json(value)
        return made

    def decode(self, data: bytes) -> V:
        """See `ValueCodec`."""
        made: V = self._from_json(data)
        return made


class MsgspecJson(Generic[V]):
    """Whatever msgspec knows: structs, dataclasses, typed dicts, and JSON itself."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._class = kind if isinstance(kind, type) and kind is not object else None
        self._encoder, self._decoder = msgspec.json.Encoder(), msgspec.json.Decoder(Any if kind is object else kind)

    def encode(self, value: V) -> bytes:
        """See `ValueCodec`."""
        if self._class is None:
            msgspec.convert(value, self._kind if self._kind is not object else Any, from_attributes=False)
        elif not isinstance(value, self._class):
            raise TypeError(f"a value is {self._class.__name__}, not {type(value).__name__}")
        return self._encoder.encode(value)

    def decode(self, data: bytes) -> V:
        """See `ValueCodec`."""
        made: V = self._decoder.decode(data)
        return made


def value_codec(kind: type[V] | ValueCodec[V]) -> ValueCodec[V]:
    """The codec of values of the type ``kind``, or ``kind`` if that is one. Raises `InvalidError` for a type that has
    none."""
    if kind is bytes:
        return PlainBytes()  # type: ignore[return-value]
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return PydanticJson(kind)
    if not isinstance(kind, type) and hasattr(kind, "encode") and hasattr(kind, "decode"):
        return kind
    try:
        return MsgspecJson(kind)
    except TypeError as error:
        raise InvalidError(f"values of a map cannot be {shown(kind)}: {error}") from error
