"""What must be in the store, found out by reading the manifest as anybody would, and nothing of the collector."""

from __future__ import annotations

from dataclasses import dataclass, field

from metastores.names import MANIFEST
from metastores.put_if_absent import PutIfAbsentMetaStore
from slate_async.codec.header import HEADER_BYTES
from slate_async.objectstore.memory import MemoryStore
from slate_async.objectstore.meta_objects import MetaObjects
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.supervisor import Supervisor
from slate_async.storage.log.names import PREFIX, contiguous_key, parse_contiguous
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.state import ManifestState
from slate_async.types import Buffer


def driver_of(store: object, runtime: Runtime) -> ManifestDriver:
    """A commit driver as a process of its own would have."""
    metastore = PutIfAbsentMetaStore(MetaObjects(store))  # type: ignore[arg-type]
    supervisor = Supervisor("test", lambda cause: None)
    return ManifestDriver(metastore, runtime, supervisor, name="gc", full_every=4, deadline_ms=60_000)


@dataclass
class Oracle:
    """Looks at ``store`` itself, past every gate. ``log``: ids of log objects ever put; ``fences``: of fences."""

    store: MemoryStore
    runtime: Runtime
    log: set[int] = field(default_factory=set)
    fences: set[int] = field(default_factory=set)

    async def changed(self, key: str, data: Buffer | None) -> None:
        """A request took effect: ``data`` lies at ``key`` now, or nothing."""
        if data is not None and key.startswith(PREFIX):
            (self.fences if len(data) == HEADER_BYTES else self.log).add(parse_contiguous(key))
        await self.check()

    async def needed(self) -> set[str]:
        """Keys of everything that lives."""
        driver = driver_of(self.store, self.runtime)
        head = await driver.load()
        assert head is not None
        keys = {contiguous_key(log_id) for log_id in self._log_of(head) | self.fences}
        for ref in {head.ref, *(checkpoint.ref for checkpoint in head.checkpoints)}:
            stored = await driver.read_stored(ref)
            assert stored is not None, f"version {ref.version}, which the head names, cannot be read"
            keys |= {sst.location for sst in stored.state.ssts()}
            keys |= {MANIFEST.version_key(version.version) for version in (ref, stored.base) if version is not None}
        for compaction in head.compactions:
            keys |= {sst.location for part in compaction.finished for sst in part.ssts}
        return keys

    def _log_of(self, head: ManifestState) -> set[int]:
        """The log positions something may still read."""
        spans = [
            (head.log_start, None),
            *((checkpoint.log_start, checkpoint.log_end) for checkpoint in head.checkpoints),
        ]
        return {n for n in self.log for first, last in spans if n >= first and (last is None or n <= last)}

    async def present(self) -> set[str]:
        """Keys of everything there is, but deletion boundaries."""
        return {info.key async for info in self.store.list() if not info.key.startswith("manifest/boundary/")}

    async def check(self) -> None:
        """Nothing that lives is missing."""
        missing = await self.needed() - await self.present()
        assert not missing, f"deleted, though reachable: {sorted(missing)}"

    async def check_exact(self) -> None:
        """And nothing else is left."""
        await self.check()
        left = await self.present() - await self.needed()
        assert not left, f"nothing names them, and no round deletes them: {sorted(left)}"


SEGMENT = b"s" * (HEADER_BYTES + 1)
FENCE = b"f" * HEADER_BYTES
