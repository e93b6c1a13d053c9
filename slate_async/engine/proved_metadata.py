"""`ProvedMetadata`: a database's metadata for work that claims no role: each look proves that its place is here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from metastores.protocol import Register
from slate_async.engine.context import DatabaseContext, metadata_closers
from slate_async.runtime.supervisor import Supervisor
from slate_async.storage.log.extent import LogExtent, find_extent
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.protocol import check_usable
from slate_async.storage.manifest.ownership import proved_head
from slate_async.storage.manifest.state import ManifestState


class ProvedMetadata:
    """Nothing is sent before its first use. ``driver``: of the manifest."""

    driver: ManifestDriver

    def __init__(self, context: DatabaseContext, supervisor: Supervisor) -> None:
        self.driver = context.driver(supervisor)
        self._context = context
        self._register: Register | None = None

    async def head(self) -> ManifestState:
        """The newest state. Raises `InvalidError` if there is no database, it was destroyed, or is not here."""
        head = await proved_head(self._context.ground, self.driver)
        check_usable(head)
        return head

    def register(self, head: ManifestState) -> Register | None:
        """The writer's register, which an epoch-prefixed log has."""
        if self._register is None:
            self._register = self._context.register(head)
        return self._register

    async def log_extent(self) -> LogExtent:
        """The log as far as it can be seen from here: what a writer holds in its memory is out of reach."""
        register = self.register(await self.head())
        check = partial(self._context.ground.check_again, load_head=self.driver.load)
        return await find_extent(self._context.store, self.driver.load, register, check)

    def closers(self) -> list[Callable[[], Awaitable[None]]]:
        """What ends its use, called last one first."""
        return metadata_closers(self.driver, self._register)
