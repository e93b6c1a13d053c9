"""`LakeContext`: what the collections of one folder share in one process, and how a life is found and used.

Each collection is a folder of its own, named after it. What one process uses of a life is shared by all its handles,
and closed after the last one. Folders and objects that are none of a collection's are left alone.

Rule C28 of collections.
"""

from __future__ import annotations

import difflib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from uuid import UUID

from metastores.protocol import MetaStoreFactory
from slate_async.collections.codec.life import Life, LifeState
from slate_async.collections.core.names import check_name, is_name
from slate_async.collections.life_stores import LifeStores
from slate_async.collections.store.lives import LifeRegister, littered
from slate_async.errors import NotFoundError
from slate_async.objectstore.prefixed import PrefixedStore
from slate_async.objectstore.protocol import ObjectStore
from slate_async.objectstore.stats import StoreStats
from slate_async.runtime.concurrent import run_to_completion
from slate_async.runtime.pokes import Pokes
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.shared import Shared, Taken
from slate_async.runtime.supervisor import Supervisor
from slate_async.settings.collections import CollectionSettings

NAMED_AT_MOST = 20
"""Folders that are looked at for what an unknown name may have meant."""


@dataclass(frozen=True, slots=True)
class LakeContext:
    """See the module docstring.

    url: of the folder, for messages and as part of names in a metastore outside of the store
    store: the folder
    supervisor: runs what outlives a cancelled caller
    stats: of the client of the store, with all that share it
    pokes: of a life, by its uuid: all lakes of one `Environment` have the same, so one hears what another appends
    """

    url: str
    store: ObjectStore
    metastores: MetaStoreFactory
    runtime: Runtime
    settings: CollectionSettings
    supervisor: Supervisor
    stats: StoreStats
    pokes: Callable[[UUID], Pokes]
    lives: Shared[LifeStores] = field(default_factory=lambda: Shared(LifeStores.close))

    @asynccontextmanager
    async def register(self, name: str) -> AsyncIterator[LifeRegister]:
        """The register of the collection ``name``. Raises `InvalidError` for a name that none may have."""
        check_name(name, "collection")
        opened = LifeRegister(
            PrefixedStore(self.store, name),
            self.runtime,
            self.supervisor,
            name=name,
            deadline_ms=self.settings.retry_deadline_ms,
            elsewhere=partial(self._in_metastore, name),
        )
        try:
            yield opened
        finally:
            await run_to_completion(opened.close())

    async def find(self, name: str) -> Life:
        """The life that is open. Raises `NotFoundError`, which says what there is, or `CorruptionError` if the register
        was lost."""
        async with self.register(name) as register:
            life = await register.find()
        if life is None:
            raise NotFoundError(await self._unknown(name))
        if life.state is LifeState.DELETED:
            raise self.deleted(name)
        return life

    def deleted(self, name: str) -> NotFoundError:
        """The error for a collection that was deleted."""
        return NotFoundError(f"the collection {name} of {self.url} was deleted; create it to begin anew")

    def take(self, name: str, life: Life, taken: Taken) -> LifeStores:
        """What is used of ``life``, until ``taken`` gives it back."""
        return taken.take(self.lives, (name, life.uuid), lambda: self._stores(name, life))

    async def earlier(self, name: str, life: Life) -> list[LifeStores]:
        """The lives before ``life`` into whose folders something was put since. Their schemas are not known any more,
        and these stores have that of ``life``. Close each."""
        numbers = await littered(PrefixedStore(self.store, name), life.number)
        return [self._stores(name, replace(life, number=number)) for number in numbers]

    async def _in_metastore(self, name: str, life: Life) -> str | None:
        """What the metastore has of ``life``, in words."""
        stores = self._stores(name, life)
        try:
            head = await stores.versions.load()
        finally:
            await run_to_completion(stores.close())
        return f"version {head.version} of {stores.url}/{life.number} in its metastore" if head.version else None

    def _stores(self, name: str, life: Life) -> LifeStores:
        return LifeStores.of(
            PrefixedStore(self.store, name),
            life,
            name=name,
            url=f"{self.url}/{name}",
            metastores=self.metastores,
            runtime=self.runtime,
            settings=self.settings,
            supervisor=self.supervisor,
            pokes=self.pokes(life.uuid),
        )

    async def names(self) -> AsyncIterator[str]:
        """Names that collections may have, of all folders, in their order: one request for each."""
        after = ""
        while True:
            folder = await self._first_folder(after)
            if folder is None:
                return
            if is_name(folder):
                yield folder
            after = f"{folder}0"  # which follows all that is in the folder, whose names have a slash there

    async def _first_folder(self, after: str) -> str | None:
        async for info in self.store.list(start_after=after):
            folder, slash, _ = info.key.partition("/")
            if slash:
                return folder
        return None

    async def _unknown(self, name: str) -> str:
        said = f"there is no collection {name} in {self.url}"
        there: list[str] = []
        async for found in self.names():
            if found == name:  # its folder is there, and nothing says what it holds
                return f"{said}: a folder of that name is there, without the object {name}/collection"
            there.append(found)
            if len(there) == NAMED_AT_MOST:
                break
        if meant := difflib.get_close_matches(name, there, n=1):
            return f"{said}; is {meant[0]} meant?"
        if not there:
            return f"{said}, which has none"
        return f"{said}; there are {', '.join(there)}{', …' if len(there) == NAMED_AT_MOST else ''}"
