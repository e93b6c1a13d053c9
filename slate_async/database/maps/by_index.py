"""`IndexReads`: rows of a map as an index finds them.

Index and rows are read at one point. An entry counts only if its row is there and makes that entry: so what was written
past the map, or has expired, is not shown.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

from slate_async.codec.tuple_key import KeyPart, pack, prefix_range
from slate_async.database.maps.catalogue import same_as_stored
from slate_async.database.maps.index import IndexEntries
from slate_async.database.maps.layout import END
from slate_async.database.maps.map_type import MapType
from slate_async.database.maps.page import PAGE_ROWS, Page, page_of
from slate_async.database.maps.rows import Pair, RowReads
from slate_async.errors import InvalidError

K = TypeVar("K")
V = TypeVar("V")


class IndexReads(Generic[K, V]):
    """Made by `Map.by`. All methods raise `InvalidError` while the index is not built (`Map.build`)."""

    def __init__(
        self,
        kind: MapType[K, V],
        index: IndexEntries[V],
        one_point: Callable[[bool], AbstractContextManager[RowReads]],
    ) -> None:
        self._kind = kind
        self._index = index
        self._one_point = one_point

    async def get(self, *parts: KeyPart, durable: bool = False) -> V | None:
        """The value of the row that has ``parts`` in this unique index, or ``None``."""
        found = await self._find(parts, durable)
        return None if found is None else found[1]

    async def key(self, *parts: KeyPart, durable: bool = False) -> K | None:
        """The key of the row that has ``parts`` in this unique index, or ``None``."""
        found = await self._find(parts, durable)
        return None if found is None else self._kind.keys.unpack(found[0])

    async def page(
        self,
        *,
        after: str | None = None,
        limit: int = PAGE_ROWS,
        prefix: tuple[KeyPart, ...] = (),
        reverse: bool = False,
        durable: bool = False,
    ) -> Page[K, V]:
        """The next ``limit`` rows, at most 10,000, in the order of the index, whose parts there begin with ``prefix``.
        As `Map.page`; a page may have fewer rows, and a next one yet, if some have just expired."""
        if not isinstance(prefix, tuple):
            raise InvalidError(f"prefix is a tuple of the first parts of index {self._index.name!r}, not {prefix!r}")
        kind, index = self._kind, self._index
        span = prefix_range(*prefix) if prefix else (b"", END)
        with self._one_point(durable) as rows:
            ready = await self._is_ready(rows)
            found, following = await page_of(rows.pairs, index.prefix, span, after, limit, reverse, durable)
            if not ready or not found:
                return Page([], None)
            packed = [row for _, row in found]
            values = await rows.get_many([kind.layout.rows + row for row in packed], durable)
        items: list[tuple[K, V]] = []
        for (entry, row), data in zip(found, values, strict=True):
            if data is not None:
                value = kind.decoded_row(row, data)
                if index.entry_of(value, row, None) == index.prefix + entry:
                    items.append((kind.keys.unpack(row), value))
        return Page(items, following)

    async def _find(self, parts: tuple[KeyPart, ...], durable: bool) -> tuple[bytes, V] | None:
        kind, index = self._kind, self._index
        if not index.unique:
            raise InvalidError(f"index {index.name!r} of map {kind.name!r} is not unique: use page(prefix=...)")
        if not parts:
            raise InvalidError(f"index {index.name!r} of map {kind.name!r} is asked for at least one part")
        entry = index.prefix + pack(*parts)
        with self._one_point(durable) as rows:
            row = await rows.get(entry, durable) if await self._is_ready(rows) else None
            data = None if row is None else await rows.get(kind.layout.rows + row, durable)
        if row is None or data is None:
            return None
        value = kind.decoded_row(row, data)
        return (row, value) if index.entry_of(value, row, None) == entry else None

    async def _is_ready(self, rows: RowReads) -> bool:
        """Whether it is there; ``False``: the map has no row yet. Raises `InvalidError` if it is not built."""
        kind, index = self._kind, self._index
        stored = kind.catalogue_of(await rows.get(kind.layout.catalogue, False), None).get(index.name)
        if stored is None:
            first: list[Pair] = await rows.pairs(kind.layout.rows, kind.layout.rows + END, False, 1, False)
            if not first:
                return False
        elif stored.state == "ready":
            same_as_stored(kind.name, index, stored, None)
            return True
        raise InvalidError(f"index {index.name!r} of map {kind.name!r} is not built: call build of the map first")

    def __repr__(self) -> str:
        return f"<IndexReads {self._index.name!r} of map {self._kind.name!r}>"
