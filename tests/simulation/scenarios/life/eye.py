"""What a database really is, at every time: each version of its manifest as it lands, and each deletion.

The eye reads the shared store and metadata directly, without network and without time, so it can judge a request in the
very step in which it takes effect. It remembers what was wrong; the end of the scenario raises it.

========================  =======================================================================================
kind                      what must hold
========================  =======================================================================================
deleted                   nothing is deleted that the head, a checkpoint, a compaction, or a clone needs
dangling                  a version names no SST that is not there
zombie-compactor          what only a compactor does is done by the process whose claim is the newest
========================  =======================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

from metastores import names
from metastores.protocol import VersionRef
from slate_async.objectstore.meta_objects import MetaObjects
from slate_async.runtime.supervisor import Supervisor
from slate_async.storage.log.names import PREFIX as LOG_PREFIX
from slate_async.storage.log.names import parse_epoch_prefixed
from slate_async.storage.log.register import EMPTY, decode
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.marker import MARKER
from slate_async.storage.manifest.state import ManifestState, SstRef
from slate_async.storage.sst.names import SST_PREFIX
from tests.live_set import is_live_log
from tests.simulation.checkers import Violation
from tests.simulation.network import Request, Sender
from tests.simulation.node import Cloud, Node
from tests.simulation.scenarios.engine.database import SimulatedDatabase, node_failure
from tests.simulation.world import World

T = TypeVar("T")


class _Nearby:
    """A network without ways: every request has its effect at once."""

    async def send(self, sender: Sender, operation: str, key: str, effect: Callable[[], T], *, write: bool) -> T:
        """What ``effect`` returns."""
        return effect()


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise RuntimeError("it waits")


def nearby(world: World) -> Cloud:
    """The world's objects and metadata without their network."""
    cloud = Cloud(_Nearby(), world.cloud.store)  # type: ignore[arg-type]
    cloud.metadata = world.cloud.metadata
    return cloud


