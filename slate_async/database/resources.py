"""`Clients`: the clients of stores and metastores that the databases of one `Environment` share, counted by use."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeAlias

from metastores.protocol import MetaStoreFactory
from slate_async.engine.stored_database import StoredDatabase, open_stored
from slate_async.objectstore.clients import StoreClients, StorePath
from slate_async.runtime.concurrent import run_to_completion
from slate_async.runtime.shared import Taken
from slate_async.runtime.supervisor import Supervisor
from slate_async.settings import Settings

DatabasePath: TypeAlias = StorePath
"""A database's URL or local path, or a store that is its folder."""


class Clients(StoreClients):
    """Those of the stores and metastores, which also open a database as it is stored."""

    @asynccontextmanager
    async def stored_at(
        self, path: str, settings: Settings, metastore: str | MetaStoreFactory | None, supervisor: Supervisor
    ) -> AsyncIterator[StoredDatabase]:
        """The database at ``path``, with clients that are given back at the end."""
        taken = Taken()
        try:
            factory = self.factory(metastore, settings, taken)
            store, name = self.store_at(path, settings, metastore, taken)
            async with open_stored(name, store, factory, supervisor, self._runtime, settings) as database:
                yield database
        finally:
            await run_to_completion(taken.give_back())
