"""Versions of a catalog in a metastore, and commits to it: see `slate_async.commits`."""

from __future__ import annotations

from metastores.protocol import Committed, MetaStore, Unknown, VersionRef
from slate_async.commits import CommitLoop, WriteOutcome
from slate_async.errors import CorruptionError
from slate_async.metastore_errors import translated
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.supervisor import Supervisor
from slate_async.tables.codec.catalog import decode_catalog, encode_catalog
from slate_async.tables.core.catalog import CatalogHead


class Catalogs:
    """The versions of one catalog. Version 0 is not stored. ``name``: of the catalog, for messages."""

    def __init__(
        self, metastore: MetaStore, runtime: Runtime, supervisor: Supervisor, *, name: str, deadline_ms: int
    ) -> None:
        self.name = name
        self._metastore = metastore
        self._runtime = runtime
        self._head: CatalogHead | None = None
        self.commits: CommitLoop[CatalogHead] = CommitLoop(
            self,
            runtime,
            supervisor,
            what=f"catalog {name}",
            missing=f"there is no catalog {name} any more",
            deadline_ms=deadline_ms,
        )

    @property
    def head(self) -> CatalogHead | None:
        """The newest one seen so far."""
        return self._head

    async def load(self) -> CatalogHead:
        """The catalog right now. Raises `CorruptionError` if there was one and there is none any more."""
        known = self._head
        record = await translated(self._metastore.latest())
        if record is None:
            if known is not None and known.version:
                raise CorruptionError(
                    f"there was version {known.version}, and there is none any more; restore it",
                    object_name=f"catalog {self.name}",
                )
            return self._see(CatalogHead())
        name = f"version {record.ref.version} of the catalog {self.name}"
        return self._see(decode_catalog(record.payload, record.ref.version, object_name=name))

    async def write(self, old: CatalogHead | None, new: CatalogHead) -> WriteOutcome[CatalogHead]:
        """See `slate_async.commits.Versions`."""
        ref = VersionRef(new.version, self._runtime.ids.token())
        outcome = await translated(self._metastore.commit(ref, encode_catalog(new)))
        if isinstance(outcome, Committed):
            self._see(new)
            return Committed(new)
        if isinstance(outcome, Unknown):
            return Unknown(f"no answer to the commit of version {new.version} of the catalog: {outcome.cause}")
        return outcome

    async def close(self) -> None:
        """Close the metastore. Idempotent."""
        await self._metastore.close()

    def _see(self, head: CatalogHead) -> CatalogHead:
        if self._head is None or head.version > self._head.version:
            self._head = head
        return self._head
