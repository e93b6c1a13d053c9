"""Metastores that all simulated processes share, in the manner of a database server: one linearizable cell per
register, one linearizable sequence of versions per manifest; and the handles one process has of them.

A write whose fate the caller cannot know is `Unknown`; it may come in later, and its condition is judged then. One
that certainly is not in raises `MetaStoreUnavailableError`, as the product's metastores over objects do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from metastores.errors import MetaStoreInvalidError, MetaStoreUnavailableError
from metastores.names import MANIFEST, Layout, check_ref
from metastores.protocol import (
    CasOutcome,
    Cell,
    CommitOutcome,
    Committed,
    ConditionalObjects,
    Conflict,
    Needs,
    Record,
    Unknown,
    VersionRef,
)
from tests.simulation.faults import RequestFailedError
from tests.simulation.network import Network, Sender
from tests.simulation.trace import fingerprint

T = TypeVar("T")
MAX_CELL_BYTES = 350 * 1024


class SimCell:
    """The shared value of one register. Every write gets a fresh tag."""

    def __init__(self) -> None:
        self.cell: Cell | None = None
        self.writes = 0

    def compare_and_set(self, expected_tag: str | None, value: bytes) -> CasOutcome:
        """One effect."""
        current = None if self.cell is None else self.cell.tag
        if current != expected_tag:
            return Conflict(self.cell)
        self.writes += 1
        self.cell = Cell(value, f"tag-{self.writes}")
        return Committed(self.cell.tag)


class SimVersions:
    """The shared versions of one manifest. The head's number survives the deletion of everything below it."""

    def __init__(self) -> None:
        self.records: dict[int, Record] = {}
        self.head = 0

    def latest(self) -> Record | None:
        """The head."""
        return self.records.get(self.head)

    def read(self, ref: VersionRef) -> Record | None:
        """That very version."""
        found = self.records.get(ref.version)
        return found if found is not None and found.ref == ref else None

    def commit(self, ref: VersionRef, payload: bytes) -> CommitOutcome:
        """One effect: wins iff the head is the version before."""
        if ref.version != self.head + 1:
            head = self.latest()
            return Conflict(None if head is None else head.ref)
        self.head = ref.version
        self.records[ref.version] = Record(ref, payload)
        return Committed(ref)

    def refs(self) -> list[VersionRef]:
        """Stored versions, ascending."""
        return [self.records[version].ref for version in sorted(self.records)]

    def delete(self, refs: Sequence[VersionRef]) -> None:
        """Forget versions below the head."""
        for ref in refs:
            if ref.version >= self.head:
                raise MetaStoreInvalidError(f"version {ref.version} is the head or above it")
        for ref in refs:
            if self.read(ref) is not None:
                del self.records[ref.version]

    def collect(self, retained: Sequence[VersionRef], as_of: VersionRef | None, limit: int | None) -> int:
        """Forget what `doomed` names."""
        doomed = self.doomed(retained, as_of, limit)
        self.delete(doomed)
        return len(doomed)

    def doomed(self, retained: Sequence[VersionRef], as_of: VersionRef | None, limit: int | None) -> list[VersionRef]:
        """Every version below ``as_of`` (the head, if not given) that ``retained`` does not name, the oldest ``limit``
        of them."""
        end = self.head if as_of is None else min(as_of.version, self.head)
        return [ref for ref in self.refs() if ref.version < end and ref not in retained][:limit]


class _Handle:
    """What registers and metastores of one process have in common."""

    def __init__(self, network: Network, process: Sender, name: str) -> None:
        self._network = network
        self._process = process
        self._name = name

    async def _read(self, operation: str, effect: Callable[[], T]) -> T:
        try:
            return await self._network.send(self._process, operation, self._name, effect, write=False)
        except RequestFailedError as error:
            raise MetaStoreUnavailableError(str(error)) from error

    async def _write(self, operation: str, effect: Callable[[], T]) -> T | Unknown:
        try:
            return await self._network.send(self._process, operation, self._name, effect, write=True)
        except RequestFailedError as error:
            if error.outcome == "not_applied":
                raise MetaStoreUnavailableError(str(error)) from error
            return Unknown(str(error))

    async def close(self) -> None:
        """Nothing to release."""