class Eye:
    """Sees what one database is. ``others``: the eyes of databases that may be clones of it."""

    def __init__(self, database: SimulatedDatabase, node: Node, cloud: Cloud, others: list[Eye]) -> None:
        self.database = database
        self._others = others
        self._folder = f"{database.folder}/"
        self._objects = database.world.cloud.store.objects
        self.store = database.store(node, cloud)
        objects = MetaObjects(self.store)
        self._factory = database.factory(node, cloud)
        supervisor = Supervisor("eye", node_failure)
        self._driver = ManifestDriver(
            self._factory.manifest(objects, database.name),
            node.runtime,
            supervisor,
            name=database.name,
            full_every=1,
            deadline_ms=1,
        )
        self._register = self._factory.register(objects, database.name)
        self._claimed: dict[int, str] = {}
        self._named: dict[VersionRef, tuple[tuple[SstRef, ...], VersionRef | None]] = {}
        self.head: ManifestState | None = None
        self.wrong: list[Violation] = []

    # ---- requests (see `tests.simulation.network.Observer`)

    def landing(self, request: Request) -> None:
        """Judge a deletion."""
        if request.operation != "delete" or self.head is None or not request.key.startswith(self._folder):
            return
        if request.key not in self._objects:
            return
        why = self._why_needed(self.head, request.key[len(self._folder) :])
        if why is not None:
            self._note("deleted", f"{request.sender.name} deletes {request.key}, {why}")

    def landed(self, request: Request) -> None:
        """See whether there is a new head, and judge it."""
        if request.error is not None or not request.operation.startswith(("put-", "register-cas", "manifest-")):
            return
        if request.operation.startswith("put-") and names.MANIFEST.folder not in request.key:
            return
        if self.head is not None and request.operation == "manifest-collect":
            self._check_versions(request.sender.name)
        state = at_once(self._driver.load())
        if state is None or (self.head is not None and state.ref == self.head.ref):
            return
        before, self.head = self.head, state
        self._judge(before, state, request.sender.name)

    # ---- versions

    def _judge(self, before: ManifestState | None, state: ManifestState, author: str) -> None:
        known = set[str]() if before is None else set(_own(before))
        for location in _own(state):
            if location not in known and self._folder + location not in self._objects:
                self._note("dangling", f"{author} commits version {state.version}, which names {location}")
        if before is None:
            return
        if state.compactor_epoch != before.compactor_epoch:
            self._claimed[state.compactor_epoch] = author
        elif _is_compactors(before, state) and author != self._claimed.get(state.compactor_epoch):
            self._note("zombie-compactor", f"{author} compacts in version {state.version}, and is not the compactor")

    def _check_versions(self, author: str) -> None:
        """A server deletes versions all at once: those needed must be there still."""
        assert self.head is not None
        for ref in self.kept_versions(self.head):
            if at_once(self._driver.metastore.read(ref)) is None:
                self._note("deleted", f"{author} deletes manifest version {ref.version}, which is needed")

    # ---- what is needed

    def _why_needed(self, head: ManifestState, key: str) -> str | None:
        if key.startswith(SST_PREFIX):
            if key in self.kept_ssts(head):
                return f"which version {head.version} keeps"
            if any(key in other.foreign_ssts(head.database_id) for other in self._others if other is not self):
                return "which a clone names"
        elif key.startswith(LOG_PREFIX):
            if key in self.kept_ssts(head):
                return f"which version {head.version} keeps as an SST"
            if self._is_live_log(head, key):
                return f"a part of the log that version {head.version} needs"
        elif key == MARKER:
            return "which proves the place"
        elif key.startswith(names.MANIFEST.folder):
            needed = self.kept_versions(head)
            body = names.MANIFEST.body_ref(key)
            if body in needed or names.MANIFEST.version_of(key) in [ref.version for ref in needed]:
                return f"a version that version {head.version} needs"
        return None

    def _is_live_log(self, head: ManifestState, key: str) -> bool:
        info = at_once(self.store.head(key))
        if head.log_protocol == "contiguous":
            return is_live_log(info, head, EMPTY)
        cell = at_once(self._register.read())
        register = EMPTY if cell is None else decode(cell.value)
        epoch, log_id = parse_epoch_prefixed(key)
        if register.owner(log_id) not in (None, epoch):  # a zombie's: only its former owner may need it
            head = replace(
                head, checkpoints=tuple(checkpoint for checkpoint in head.checkpoints if checkpoint.log_ranges)
            )
        return is_live_log(info, head, register)

    def kept_ssts(self, head: ManifestState) -> set[str]:
        """Its own SSTs that the head, its checkpoints, its compactions and its pending ingests name."""
        kept = (sst for ref in _pinned(head) for sst in self._version(ref)[0])
        return {*_own(head), *(sst.location for sst in kept if sst.database_id is None)}

    def foreign_ssts(self, database_id: UUID) -> set[str]:
        """SSTs of that database that this one needs."""
        head = self.head
        if head is None or head.destroyed_at_ms is not None:
            return set()
        kept = (sst for ref in _pinned(head) for sst in self._version(ref)[0])
        return {sst.location for ssts in (head.ssts(), kept) for sst in ssts if sst.database_id == database_id}

    def kept_versions(self, head: ManifestState) -> list[VersionRef]:
        """The head, its checkpoints' versions, and what they are changes to."""
        refs = [head.ref, *_pinned(head)]
        return [*refs, *(base for ref in refs if (base := self._version(ref)[1]) is not None)]

    def _version(self, ref: VersionRef) -> tuple[tuple[SstRef, ...], VersionRef | None]:
        found = self._named.get(ref)
        if found is None:
            stored = at_once(self._driver.read_stored(ref))
            if stored is None:
                self._note("deleted", f"manifest version {ref.version} is named and not there")
            found = self._named[ref] = ((), None) if stored is None else (tuple(stored.state.ssts()), stored.base)
        return found

    def _note(self, kind: str, message: str) -> None:
        self.wrong.append(Violation(kind, f"{self.database.world.loop.time():.6f} {self.database.name}: {message}"))


def _own(state: ManifestState) -> Iterator[str]:
    """Locations of a state's SSTs that are its own database's, finished parts of compactions, pending ingests, and
    those that feeds are to deliver included."""
    finished = (sst for compaction in state.compactions for part in compaction.finished for sst in part.ssts)
    pending = (sst for job in state.ingests for sst in job.ssts)
    fed = (sst for checkpoint in state.checkpoints if checkpoint.feed is not None for sst in checkpoint.feed.ingests)
    return (sst.location for ssts in (state.ssts(), finished, pending, fed) for sst in ssts if sst.database_id is None)


def _pinned(head: ManifestState) -> list[VersionRef]:
    return list(dict.fromkeys(checkpoint.ref for checkpoint in head.checkpoints))


def _is_compactors(before: ManifestState, state: ManifestState) -> bool:
    """Whether only a compactor makes this step. Copying a clone's contents, showing the next checkpoint in a mirror and
    removing a database are others'."""
    if not before.initialized or state.removed != before.removed or state.mirrored != before.mirrored:
        return False
    l0_gone = {sst.object_id for sst in before.l0} - {sst.object_id for sst in state.l0}
    return bool(l0_gone) or before.runs != state.runs or before.compactions != state.compactions
