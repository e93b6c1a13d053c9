"""What a manifest state keeps: itself, its checkpoints' versions with the full ones they are changes to, and every SST
any of them, a compaction's finished part, or a pending ingest names.

Reachable = head, checkpoints, registered compactions, pending ingests. The inputs of a compaction need no mention: it
can only be committed while the head names them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from metastores.protocol import VersionRef
from slate_async.errors import CorruptionError
from slate_async.manifest.driver import ManifestDriver
from slate_async.manifest.state import ManifestState
from slate_async.runtime.protocol import Runtime


@dataclass(frozen=True, slots=True)
class Reachable:
    """keys: objects of this very database that are SSTs of something that lives, wherever they lie
    versions: manifest versions that stay
    """

    keys: frozenset[str]
    versions: frozenset[VersionRef]


class VersionGoneError(Exception):
    """A version that the state names is not there. The state was overtaken, or the version was lost."""

    def __init__(self, ref: VersionRef) -> None:
        super().__init__(f"manifest version {ref.version} is missing")
        self.ref = ref

    def as_corruption(self) -> CorruptionError:
        """The error once the newest head names it still."""
        return CorruptionError(
            "is missing, though the manifest names it; nothing was deleted",
            object_name=f"manifest version {self.ref.version}",
        )


def own_keys(state: ManifestState) -> frozenset[str]:
    """The SSTs a state reads from that are its own database's."""
    return frozenset(sst.location for sst in state.ssts() if sst.database_id is None)


def finished_keys(state: ManifestState) -> frozenset[str]:
    """The outputs of finished parts of registered compactions, which a later compactor goes on from."""
    return frozenset(
        sst.location
        for compaction in state.compactions
        for part in compaction.finished
        for sst in part.ssts
        if sst.database_id is None
    )


def pending_keys(state: ManifestState) -> frozenset[str]:
    """The SSTs of ingests that are committed and wait to be admitted."""
    return frozenset(sst.location for ingest in state.ingests for sst in ingest.ssts)


def fed_keys(state: ManifestState) -> frozenset[str]:
    """The SSTs of ingests that change feeds have not delivered."""
    return frozenset(sst.location for one in state.checkpoints if one.feed is not None for sst in one.feed.ingests)


class _Kept(NamedTuple):
    """What one stored version keeps: SSTs, and the full version it is a change to."""

    keys: frozenset[str]
    base: VersionRef | None


class Reach:
    """Finds what is reachable, and remembers what old versions keep, for they never change."""

    def __init__(self, driver: ManifestDriver, runtime: Runtime) -> None:
        self._driver = driver
        self._runtime = runtime
        self._known: dict[VersionRef, _Kept] = {}

    async def of(self, state: ManifestState) -> Reachable:
        """What ``state`` keeps: a committed state, or one that an edit made of it.

        Raises `VersionGoneError`: a collector that knows newer states was here, or the manifest is damaged."""
        named = dict.fromkeys([state.ref, *(one.ref for one in state.checkpoints)])
        self._known = {ref: known for ref, known in self._known.items() if ref in named}
        for ref in named:
            if ref not in self._known:
                self._known[ref] = await self._read(ref)
        known = list(self._known.values())
        bases = [one.base for one in known if one.base is not None]
        waiting = finished_keys(state) | pending_keys(state) | fed_keys(state)
        keys = await self._runtime.offload.run(lambda: waiting.union(*(one.keys for one in known)))
        return Reachable(keys, frozenset([*named, *bases]))

    async def _read(self, ref: VersionRef) -> _Kept:
        stored = await self._driver.read_stored(ref)
        if stored is None:
            raise VersionGoneError(ref)
        return _Kept(await self._runtime.offload.run(lambda: own_keys(stored.state)), stored.base)
