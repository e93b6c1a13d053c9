"""`Map`: rows of a database as objects: keys are tuples, values are models."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, Unpack

from slate_async.arguments import BytesLike, Duration
from slate_async.database.maps.cursor import cursor_of, key_of
from slate_async.database.maps.key_codec import KeyCodec
from slate_async.database.maps.value_codec import ValueCodec, value_codec
from slate_async.database.transact import UpdateHandle
from slate_async.engine.read.scan import Scan
from slate_async.engine.transactions.condition import PutConditions
from slate_async.engine.write.commit_group import WriteHandle
from slate_async.errors import InvalidError

K = TypeVar("K")
V = TypeVar("V")
MOST_ROWS = 10_000
"""Of one page."""
PAGE_ROWS = 100


class Page(NamedTuple, Generic[K, V]):
    """Some rows of a map, in the order of their keys."""

    items: list[tuple[K, V]]
    next: str | None
    """``after`` of the next page; ``None``: there was no row behind this one."""


class MapRows(Protocol):
    """Where a map lies: a namespace of its own, as `slate_async.Namespace` has these."""

    @property
    def prefix(self) -> bytes:
        """What stands before its keys."""

    def get(self, key: BytesLike, *, durable: bool = False) -> Coroutine[Any, Any, bytes | None]:
        """As `Db.get`."""

    def get_many(self, keys: Sequence[BytesLike], *, durable: bool = False) -> Coroutine[Any, Any, list[bytes | None]]:
        """As `Db.get_many`."""

    def scan(
        self,
        start: BytesLike | None = None,
        end: BytesLike | None = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
        durable: bool = False,
    ) -> Scan:
        """As `Db.scan`."""

    def put(
        self,
        key: BytesLike,
        value: BytesLike,
        *,
        ttl: Duration | None = None,
        await_durable: bool = True,
        **conditions: Unpack[PutConditions],
    ) -> Coroutine[Any, Any, WriteHandle]:
        """As `Db.put`."""

    def delete(self, key: BytesLike, *, await_durable: bool = True) -> Coroutine[Any, Any, WriteHandle]:
        """As `Db.delete`."""

    def update(
        self,
        key: BytesLike,
        function: Callable[[bytes | None], BytesLike | None],
        *,
        ttl: Duration | None = None,
        await_durable: bool = True,
    ) -> Coroutine[Any, Any, UpdateHandle]:
        """As `Db.update`."""


class Map(Generic[K, V]):
    """Made by `Db.map`. Raises what the database's own calls raise, and `InvalidError` for keys and values of other
    types than the map's, before anything is applied, and for rows that it reads and that are not of these types."""

    def __init__(self, rows: MapRows, name: str, key: type[K], value: type[V] | ValueCodec[V]) -> None:
        self.name = name
        self._rows = rows
        self._keys = KeyCodec(key)
        self._values = value_codec(value)

    name: str
    """As it was given."""

    async def get(self, key: K, *, durable: bool = False) -> V | None:
        """The value of ``key``, or ``None``."""
        found = await self._rows.get(self._keys.pack(key), durable=durable)
        return None if found is None else self._decoded(found, key)

    async def get_many(self, keys: Sequence[K], *, durable: bool = False) -> list[V | None]:
        """The values of ``keys`` in their order, all of one read point."""
        found = await self._rows.get_many([self._keys.pack(key) for key in keys], durable=durable)
        return [None if data is None else self._decoded(data, key) for data, key in zip(found, keys, strict=True)]

    def put(
        self, key: K, value: V, *, ttl: Duration | None = None, await_durable: bool = True, if_absent: bool = False
    ) -> Coroutine[Any, Any, WriteHandle]:
        """Set ``key`` to ``value``, which is encoded at the call. With ``if_absent`` only if the key is not there; else
        `ConflictError`."""
        packed, data = self._keys.pack(key), self._encoded(value)
        if if_absent is False:
            return self._rows.put(packed, data, ttl=ttl, await_durable=await_durable)
        return self._rows.put(packed, data, ttl=ttl, await_durable=await_durable, if_absent=if_absent)

    def delete(self, key: K, *, await_durable: bool = True) -> Coroutine[Any, Any, WriteHandle]:
        """Remove ``key``; no error if it is not there."""
        return self._rows.delete(self._keys.pack(key), await_durable=await_durable)

    async def update(
        self,
        key: K,
        function: Callable[[V | None], V | None],
        *,
        ttl: Duration | None = None,
        await_durable: bool = True,
    ) -> V | None:
        """Set ``key`` to what ``function`` makes of its value (``None``: it is not there); ``None`` deletes it. Returns
        what it made. ``function`` may be called again, as of `Db.update`."""
        if not callable(function):
            raise InvalidError(f"update takes a function, not {type(function).__name__}", outcome="not_applied")
        made: V | None = None

        def encoded(data: bytes | None) -> bytes | None:
            nonlocal made
            made = function(None if data is None else self._decoded(data, key))
            return None if made is None else self._encoded(made)

        await self._rows.update(self._keys.pack(key), encoded, ttl=ttl, await_durable=await_durable)
        return made

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
        if type(limit) is not int or not 0 < limit <= MOST_ROWS:
            raise InvalidError(f"limit is a number of rows from 1 to {MOST_ROWS}, not {limit!r}")
        if type(reverse) is not bool:
            raise InvalidError(f"reverse is True or False, not {reverse!r}")
        start, end = self._keys.span(prefix)
        scope = self._rows.prefix + start + bytes([reverse])
        if after is not None:
            last = key_of(scope, after, start, end)
            start, end = (start, last) if reverse else (last + b"\0", end)
        found: list[tuple[bytes, bytes]] = []
        async with aclosing(self._rows.scan(start, end, reverse=reverse, limit=limit + 1, durable=durable)) as scan:
            async for row in scan:
                found.append(row)
        following = cursor_of(scope, found[limit - 1][0]) if len(found) > limit else None
        items: list[tuple[K, V]] = []
        for packed, data in found[:limit]:
            key = self._keys.unpack(packed)
            items.append((key, self._decoded(data, key)))
        return Page(items, following)

    def _encoded(self, value: V) -> bytes:
        try:
            return self._values.encode(value)
        except (ValueError, TypeError) as error:
            raise InvalidError(f"map {self.name!r} cannot store the value: {error}", outcome="not_applied") from error

    def _decoded(self, data: bytes, key: object) -> V:
        try:
            return self._values.decode(data)
        except (ValueError, TypeError) as error:
            raise InvalidError(f"row {key!r} of map {self.name!r} has a value of another type: {error}") from error

    def __repr__(self) -> str:
        return f"<Map {self.name!r} of {self._keys.shown}>"
