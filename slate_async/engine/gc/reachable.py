"""What a database keeps. Collectors delete the rest, and `maintenance.verify` checks that all of it is there.

Reachable = head, checkpoints' versions with the full ones they are changes to, and of the head alone: the finished
parts of registered compactions, pending ingests, ingests that change feeds are to deliver. A checkpoint's version may
name some of those, too: they were a matter of the time when it was the head. The inputs of a compaction need no
mention: it can only be committed while the head names them all.

Rules 25 and 26: docs/design/protocol-rules.md
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from metastores.protocol import VersionRef
from slate_async.errors import CorruptionError
from slate_async.runtime.protocol import Runtime
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.state import ManifestState, SstRef


@dataclass(frozen=True, slots=True)
class Reachable:
    """keys: objects of this very database that are SSTs of something that lives, wherever they lie
    versions: manifest versions that stay
    """

    keys: frozenset[str]
    versions: frozenset[VersionRef]


class VersionMissingError(Exception):
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


def living_versions(head: ManifestState) -> list[VersionRef]:
    """The versions that are read while ``head`` is the head: itself and those of its checkpoints."""
    return list(dict.fromkeys([head.ref, *(checkpoint.ref for checkpoint in head.checkpoints)]))


def finished_ssts(head: ManifestState) -> Iterator[SstRef]:
    """The outputs of finished parts of registered compactions, which a later compactor goes on from."""
    return (sst for compaction in head.compactions for part in compaction.finished for sst in part.ssts)


def pending_ssts(head: ManifestState) -> Iterator[SstRef]:
    """The SSTs of ingests that are committed and wait to be applied."""
    return (sst for ingest in head.ingests for sst in ingest.ssts)


def fed_ssts(head: ManifestState) -> Iterator[SstRef]:
    """The SSTs of ingests that change feeds have not delivered."""
    return (sst for checkpoint in head.checkpoints if checkpoint.feed is not None for sst in checkpoint.feed.ingests)


def waiting_ssts(head: ManifestState) -> Iterator[SstRef]:
    """SSTs that ``head`` keeps, as the head, besides those it reads from."""
    return chain(finished_ssts(head), pending_ssts(head), fed_ssts(head))


def reachable_ssts(head: ManifestState, versions: Iterable[ManifestState]) -> Iterator[SstRef]:
    """Every SST that must be there while ``head`` is the head, a parent's included; one may come several times.

    versions: those of `living_versions`, or as many of them as can be read"""
    return chain(waiting_ssts(head), *(version.ssts() for version in versions))


def own_keys(ssts: Iterable[SstRef]) -> frozenset[str]:
    """Where those lie that are the database's own."""
    return frozenset(sst.location for sst in ssts if sst.database_id is None)


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

        Raises `VersionMissingError`: a collector that knows newer states was here, or the manifest is damaged."""
        named = dict.fromkeys(living_versions(state))
        self._known = {ref: known for ref, known in self._known.items() if ref in named}
        for ref in named:
            if ref not in self._known:
                self._known[ref] = await self._read(ref)
        known = list(self._known.values())
        bases = [held.base for held in known if held.base is not None]
        waiting = own_keys(waiting_ssts(state))
        keys = await self._runtime.offload.run(lambda: waiting.union(*(held.keys for held in known)))
        return Reachable(keys, frozenset([*named, *bases]))

    async def _read(self, ref: VersionRef) -> _Kept:
        stored = await self._driver.read_stored(ref)
        if stored is None:
            raise VersionMissingError(ref)
        return _Kept(await self._runtime.offload.run(lambda: own_keys(stored.state.ssts())), stored.base)
