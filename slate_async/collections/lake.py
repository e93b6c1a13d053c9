"""`Lake`: a folder of collections, and what is created, found and deleted in it.

A composition root: it wires and owns. What creating and deleting mean is one commit each, to the register of a
collection (`slate_async.collections.store.lives`) and to its merged area (`slate_async.collections.deletion`). A call
that is cancelled goes on, or leaves what the next call finishes.

Rule C28 of collections.
"""

from __future__ import annotations

import asyncio
import builtins
from functools import partial
from typing import Literal
from uuid import UUID

import pyarrow as pa

from slate_async.arguments import check_kinds
from slate_async.collections.codec.life import Life, LifeState
from slate_async.collections.collection import Collection
from slate_async.collections.controller.service import ControllerService
from slate_async.collections.controller.standby import StandbyController
from slate_async.collections.core.edits import check_open
from slate_async.collections.core.names import check_name
from slate_async.collections.deletion import delete_life, remove_dead, remove_deleted
from slate_async.collections.info import CollectionInfo, DamagedCollection, appends_of, difference, info_of, schema_of
from slate_async.collections.lake_context import LakeContext
from slate_async.collections.life_stores import LifeStores
from slate_async.collections.reader.handle import ReadHandle, open_reader
from slate_async.errors import CorruptionError, InvalidError, NotFoundError, UnavailableError
from slate_async.runtime.concurrent import map_bounded
from slate_async.runtime.loop_handle import LoopHandle, called
from slate_async.runtime.opening import Opening
from slate_async.runtime.shared import Shared, Taken
from slate_async.settings.collections import CollectionSettings

PARALLEL_READS = 16
LIVES = 100
"""A collection that is deleted while it is created is created again so often at most."""


