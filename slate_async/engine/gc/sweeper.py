"""One round of garbage collection: read, decide, commit, delete.

Ordering rule (rules 6, 8, 25 and 26)::

    head -> listing of SSTs -> commit what ended, and the low-water mark -> what is reachable from THAT state
         -> manifest versions -> log -> SSTs -> leftovers

Everything deleted is judged by one committed state: what it does not name and what lies below its own positions and
low-water mark (``sst_floor``) can be named by no later state. So two sweepers, or one that stalls for days between any
two steps, only repeat each other's deletions. The listing of SSTs may be older than the state: what came later waits
for another round.

Rules 6, 8, 25 and 26: docs/design/protocol-rules.md
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from metastores.protocol import Register
from slate_async.engine.gc.batch import Batch
from slate_async.engine.gc.head_history import Sighting, newest_until, parse_sighting, revise
from slate_async.engine.gc.log import LogJudge
from slate_async.engine.gc.plan import UnnamedSst, with_floor
from slate_async.engine.gc.reachable import Reach, Reachable, VersionMissingError
from slate_async.engine.gc.report import BlockingCompaction, GarbageObject, GcProgress, GcReport
from slate_async.engine.gc.stalls import Stall, parse_stall, revise_stalls, stands_since
from slate_async.errors import InvalidError, NotFoundError, UnavailableError
from slate_async.metastore_errors import translated
from slate_async.objectstore.protocol import ObjectInfo, ObjectStore
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.yield_budget import YieldBudget
from slate_async.storage.log import register as registers
from slate_async.storage.log.names import PREFIX as LOG_PREFIX
from slate_async.storage.log.protocol import CheckPlace, nothing_to_prove
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.compactions import work_mark
from slate_async.storage.manifest.edits.gc import AdvanceGc
from slate_async.storage.manifest.state import ManifestState
from slate_async.storage.sst.names import SST_PREFIX, parse_sst_key

logger = logging.getLogger(__name__)
OVERTAKEN_LIMIT = 5
"""How often a round whose state was overtaken by another collector is begun anew."""
NOTES_PREFIX = "gc/"
PROBED_MS = 600_000
"""A probe may use its object for so long. If GC deleted it earlier, the probe would take a sound store for a broken
one."""
UNNAMED = "no manifest version that stays names it, nor does a compaction"
LEFT_OVER = "left by a creation that was not finished"


@dataclass(frozen=True, slots=True)
class Limits:
    """min_age_ms: work begun less than this ago is not refused
    skew_ms: how far clocks of different machines may be apart
    max_deletes: objects, and as many manifest versions, deleted in one round
    stalled_ms: a compactor that put nothing down for this long loses its registered compactions, and its role
    """

    min_age_ms: int
    skew_ms: int
    max_deletes: int
    stalled_ms: int


@dataclass(slots=True)
class GcStats:
    """Counters of one sweeper. failures: rounds of its own accord that did not come to their end"""

    rounds: int = 0
    failures: int = 0
    manifest_versions: int = 0
    objects: int = 0
    bytes: int = 0

    def metrics(self) -> dict[str, int]:
        """By dotted name."""
        return {
            "gc.rounds": self.rounds,
            "gc.failures": self.failures,
            "gc.manifest_versions": self.manifest_versions,
            "gc.objects": self.objects,
            "gc.deleted_bytes": self.bytes,
        }


@dataclass(frozen=True, slots=True)
class _Judged:
    """What a round goes by: the head it found, the state it made of it, what that one keeps, and what else was seen."""

    now_ms: int
    head: ManifestState
    state: ManifestState
    reachable: Reachable
    unnamed: Sequence[UnnamedSst]
    notes: Sequence[str]

    @property
    def waiting(self) -> int:
        """SSTs that nothing names and that are not below the low-water mark."""
        floor, keys = self.state.sst_floor, self.reachable.keys
        return sum(sst.base_version >= floor and sst.key not in keys for sst in self.unnamed)


class Sweeper:
    """Collects the garbage of one database. ``register``: the writer's, of an epoch-prefixed log; ``check_place``: see
    `slate_async.storage.log.protocol.CheckPlace`, asked before each round."""

    def __init__(
        self,
        store: ObjectStore,
        driver: ManifestDriver,
        register: Register | None,
        runtime: Runtime,
        limits: Limits,
        *,
        check_place: CheckPlace = nothing_to_prove,
    ) -> None:
        self._check_place = check_place
        self._store = store
        self._driver = driver
        self._register = register
        self._runtime = runtime
        self._limits = limits
        self._reach = Reach(driver, runtime)
        self.stats = GcStats()

    async def sweep(
        self, *, dry_run: bool = False, on_progress: Callable[[GcProgress], None] | None = None
    ) -> GcReport:
        """Do one round. ``dry_run`` changes nothing and tells what a round would do.

        Raises `InvalidError` if there is no database, `CorruptionError` if something that lives cannot be read (then
        nothing was deleted), `UnavailableError`."""
        judged = await self._judge(dry_run)
        batch = Batch(self._store, self._limits.max_deletes, dry_run=dry_run, on_progress=on_progress)
        versions = await self._sweep_versions(judged, dry_run)
        await self._sweep_log(judged, batch)
        await self._sweep_ssts(judged, batch)
        await self._sweep_leftovers(judged, batch)
        if not dry_run:
            await self._revise_notes(judged)
        report = _report(judged, versions, batch, self._limits, dry_run=dry_run)
        if not dry_run:
            self._count(report)
        return report

    # ---- deciding

    async def _judge(self, dry_run: bool) -> _Judged:
        """Decide, commit, and find what the state that was committed keeps."""
        for _ in range(OVERTAKEN_LIMIT):
            head = await self._driver.load()
            if head is None:
                raise NotFoundError(f"there is no database at {self._driver.name}; check the path and the metastore")
            if not head.initialized and head.destroyed_at_ms is None and head.mirrored is None:
                raise InvalidError(
                    f"{self._driver.name} is a clone whose initialization has not finished; finish or destroy it"
                )
            await self._check_place(head)
            try:
                return await self._judge_by(head, dry_run)
            except VersionMissingError as missing:
                newest = await self._driver.load()
                if newest is not None and missing.ref in [
                    newest.ref,
                    *(checkpoint.ref for checkpoint in newest.checkpoints),
                ]:
                    raise missing.as_corruption() from missing
        raise UnavailableError(
            f"{self._driver.name}: other collectors overtook every attempt of this one; try again later"
        )

    async def _judge_by(self, head: ManifestState, dry_run: bool) -> _Judged:
        limits, now_ms = self._limits, self._runtime.clock.now_ms()
        notes = [info.key async for info in self._listed(NOTES_PREFIX)]
        now = Sighting(head.version, now_ms)
        aged = newest_until([*_sightings(notes), now], now_ms - limits.min_age_ms)
        edit = AdvanceGc(now_ms, limits.skew_ms, stalled=self._stalled(head, notes, now_ms))
        trial = edit.apply(head) or head
        unnamed = await self._unnamed(await self._reach.of(trial))
        edit = with_floor(edit, trial, aged, unnamed)
        state = edit.apply(head)
        if state is None:
            state = head
        elif not dry_run:
            state = await self._driver.commit(edit)
        return _Judged(now_ms, head, state, await self._reach.of(state), unnamed, notes)

    def _stalled(self, head: ManifestState, notes: Sequence[str], now_ms: int) -> str:
        """The mark of the registered compactions if no compactor worked on them for too long, else "". A released
        compactor role shortens the wait to ``min_age_ms``, because no compactor is there to resume them."""
        mark = work_mark(head)
        patience_ms = self._limits.stalled_ms
        if not head.compactor_token:
            patience_ms = min(patience_ms, self._limits.min_age_ms)
        since_ms = stands_since(_stalls(notes), mark, now_ms, self._limits.skew_ms)
        return mark if now_ms - since_ms >= patience_ms else ""

    async def _unnamed(self, reachable: Reachable) -> list[UnnamedSst]:
        """SSTs that nothing names, in the order of their names, so those made for old versions first."""
        unnamed: list[UnnamedSst] = []
        async for info in self._listed(SST_PREFIX):
            name = parse_sst_key(info.key)
            if name is not None and info.key not in reachable.keys:
                unnamed.append(UnnamedSst(info.key, name.base_version, info.size))
                if len(unnamed) > self._limits.max_deletes:
                    break
        return unnamed

    # ---- deleting

    async def _sweep_versions(self, judged: _Judged, dry_run: bool) -> int:
        retained, most = sorted(judged.reachable.versions), self._limits.max_deletes
        collecting = self._driver.metastore.collect(retained, as_of=judged.state.ref, limit=most, dry_run=dry_run)
        return await translated(collecting)

    async def _sweep_log(self, judged: _Judged, batch: Batch) -> None:
        register = None
        if self._register is not None:
            cell = await translated(self._register.read())
            register = None if cell is None else registers.decode(cell.value)
        judge = LogJudge(judged.state, judged.reachable.keys, register)
        await batch.begin("log")
        async for info in self._listed(LOG_PREFIX):
            why = judge.why_garbage(info)
            if why is not None and not await batch.take(GarbageObject(info.key, info.size, why)):
                break
        await batch.flush()

    async def _sweep_ssts(self, judged: _Judged, batch: Batch) -> None:
        await batch.begin("ssts")
        for sst in judged.unnamed:
            dead = sst.base_version < judged.state.sst_floor and sst.key not in judged.reachable.keys
            if dead and not await batch.take(GarbageObject(sst.key, sst.size, UNNAMED)):
                break
        await batch.flush()

    async def _sweep_leftovers(self, judged: _Judged, batch: Batch) -> None:
        """What is under ``gc/`` besides the notes of collectors, once it is old."""
        age_ms = max(self._limits.min_age_ms, PROBED_MS)
        before_ms = judged.now_ms - age_ms - self._limits.skew_ms
        await batch.begin("leftovers")
        async for info in self._listed(NOTES_PREFIX):
            noted = parse_sighting(info.key) is not None or parse_stall(info.key) is not None
            old = not noted and info.last_modified_ms < before_ms
            if old and not await batch.take(GarbageObject(info.key, info.size, LEFT_OVER)):
                break
        await batch.flush()

    async def _revise_notes(self, judged: _Judged) -> None:
        limits, now_ms = self._limits, judged.now_ms
        heads = revise(
            _sightings(judged.notes),
            Sighting(judged.state.version, now_ms),
            min_age_ms=limits.min_age_ms,
            skew_ms=limits.skew_ms,
            waiting=judged.waiting > 0,
        )
        stalls = revise_stalls(_stalls(judged.notes), work_mark(judged.state), now_ms, limits.skew_ms)
        for key in (*(sighting.key for sighting in heads.add), *stalls.add):
            await self._store.put(key, b"")
        if outdated := [*(sighting.key for sighting in heads.remove), *stalls.remove]:
            await self._store.delete(outdated)

    async def _listed(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """The objects of a folder, with a turn for others now and then."""
        yield_budget = YieldBudget(self._runtime.clock)
        async for info in self._store.list(prefix):
            if yield_budget.spent():
                await yield_budget.yield_now()
            yield info

    def _count(self, report: GcReport) -> None:
        self.stats.rounds += 1
        self.stats.manifest_versions += report.manifest_versions
        self.stats.objects += len(report.objects)
        self.stats.bytes += report.deleted_bytes
        if report.evicted:
            logger.warning(
                "%s: gave up compactions that no compactor resumed: %s",
                self._driver.name,
                ", ".join(map(str, report.evicted)),
            )
        if report.objects or report.manifest_versions:
            logger.info(
                "%s: GC deleted %d objects of %d bytes and %d manifest versions, by manifest version %d",
                self._driver.name,
                len(report.objects),
                report.deleted_bytes,
                report.manifest_versions,
                report.manifest_version,
            )


def _report(judged: _Judged, versions: int, batch: Batch, limits: Limits, *, dry_run: bool) -> GcReport:
    head, state = judged.head, judged.state
    return GcReport(
        dry_run=dry_run,
        manifest_version=state.version,
        sst_floor=state.sst_floor,
        expired_checkpoints=tuple(
            checkpoint.id for checkpoint in head.checkpoints if state.checkpoint(checkpoint.id) is None
        ),
        manifest_versions=versions,
        objects=batch.taken,
        waiting=judged.waiting,
        truncated=batch.truncated or versions >= limits.max_deletes,
        blocked_by=_old_compactions(state, judged.now_ms - limits.min_age_ms),
        evicted=_evicted(head, state),
    )


def _sightings(notes: Sequence[str]) -> list[Sighting]:
    return [sighting for key in notes if (sighting := parse_sighting(key)) is not None]


def _stalls(notes: Sequence[str]) -> list[Stall]:
    return [stall for key in notes if (stall := parse_stall(key)) is not None]


def _evicted(head: ManifestState, state: ManifestState) -> tuple[UUID, ...]:
    """What was registered in ``head``, if the role was taken from its compactor, and given to nobody, by ``state``."""
    taken = state.compactor_epoch > head.compactor_epoch and not state.compactor_token
    return tuple(compaction.id for compaction in head.compactions) if taken else ()


def _old_compactions(state: ManifestState, before_ms: int) -> tuple[BlockingCompaction, ...]:
    """Those registered before then: a compaction notes when it was begun, less the retention."""
    begun = [
        BlockingCompaction(compaction.id, compaction.base_version, compaction.expired_at_ms + state.retention_ms)
        for compaction in state.compactions
    ]
    return tuple(stall for stall in begun if stall.since_ms < before_ms)
