"""`Map`: rows of a database as objects: keys are tuples, values are models, and indexes find them, too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, TypeVar, Unpack, overload

from slate_async.arguments import BytesLike, Duration, key_bytes, life_ms
from slate_async.database.maps.build import Building, BuildProgress
from slate_async.database.maps.indexed_rows import Entries, IndexedRows
from slate_async.database.maps.map_type import UNFIT, MapType
from slate_async.database.maps.reads import MapReads
from slate_async.database.maps.rows import RowReads, SourceRows, one_point
from slate_async.database.maps.within import MapBatch, MapTransaction, MapView, check_space, present, view_within
from slate_async.database.snapshot import Snapshot
from slate_async.database.transact import RETRIES, Transact, UpdateHandle
from slate_async.database.transaction import Transaction
from slate_async.engine.transactions.condition import PutConditions
from slate_async.engine.write.batch import WriteBatch
from slate_async.engine.write.commit_group import WriteHandle
from slate_async.engine.write.errors import raise_not_applied
from slate_async.engine.write.reads import WriterReads
from slate_async.errors import InvalidError, SlateError

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


class MapWrites(Protocol):
    """The plain writes of a database, as `slate_async.Db` has them."""

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

    def touch(
        self, key: BytesLike, *, ttl: Duration | None = None, await_durable: bool = True
    ) -> Coroutine[Any, Any, UpdateHandle]:
        """As `Db.touch`."""


class MapHome(NamedTuple):
    """The open database of a map."""

    writes: MapWrites
    reads: WriterReads
    transact: Transact


class Map(MapReads[K, V]):
    """Made by `Db.map`. Raises what the database's own calls raise, and `InvalidError` for keys and values of other
    types than the map's, before anything is applied, and for rows that it reads and that are not of these types.

    A map with indexes is written in transactions of its own. Their writes raise `UniqueError`, and `InvalidError`
    unless the indexes that are stored are those that were declared."""

    def __init__(self, kind: MapType[K, V], home: MapHome, default_ttl: Duration | None) -> None:
        super().__init__(kind)
        space = home.transact.space
        self._home = home
        self._writes = home.writes
        self._encode, self._indexed = kind.values.encode, bool(kind.indexes)
        self._rows = SourceRows(home.reads)
        self._default_ttl = default_ttl
        self._default_life_ms = space.default_life_ms if default_ttl is None else life_ms(default_ttl)
        self._limits, self._yield_budget = space.limits, space.yield_budget
        self._put_now, self._update = home.transact.put_now, home.transact.update
        self._building: Building[V] = Building(kind, home.transact)
        self._plain = home.transact.space.plain_writes.of(kind.layout.prefix)

    @contextmanager
    def _one_point(self, durable: bool) -> Iterator[RowReads]:
        with one_point(self._home.reads, durable) as rows:
            yield rows

    # ---- writes

    def put(
        self, key: K, value: V, *, ttl: Duration | None = None, await_durable: bool = True, if_absent: bool = False
    ) -> Coroutine[Any, Any, WriteHandle]:
        """Set ``key`` to ``value``, which is encoded at the call. With ``if_absent`` only if the key is not there; else
        `ConflictError`."""
        try:
            row = self._pack(key)
        except InvalidError:
            row = self._keys.pack_to_write(key)  # whose error says that nothing was applied
        try:
            data = self._encode(value)
        except UNFIT:
            data = self._kind.encoded(value)  # which says what is wrong
        if self._indexed:
            return self._put_indexed(row, data, self._kind.entries(row, data), ttl, await_durable, if_absent)
        return self._put(row, data, ttl, await_durable, if_absent)

    async def _put(
        self, row: bytes, data: bytes, ttl: Duration | None, await_durable: bool, if_absent: bool
    ) -> WriteHandle:
        if not self._plain.allowed and not await self._may_write_plainly():
            return await self._put_indexed(row, data, {}, ttl, await_durable, if_absent)
        key = self._prefix + row
        if if_absent is False:
            handle = self._put_now(key, data, self._default_life_ms if ttl is None else life_ms(ttl))
            if handle is not None:
                budget = self._yield_budget
                if await_durable:
                    await handle.durable()
                elif not handle.seq % budget.every and budget.exhausted():
                    await budget.yield_now()
                return handle
        life = self._default_ttl if ttl is None else ttl
        with self._plain:
            return await self._writes.put(key, data, ttl=life, await_durable=await_durable, if_absent=if_absent)

    async def _put_indexed(
        self,
        row: bytes,
        data: bytes,
        entries: Entries,
        ttl: Duration | None,
        await_durable: bool,
        if_absent: bool,
    ) -> WriteHandle:
        if type(if_absent) is not bool:
            raise InvalidError(f"if_absent is True or False, not {if_absent!r}", outcome="not_applied")

        async def put(rows: IndexedRows[V]) -> None:
            if if_absent and await rows.get(row) is not None:
                raise present(self._kind, row)
            await rows.put(row, data, entries, ttl)

        return (await self._in_transaction(put, await_durable))[0]

    async def delete(self, key: K, *, await_durable: bool = True) -> WriteHandle:
        """Remove ``key``; no error if it is not there."""
        kind = self._kind
        row = kind.keys.pack_to_write(key)
        if kind.indexes or not (self._plain.allowed or await self._may_write_plainly()):
            return (await self._in_transaction(lambda rows: rows.delete(row), await_durable))[0]
        with self._plain:
            return await self._writes.delete(kind.layout.rows + row, await_durable=await_durable)

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
        plain = self._plain
        try:
            row = self._pack(key)
        except InvalidError:
            row = self._keys.pack_to_write(key)  # whose error says that nothing was applied
        if self._indexed or not (plain.allowed or await self._may_write_plainly()):
            return await self._update_indexed(row, key, function, ttl, await_durable)
        made: V | None = None

        def encoded(data: bytes | None) -> bytes | None:
            nonlocal made
            try:
                value = None if data is None else self._decode(data)
            except UNFIT:
                value = (
                    None if data is None else self._kind.decoded(data, key, "not_applied")
                )  # which says what is wrong
            made = function(value)
            try:
                return None if made is None else self._encode(made)
            except UNFIT:
                return None if made is None else self._kind.encoded(made)

        stored, life = self._prefix + row, self._default_life_ms if ttl is None else life_ms(ttl)
        plain.running += 1
        try:
            await self._update(key_bytes(stored, self._limits), encoded, life, await_durable)
        finally:
            plain.running -= 1
            if plain.ended is not None:
                plain.finished()
        return made

    async def _update_indexed(
        self,
        row: bytes,
        key: K,
        function: Callable[[V | None], V | None],
        ttl: Duration | None,
        await_durable: bool,
    ) -> V | None:
        async def update(rows: IndexedRows[V]) -> V | None:
            data = await rows.get(row)
            made = function(None if data is None else self._kind.decoded(data, key, "not_applied"))
            if made is not None:
                encoded = self._kind.encoded(made)
                await rows.put(row, encoded, self._kind.entries(row, encoded), ttl)
            elif data is not None:
                await rows.delete(row)
            return made

        return (await self._in_transaction(update, await_durable))[1]

    async def touch(self, key: K, *, ttl: Duration | None = None, await_durable: bool = True) -> bool:
        """Let the row of ``key`` live for ``ttl`` from now on, or for the default; whether it is there. As
        `Db.touch`."""
        kind, home = self._kind, self._home
        row, life = kind.keys.pack_to_write(key), self._default_ttl if ttl is None else ttl
        if not kind.indexes and (self._plain.allowed or await self._may_write_plainly()):
            with self._plain:
                touched = await home.writes.touch(kind.layout.rows + row, ttl=life, await_durable=await_durable)
            return touched.value is not None
        if life is None and home.transact.space.default_life_ms is None:
            raise InvalidError("touch takes ttl, because the map has no default", outcome="not_applied")

        async def touch(rows: IndexedRows[V]) -> bool:
            data = await rows.get(row)
            if data is not None:
                await rows.put(row, data, kind.entries(row, data), life)
            return data is not None

        return (await self._in_transaction(touch, await_durable))[1]

    # ---- transactions, batches, snapshots

    @overload
    def within(self, place: Transaction) -> MapTransaction[K, V]: ...
    @overload
    def within(self, place: WriteBatch) -> MapBatch[K, V]: ...
    @overload
    def within(self, place: Snapshot) -> MapView[K, V]: ...
    def within(
        self, place: Transaction | WriteBatch | Snapshot
    ) -> MapTransaction[K, V] | MapBatch[K, V] | MapView[K, V]:
        """The map in a transaction, a batch or a snapshot of its database, beside whatever else is there."""
        space = self._home.transact.space
        if isinstance(place, Transaction):
            check_space(self._kind, place, space)
            return MapTransaction(self._kind, place, self._default_ttl)
        if isinstance(place, WriteBatch):
            return MapBatch(self._kind, place, space, self._default_ttl)
        return view_within(self._kind, self._home.reads, place)

    # ---- indexes

    async def build(self, *, progress: Callable[[BuildProgress], object] | None = None) -> int:
        """Build the indexes that are declared and not built; how many rows that took. Nothing to do otherwise.

        progress: called after each step of some hundred rows

        Writers go on meanwhile. What a call that failed or was cancelled has done stays, and the next one goes on
        there. Raises `UniqueError` if two rows have one key in a unique index: change one of them, and call it
        again."""
        if progress is not None and not callable(progress):
            raise InvalidError(f"progress is a function, not {type(progress).__name__}", outcome="not_applied")
        return await self._building.build(progress or (lambda _: None))

    async def drop_index(self, name: str) -> int:
        """Drop an index that is stored; how many entries it had. Raises `NotFoundError` if there is none.

        A handle that declares it is refused meanwhile, and registers it anew afterwards. After an error call it
        again."""
        return await self._building.drop(name)

    # ---- parts

    async def _may_write_plainly(self) -> bool:
        """Whether the map is known to have no index."""
        plain, kind = self._plain, self._kind
        if plain.allowed is None:
            try:
                stored = kind.catalogue_of(await self._rows.get(kind.layout.catalogue, False))
            except SlateError as error:
                raise_not_applied(error)
            if plain.allowed is None:
                plain.allowed = not stored
        return plain.allowed

    async def _in_transaction(
        self, write: Callable[[IndexedRows[V]], Awaitable[T]], await_durable: bool
    ) -> tuple[WriteHandle, T]:
        """``write`` in a transaction, repeated after conflicts."""
        kind, transact = self._kind, self._home.transact

        async def run(tx: Transaction) -> tuple[WriteHandle, T]:
            rows = IndexedRows(kind, tx, self._default_ttl)
            try:
                await rows.admit()
                result = await write(rows)
                return (tx._apply_now() or await tx._apply()), result
            except SlateError as error:
                raise_not_applied(error)

        handle, result = await transact.transact(run, RETRIES, "serializable", False)
        await transact.settled(handle, await_durable)
        return handle, result
