"""Dataclasses and structs as MessagePack maps, driven by their type hints.

A field is stored under its name, and left out when it is ``None``. Fields that this release does not know, which a
newer one wrote, are kept in ``unknown`` and written again. Products bring conversions of their own types.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec

from metastores.protocol import VersionRef

T = TypeVar("T")
NO_FIELDS: Mapping[str, Any] = MappingProxyType({})
"""``unknown`` of a value without such fields."""


def no_fields() -> Mapping[str, Any]:
    """The shared empty map."""
    return NO_FIELDS


class Conversion(NamedTuple):
    """How values of one type become what MessagePack knows, and back."""

    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]


def _as_map(value: Mapping[str, Any]) -> dict[str, Any]:
    return dict(value)


def _frozen_map(value: Mapping[str, Any]) -> Mapping[str, Any]:
    return MappingProxyType(dict(value))


UUID_BYTES = Conversion(lambda value: value.bytes, lambda packed: UUID(bytes=packed))
VERSION_PAIR = Conversion(list, lambda packed: VersionRef(*packed))
PLAIN_TUPLE = Conversion(list, tuple)
STRING_MAP = Conversion(_as_map, _frozen_map)
Conversions: TypeAlias = Mapping[Any, Conversion]
"""By type, or by the name of a field."""
NO_CONVERSIONS: Conversions = MappingProxyType({})


def conversion(hint: Any, own: Conversions = NO_CONVERSIONS) -> Conversion | None:
    """How values of type ``hint`` are stored; ``None`` if they are stored as they are."""
    if hint in own:
        return own[hint]
    if get_origin(hint) in (Union, types.UnionType):
        [inner] = [arg for arg in get_args(hint) if arg is not type(None)]
        return conversion(inner, own)
    if hint is UUID:
        return UUID_BYTES
    if hint is VersionRef:
        return VERSION_PAIR
    if get_origin(hint) is tuple:
        return _of_tuple(get_args(hint), own)
    if is_dataclass(hint) or isinstance(hint, msgspec.StructMeta):
        shape = Shape[Any](hint, own=own)
        return Conversion(shape.pack, shape.unpack)
    return STRING_MAP if get_origin(hint) is Mapping else None


def _of_tuple(items: tuple[Any, ...], own: Conversions) -> Conversion:
    item = conversion(items[0], own) if items[-1] is Ellipsis else None
    if item is None:
        return PLAIN_TUPLE
    pack, unpack = item
    return Conversion(
        lambda values: [pack(value) for value in values], lambda packed: tuple(unpack(value) for value in packed)
    )


class Shape(Generic[T]):
    """One dataclass or struct, which has a field ``unknown``. ``besides``: fields that are kept elsewhere; ``own``:
    conversions that come before all others."""

    def __init__(self, cls: Any, besides: tuple[str, ...] = (), own: Conversions = NO_CONVERSIONS) -> None:
        hints = get_type_hints(cls)
        self._cls: Callable[..., T] = cls
        names = cls.__struct_fields__ if isinstance(cls, msgspec.StructMeta) else [field.name for field in fields(cls)]
        self.names = tuple(name for name in names if name not in ("unknown", *besides))
        self._known = frozenset(self.names)
        found = {name: own[name] if name in own else conversion(hints[name], own) for name in self.names}
        self.conversions = {name: how for name, how in found.items() if how is not None}

    def pack(self, value: T) -> dict[str, Any]:
        """``value`` as a map."""
        packed: dict[str, Any] = dict(value.unknown)  # type: ignore[attr-defined]
        for name in self.names:
            found = getattr(value, name)
            if found is not None:
                how = self.conversions.get(name)
                packed[name] = found if how is None else how.pack(found)
        return packed

    def unpack(self, packed: Mapping[str, Any]) -> T:
        """The value back. A wrong shape raises `TypeError`, `ValueError`, `KeyError` or `AttributeError`."""
        if packed.keys() <= self._known and self.conversions.keys().isdisjoint(packed):
            return self._cls(**packed)  # nearly every SST: there may be a hundred thousand
        known: dict[str, Any] = {}
        unknown: dict[str, Any] = {}
        for name, found in packed.items():
            if name in self._known:
                known[name] = self.unpack_field(name, found)
            else:
                unknown[name] = found
        return self._cls(**known, unknown=MappingProxyType(unknown) if unknown else NO_FIELDS)

    def pack_field(self, name: str, value: Any) -> Any:
        """One field's value, stored."""
        how = self.conversions.get(name)
        return value if how is None or value is None else how.pack(value)

    def unpack_field(self, name: str, packed: Any) -> Any:
        """One field's value back."""
        how = self.conversions.get(name)
        return packed if how is None or packed is None else how.unpack(packed)