class FaultyRegister(_Handle):
    """A `metastores.protocol.Register` bound to one process."""

    def __init__(self, network: Network, process: Sender, name: str, shared: SimCell) -> None:
        super().__init__(network, process, name)
        self._shared = shared

    async def read(self) -> Cell | None:
        """The newest value."""
        return await self._read("register-read", lambda: self._shared.cell)

    async def compare_and_set(self, expected_tag: str | None, value: bytes) -> CasOutcome:
        """Write iff the tag still is ``expected_tag``."""
        if len(value) > MAX_CELL_BYTES:
            raise MetaStoreInvalidError(f"a register holds {MAX_CELL_BYTES} bytes, not {len(value)}")
        operation = f"register-cas({fingerprint(value)})"
        return await self._write(operation, lambda: self._shared.compare_and_set(expected_tag, value))


class FaultyMetaStore(_Handle):
    """A `metastores.protocol.MetaStore` bound to one process."""

    def __init__(self, network: Network, process: Sender, name: str, shared: SimVersions) -> None:
        super().__init__(network, process, name)
        self._shared = shared

    async def latest(self) -> Record | None:
        """The head."""
        return await self._read("manifest-latest", self._shared.latest)

    async def read(self, ref: VersionRef) -> Record | None:
        """That very version."""
        return await self._read(f"manifest-read-{ref.version}", lambda: self._shared.read(ref))

    async def commit(self, ref: VersionRef, payload: bytes) -> CommitOutcome:
        """Make ``payload`` version ``ref.version``."""
        check_ref(ref)
        operation = f"manifest-commit-{ref.version}({fingerprint(payload)})"
        return await self._write(operation, lambda: self._shared.commit(ref, payload))

    async def versions(self) -> list[VersionRef]:
        """Stored versions."""
        return await self._read("manifest-versions", self._shared.refs)

    async def delete(self, refs: Sequence[VersionRef]) -> None:
        """Delete versions below the head."""
        if isinstance(await self._write("manifest-delete", lambda: self._shared.delete(refs)), Unknown):
            raise MetaStoreUnavailableError("deleting versions: outcome unknown")

    async def collect(
        self,
        retained: Sequence[VersionRef],
        *,
        as_of: VersionRef | None = None,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> int:
        """Delete what ``retained`` does not name, below ``as_of``."""
        if dry_run:
            return len(await self._read("manifest-versions", lambda: self._shared.doomed(retained, as_of, limit)))
        done = await self._write("manifest-collect", lambda: self._shared.collect(retained, as_of, limit))
        if isinstance(done, Unknown):
            raise MetaStoreUnavailableError("collecting versions: outcome unknown")
        return done


class SimMetadata:
    """All registers and manifests of a world, by database name."""

    def __init__(self) -> None:
        self.cells: dict[str, SimCell] = {}
        self.manifests: dict[str, SimVersions] = {}


class SimMetaStoreFactory:
    """A `metastores.protocol.MetaStoreFactory` bound to one process. Needs nothing of the object store."""

    needs = Needs()

    def __init__(self, network: Network, process: Sender, shared: SimMetadata) -> None:
        self._network = network
        self._process = process
        self._shared = shared

    def manifest(self, objects: ConditionalObjects, name: str, layout: Layout = MANIFEST) -> FaultyMetaStore:
        """The manifest of that database."""
        shared = self._shared.manifests.setdefault(name, SimVersions())
        return FaultyMetaStore(self._network, self._process, f"{layout.what} of {name}", shared)

    def register(self, objects: ConditionalObjects, name: str) -> FaultyRegister:
        """The register of that database."""
        shared = self._shared.cells.setdefault(name, SimCell())
        return FaultyRegister(self._network, self._process, f"register of {name}", shared)

    async def close(self) -> None:
        """Nothing to release."""