class Lake(LoopHandle):
    """Made by `open_collections`; see the module docstring. ``async with`` closes it, and what was opened in it."""

    def __init__(self, context: LakeContext, *, controller: bool) -> None:
        super().__init__(f"the lake {context.url}")
        self._standbys = Shared(StandbyController.close) if controller else None
        self._context = context
        self._members: dict[int, LoopHandle] = {}
        self._kept: dict[UUID, LifeStores] = {}
        self._kept_until_closed = Taken()
        self._on_closed(self._kept_until_closed.give_back)

    def __repr__(self) -> str:
        return f"<Lake {self._context.url}, {'open' if self._guard.open else 'closed'}, handles={len(self._members)}>"

    @property
    def settings(self) -> CollectionSettings:
        """Of all that is opened in it."""
        return self._context.settings

    async def create(
        self,
        name: str,
        *,
        data: type[bytes] | pa.Schema = bytes,
        time: Literal["u64", "u64x2"] = "u64",
        appends: Literal["definite", "compare"] = "definite",
        note: str = "",
    ) -> ReadHandle:
        """Create the collection ``name``, or find it there, and open a read handle on it: what is appended from now on
        stays readable at times of the caller's choice.

        name: 1 to 64 of a-z, 0-9 and -
        data: ``bytes``, or the schema of the data columns
        time: ``"u64"``, or ``"u64x2"`` for pairs under the product order
        appends: ``"definite"`` (all writers write the same updates at a time), or ``"compare"`` (one chain, each
        append says where it ends)
        note: stored with the hold of the handle, for people

        Raises `InvalidError`, which names the difference, for one that was created otherwise; `UnavailableError`: it
        may have been created, and another call finds it."""
        self._check()
        check_name(name, "collection")
        schema, kind = schema_of(data, time), appends_of(appends)
        collection = self.collection(name)
        for _ in range(LIVES):
            runtime = self._context.runtime
            life = Life(runtime.ids.uuid(), 0, LifeState.OPEN, schema, kind, runtime.clock.now_ms())
            found = await self._context.supervisor.run(f"creation of {name}", self._created(name, life))
            try:
                return await collection._open(found, partial(_open_alike, collection, difference(life, found), note))
            except NotFoundError:  # a deletion that stopped midway
                await self._context.supervisor.run(f"end of {name}", self._ended(name, found))
        raise UnavailableError(f"{name} was deleted {LIVES} times while it was created", outcome="unknown")

    def collection(self, name: str) -> Collection:
        """The collection ``name``, whether it is there or not. Raises `InvalidError` for a name that none may have."""
        return Collection(name, self._context, self)

    async def list(self) -> builtins.list[CollectionInfo | DamagedCollection]:
        """All collections that were ever created here, in the order of their names. One whose register is damaged or
        missing is a `DamagedCollection`, whose ``state`` is ``"damaged"``. Raises `UnavailableError`.

        One request lists a folder, another reads its register. Other files and folders are left out."""
        self._check()
        names = [name async for name in self._context.names()]
        found = await map_bounded(self._look, names, PARALLEL_READS)
        return [info for info in found if info is not None]

    async def delete(self, name: str, *, force: bool = False) -> None:
        """Delete the collection ``name`` and all that it holds. Of one that was deleted before, what is left goes.

        force: although readers hold it; their handles raise `ClosedError` from then on

        Raises `ConflictError`, which names them, while readers hold it; `NotFoundError`; `UnavailableError`: it may be
        deleted, and another call goes on."""
        self._check()
        check_kinds(("force", isinstance(force, bool), force, "True or False"))
        check_name(name, "collection")
        await self._context.supervisor.run(f"deletion of {name}", self._deleted(name, force))

    def controllers(self, names: builtins.list[str] | None = None) -> Opening[ControllerService]:
        """Be the controller of all collections here, those to come included: await it, or enter it with ``async with``.
        Controllers that work elsewhere are fenced.

        names: of the collections to keep, if not all"""
        if names is not None:
            for name in names:
                check_name(name, "collection")

        async def start() -> ControllerService:
            self._check()
            service = ControllerService(self._context, names=names)
            self._opened(service)
            return service

        return Opening(start, "the controllers", "lake.controllers(...)")

    async def close(self) -> None:
        """Close all that was opened in it, then give up its clients. Idempotent. May be cancelled: the closing goes on,
        and another call waits for it. Raises what closing the handles raised."""
        await self._end()

    def metrics(self) -> dict[str, int | float]:
        """Requests of the client that it shares, and handles that are open, by dotted name."""
        return {"collections.handles": len(self._members), **self._context.stats.metrics()}

    # ---- for what is opened in it

    def _check_open(self) -> None:
        """Raise `ClosedError` unless something may be opened now."""
        self._check()

    def _opened(self, handle: LoopHandle) -> None:
        """``handle`` is open, and closed when this is. Raises `ClosedError` if it is."""
        self._check()
        number = id(handle)
        self._members[number] = handle

        def ended() -> None:
            self._members.pop(number, None)

        handle._on_closed(called(ended))

    def _keep(self, name: str, life: Life) -> LifeStores:
        """What is used of ``life`` by what needs no closing, until this closes. Raises `ClosedError`."""
        self._check_open()
        if life.uuid not in self._kept:
            self._kept[life.uuid] = self._context.take(name, life, self._kept_until_closed)
        return self._kept[life.uuid]

    # ---- parts

    def _check(self) -> None:
        self._guard.check("not_applied")

    def _stop(self) -> None:
        """Close without finishing what was begun."""
        if self._ending is not None:
            self._ending.cancel()

    async def _finish(self) -> None:
        try:
            ended = await asyncio.gather(
                *(handle._end() for handle in list(self._members.values())), return_exceptions=True
            )
        finally:
            await self._context.supervisor.close()
        for failure in ended:
            if isinstance(failure, BaseException):
                raise failure

    async def _created(self, name: str, life: Life) -> Life:
        async with self._context.register(name) as register:
            return await register.create(life)

    async def _ended(self, name: str, life: Life) -> None:
        """Mark ``life`` as deleted, which has a tombstone already."""
        async with self._context.register(name) as register:
            await register.end(life.uuid)

    async def _look(self, name: str) -> CollectionInfo | DamagedCollection | None:
        async with self._context.register(name) as register:
            try:
                life = await register.find()
            except CorruptionError as error:
                return DamagedCollection(name, str(error))
        return None if life is None else info_of(name, life)

    async def _deleted(self, name: str, force: bool) -> None:
        taken = Taken()
        try:
            async with self._context.register(name) as register:
                life = await register.load()
                if life is None:
                    await self._context.find(name)  # which says that it is not there
                    return
                stores = self._context.take(name, life, taken)
                if life.state is LifeState.DELETED:
                    await remove_deleted(stores)
                else:
                    await delete_life(stores, register, force=force)
                for earlier in await self._context.earlier(name, life):
                    try:
                        await remove_dead(earlier)
                    finally:
                        await earlier.close()
        finally:
            await taken.give_back()


async def _open_alike(collection: Collection, differs: str | None, note: str, stores: LifeStores) -> ReadHandle:
    """A reader of what was created, or found there. ``differs``: how it is not what was to be created."""
    if differs is not None:
        check_open(await stores.versions.load())
        raise InvalidError(f"{stores.name} is there already, {differs}")
    return await open_reader(collection._reading(stores), note)
