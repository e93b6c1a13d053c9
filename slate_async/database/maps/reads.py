"""`MapReads`: what a map offers alike on a database, a reader, a snapshot and in a transaction."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

from slate_async.arguments import sought_key
from slate_async.database.maps.by_index import IndexReads
from slate_async.database.maps.map_type import UNFIT, MapType
from slate_async.database.maps.page import PAGE_ROWS, Page, page_of
from slate_async.database.maps.rows import RowReads
from slate_async.errors import InvalidError
from slate_async.types import MAX_KEY_BYTES

K = TypeVar("K")
V = TypeVar("V")


class MapReads(Generic[K, V]):
    """Raises what the database's own calls raise, and `InvalidError` for keys of another type than the map's, and for
    rows that it reads and that are not of its types.

    The class that inherits this sets ``_rows``."""

    _rows: RowReads

    def __init__(self, kind: MapType[K, V]) -> None:
        self.name = kind.name
        self._kind = kind
        self._keys = kind.keys
        self._pack, self._decode = kind.keys.pack, kind.values.decode
        self._prefix = kind.layout.rows

    name: str
    """As it was given."""

    def _one_point(self, durable: bool) -> AbstractContextManager[RowReads]:
        """Rows for several reads that belong together."""
        raise NotImplementedError

    async def get(self, key: K, *, durable: bool = False) -> V | None:
        """The value of ``key``, or ``None``."""
        stored = self._prefix + self._pack(key)
        if len(stored) > MAX_KEY_BYTES:
            sought_key(stored)
        found = await self._rows.get(stored, durable)
        if found is None:
            return None
        try:
            return self._decode(found)
        except UNFIT:
            return self._kind.decoded(found, key)  # which says what is wrong

    async def get_many(self, keys: Iterable[K], *, durable: bool = False) -> list[V | None]:
        """The values of ``keys`` in their order, all of one read point."""
        kind = self._kind
        if not isinstance(keys, Iterable):
            raise InvalidError(f"get_many takes keys, not {type(keys).__name__}")
        own = list(keys)
        found = await self._rows.get_many([kind.row_key(key) for key in own], durable)
        return [None if data is None else kind.decoded(data, key) for data, key in zip(found, own, strict=True)]

    async def page(
        self,
        *,
        after: str | None = None,
        limit: int = PAGE_ROWS,
        prefix: tuple[Any, ...] = (),
        reverse: bool = False,
        durable: bool = False,
    ) -> Page[K, V]:
        """The next ``limit`` rows, at most 10,000, whose keys begin with the parts ``prefix``; ``reverse``: the last
        ones first.

        after: `Page.next` of the page before, of the same prefix and direction. A cursor names a key: it stays good
        whatever is written, and rows that stay are given once"""
        span = self._keys.span(prefix)
        found, following = await page_of(self._rows.pairs, self._kind.layout.rows, span, after, limit, reverse, durable)
        items: list[tuple[K, V]] = []
        decode, unpack = self._decode, self._keys.unpack
        for packed, data in found:
            key = unpack(packed)
            try:
                value = decode(data)
            except UNFIT:
                value = self._kind.decoded(data, key)  # which says what is wrong
            items.append((key, value))
        return Page(items, following)

    def by(self, index: str) -> IndexReads[K, V]:
        """Its rows as the index finds them. Raises `InvalidError` for an index that was not declared."""
        entries = self._kind.indexes.get(index) if isinstance(index, str) else None
        if entries is None:
            known = ", ".join(map(repr, self._kind.indexes)) or "none"
            raise InvalidError(f"map {self.name!r} was opened with these indexes: {known}; not with {index!r}")
        return IndexReads(self._kind, entries, self._one_point)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self._keys.shown}>"
