"""`MapType`: what a map is, wherever it is read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from slate_async.arguments import sought_key
from slate_async.database.maps.catalogue import Catalogue
from slate_async.database.maps.catalogue import decoded as decoded_catalogue
from slate_async.database.maps.index import Index, IndexEntries, entries_of
from slate_async.database.maps.key_codec import KeyCodec
from slate_async.database.maps.layout import MapLayout, layout_of
from slate_async.database.maps.value_codec import ValueCodec, value_codec
from slate_async.errors import InvalidError, Outcome
from slate_async.types import MAX_KEY_BYTES

K = TypeVar("K")
V = TypeVar("V")
UNFIT = (ValueError, TypeError, OverflowError, RecursionError)
"""What codecs raise for a value, or for bytes, that they cannot do."""


@dataclass(frozen=True, slots=True)
class MapType(Generic[K, V]):
    """Its name, where it lies, its types and its indexes."""

    name: str
    layout: MapLayout
    keys: KeyCodec[K]
    values: ValueCodec[V]
    indexes: dict[str, IndexEntries[V]]

    def encoded(self, value: V) -> bytes:
        """``value`` as it is stored. Raises `InvalidError` for one of another type."""
        try:
            return self.values.encode(value)
        except UNFIT as error:
            raise InvalidError(f"map {self.name!r} cannot store the value: {error}", outcome="not_applied") from error

    def decoded(self, data: bytes, key: object, outcome: Outcome | None = None) -> V:
        """The value of the row ``key``. Raises `InvalidError` if it is of another type."""
        try:
            return self.values.decode(data)
        except UNFIT as error:
            reason = f"row {key!r} of map {self.name!r} has a value of another type: {error}"
            raise InvalidError(reason, outcome=outcome) from error

    def entries(self, row: bytes, data: bytes) -> dict[str, bytes | None]:
        """What each index has of a row: of its value as it will be read."""
        if not self.indexes:
            return {}
        value = self.decoded_row(row, data, "not_applied")
        return {name: index.entry_of(value, row) for name, index in self.indexes.items()}

    def decoded_row(self, row: bytes, data: bytes, outcome: Outcome | None = None) -> V:
        """As `decoded`, of a packed key."""
        try:
            return self.values.decode(data)
        except UNFIT:
            return self.decoded(data, self.keys.unpack(row), outcome)

    def catalogue_of(self, data: bytes | None, outcome: Outcome | None = "not_applied") -> Catalogue:
        """What ``data`` says of its indexes. Reads give ``None`` for the ``outcome`` of an error."""
        return decoded_catalogue(data, self.name, outcome)

    def row_key(self, key: K) -> bytes:
        """The stored key of ``key``."""
        stored = self.layout.rows + self.keys.pack(key)
        return stored if len(stored) <= MAX_KEY_BYTES else sought_key(stored)


def map_type(
    name: str, prefix: bytes, key: type[K], value: type[V] | ValueCodec[V], indexes: Iterable[Index[V]]
) -> MapType[K, V]:
    """Of the map whose stored keys begin with ``prefix``. Raises `InvalidError` for types that a map cannot have."""
    layout = layout_of(prefix)
    if isinstance(indexes, Index) or not isinstance(indexes, Iterable):
        raise InvalidError(f"indexes are several of slate_async.Index, not {indexes!r}")
    return MapType(name, layout, KeyCodec(key), value_codec(value), entries_of(indexes, name, layout, value))
