"""Keys of a typed map: tuples of parts of given types, or one part, as packed keys."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from types import NoneType, UnionType
from typing import Any, Generic, TypeAlias, TypeVar, Union, get_args, get_origin
from uuid import UUID

from slate_async.codec.tuple_key import ENCODERS, pack, prefix_range, unpack
from slate_async.errors import InvalidError

K = TypeVar("K")
PART_TYPES = (str, int, bytes, float, bool, datetime, date, UUID, Decimal)
Fits: TypeAlias = Callable[[Any], bool]


class KeyCodec(Generic[K]):
    """Between keys of the type ``kind`` and bytes. Raises `InvalidError` for a type that keys cannot have."""

    def __init__(self, kind: type[K]) -> None:
        self.shown = shown(kind)
        self._single = get_origin(kind) is not tuple
        parts = (kind,) if self._single else get_args(kind)
        if not parts or Ellipsis in parts or parts == ((),):
            raise InvalidError(f"a map's key has parts of given types, such as tuple[str, int], not {self.shown}")
        self._fits = [fits(part) for part in parts]
        self._exact = tuple(part if part in PART_TYPES else None for part in parts)
        self.pack: Callable[[K], bytes] = self._pack_any
        """The bytes of a key. Raises `InvalidError` unless it is of the map's type."""
        kinds = tuple(part for part in self._exact if part is not None)
        if len(kinds) == len(parts):
            self.pack = _pack_one(kinds[0], self._pack_any) if self._single else _packer(kinds, self._pack_any)

    def _pack_any(self, key: K) -> bytes:
        given: Any = key
        parts: tuple[Any, ...] = (given,) if self._single else given
        if not self._single and (not isinstance(parts, tuple) or len(parts) != len(self._fits)):
            raise self._wrong(key)
        if tuple(map(type, parts)) != self._exact:
            self._check(parts, key)
        return pack(*parts)

    def pack_to_write(self, key: K) -> bytes:
        """As `pack`, for a write: its errors say that nothing was applied."""
        try:
            return self.pack(key)
        except InvalidError as error:
            error.outcome = "not_applied"
            raise

    def unpack(self, key: bytes) -> K:
        """The key of stored bytes. Raises `InvalidError` if they are of another type."""
        parts = unpack(key)
        if tuple(map(type, parts)) == self._exact:
            return parts[0] if self._single else parts  # type: ignore[return-value]
        if len(parts) != len(self._fits) or not all(good(part) for part, good in zip(parts, self._fits, strict=True)):
            raise InvalidError(f"a row of this map has a key of another type: {parts!r}, not {self.shown}")
        return parts[0] if self._single else parts  # type: ignore[return-value]

    def span(self, prefix: tuple[Any, ...]) -> tuple[bytes, bytes]:
        """Start and end of the keys that begin with the parts ``prefix``. Raises `InvalidError` unless keys can."""
        if not isinstance(prefix, tuple) or len(prefix) > len(self._fits):
            raise InvalidError(f"prefix is a tuple of the first parts of {self.shown}, not {prefix!r}")
        self._check(prefix, prefix)
        return prefix_range(*prefix)

    def _check(self, parts: tuple[Any, ...], key: object) -> None:
        for part, good in zip(parts, self._fits, strict=False):
            if not good(part):
                raise self._wrong(key)

    def _wrong(self, key: object) -> InvalidError:
        return InvalidError(f"a key of this map is {self.shown}, not {key!r}")


def _pack_one(kind: type, otherwise: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Packs a part of exactly the type ``kind``, and leaves all else to ``otherwise``."""
    encode = ENCODERS[kind]
    return lambda part: encode(part) if type(part) is kind else otherwise(part)


def _packer(kinds: tuple[type, ...], otherwise: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """As `_pack_one`, for a tuple of parts. Pairs have a shorter way."""
    if len(kinds) == 2:
        (first, second), (encode_first, encode_second) = kinds, (ENCODERS[kind] for kind in kinds)

        def pack_pair(key: Any) -> bytes:
            if type(key) is tuple and len(key) == 2:
                one, other = key
                if type(one) is first and type(other) is second:
                    return encode_first(one) + encode_second(other)
            return otherwise(key)

        return pack_pair

    def pack_parts(key: Any) -> bytes:
        return pack(*key) if type(key) is tuple and tuple(map(type, key)) == kinds else otherwise(key)

    return pack_parts


def fits(kind: Any) -> Fits:
    """Whether a part is of the type ``kind``. Raises `InvalidError` for types that parts cannot have."""
    if get_origin(kind) in (Union, UnionType):
        choices = [fits(choice) for choice in get_args(kind)]
        return lambda part: any(choice(part) for choice in choices)
    if get_origin(kind) is tuple and Ellipsis not in get_args(kind):
        inner = [fits(part) for part in get_args(kind)]
        return lambda part: (
            isinstance(part, tuple)
            and len(part) == len(inner)
            and all(good(one) for good, one in zip(inner, part, strict=True))
        )
    if kind is None or kind is NoneType:
        return lambda part: part is None
    if kind not in PART_TYPES:
        raise InvalidError(
            "parts of a map's key are str, bytes, int, float, bool, datetime, date, UUID, Decimal, None or tuples of"
            f" these, not {shown(kind)}"
        )
    if kind is int:
        return lambda part: isinstance(part, int) and not isinstance(part, bool)
    if kind is date:
        return lambda part: isinstance(part, date) and not isinstance(part, datetime)
    return lambda part: isinstance(part, kind)


def shown(kind: object) -> str:
    """A type as it is written."""
    return kind.__name__ if isinstance(kind, type) and get_origin(kind) is None else str(kind)
