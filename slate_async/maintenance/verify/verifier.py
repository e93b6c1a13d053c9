"""One verification: everything that lives is read once.

What must be there is what a collector keeps (`engine.gc.reachable`, `engine.gc.log`), and nothing else.

Ordering rule: head and checkpoints' versions -> the log, by a head and a register read again -> SSTs -> the head once
more -> if anything is wrong, head and marker. The database may be written, compacted and collected meanwhile: a deleted
object counts as missing only if the head read last, or a checkpoint in it, still needs it, and if the database is still
this one, in this place.

Rules 13 and R10: docs/design/protocol-rules.md
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar
from uuid import UUID

from metastores.protocol import Register, VersionRef
from slate_async.codec.header import HEADER_BYTES, peek_header
from slate_async.engine.gc.reachable import living_versions, reachable_ssts
from slate_async.engine.read.covers import NO_COVERS, Covers
from slate_async.engine.stored_database import OpenStored, StoredDatabase
from slate_async.errors import CorruptionError, InvalidError
from slate_async.maintenance.verify.beat import damaged_beat
from slate_async.maintenance.verify.boundary import lost_boundary
from slate_async.maintenance.verify.holds import lost_holds
from slate_async.maintenance.verify.log import IN_PARALLEL, REGISTER, CheckedObject, LogCheck
from slate_async.maintenance.verify.report import VerifyProgress, VerifyReport, VerifyStage
from slate_async.maintenance.verify.sst import CheckedSst, ExpectedSst, check_sst, differing
from slate_async.maintenance.verify.states import check_state
from slate_async.metastore_errors import translated
from slate_async.objectstore.protocol import ObjectInfo, ObjectNotFoundError, Span
from slate_async.runtime.concurrent import map_bounded
from slate_async.storage.log import register as registers
from slate_async.storage.log.names import PREFIX as LOG_PREFIX
from slate_async.storage.log.object_status import LogName
from slate_async.storage.log.reader import READS_IN_PARALLEL
from slate_async.storage.log.register import WriterRegister
from slate_async.storage.manifest.driver import Stored
from slate_async.storage.manifest.edits.protocol import check_database, check_usable
from slate_async.storage.manifest.ownership import head_and_marker
from slate_async.storage.manifest.state import ManifestState, Parent, SstRef
from slate_async.storage.sst.locate import SstOpener
from slate_async.storage.sst.names import SST_PREFIX, parse_sst_key
from slate_async.types import Finding, RangeDelete, finding_of

T = TypeVar("T")
SSTS_IN_PARALLEL = 4
Place = tuple[UUID | None, str]
"""Whose object (``None``: the database's own) and its key."""


@dataclass(frozen=True, slots=True)
class _Named:
    """What manifest versions name: each SST as all of them describe it, the parents, and of SSTs that compaction swept
    the range deletes that hide no row of it any more."""

    refs: Mapping[Place, tuple[SstRef, ...]]
    parents: tuple[Parent, ...]
    used_up: Mapping[Place, Covers]

    @property
    def own_keys(self) -> frozenset[str]:
        return frozenset(key for database_id, key in self.refs if database_id is None)


class Verifier:
    """Verifies ``database``, whose driver has read nothing yet.

    ssts: what finds the SSTs of a database
    open_stored: opens its parents, if it is a clone"""

    def __init__(
        self,
        database: StoredDatabase,
        ssts: Callable[[UUID], SstOpener],
        open_stored: OpenStored,
        on_progress: Callable[[VerifyProgress], None] | None = None,
    ) -> None:
        self._database = database
        self._store = database.store
        self._driver = database.driver
        self._ssts = ssts
        self._open_stored = open_stored
        self._offload = database.runtime.offload
        self._on_progress = on_progress
        self._versions: dict[VersionRef, Stored] = {}
        self._findings: list[Finding] = []
        self._notes: list[Finding] = []
        self._done = VerifyProgress("manifest", 0, 0, 0, 0)

    async def verify(self) -> VerifyReport:
        """See the module docstring. What is wrong is in the report.

        Raises `InvalidError` if there is no database, or one that cannot be opened, or it was recreated, or its place
        lost, meanwhile; `UnavailableError`."""
        try:
            head = await self._database.head()
            check_usable(head)
            if head.has_marker:
                head = await self._database.ground.check(head, self._driver.load)
        except CorruptionError as error:
            return VerifyReport(0, 0, 0, 0, 0, 0, 0, (finding_of(error),), ())
        named = await self._read_versions(head)
        await self._as_far_as_listed("manifest/", self._count_versions(head))
        self._findings += await lost_boundary(self._store)
        async with self._database.register(head.log_protocol) as register:
            log = await self._as_far_as_listed("log/", self._check_log(named, register)) or []
        ssts = await self._check_ssts(head, named)
        await self._as_far_as_listed("sst/", self._check_unnamed(head, named))
        self._findings += await lost_holds(self._database, self._open_stored)
        self._findings += await damaged_beat(self._store)
        if self._findings:
            await self._still_here(head)
        whole = [logged for logged in log if logged.whole]
        return VerifyReport(
            manifest_version=head.version,
            versions=len(self._versions),
            log_objects=len(whole),
            ssts=len(ssts),
            blocks=sum(sst.blocks for sst in ssts) + sum(checked.blocks for checked in whole),
            rows=sum(sst.rows for sst in ssts) + sum(checked.rows for checked in whole),
            nbytes=self._done.nbytes,
            findings=tuple(dict.fromkeys(self._findings)),
            notes=tuple(self._notes),
            range_deletes=len(head.range_deletes or ())
            + sum(logged.range_deletes for logged in whole if logged.name.position >= head.log_start),
        )

    async def _as_far_as_listed(self, folder: str, work: Awaitable[T]) -> T | None:
        """What ``work`` comes to; ``None`` if the folder cannot be listed, because of an object that is damaged so."""
        try:
            return await work
        except CorruptionError as error:
            found = finding_of(error)
            self._findings.append(replace(found, what=f"{found.what}; {folder} cannot be listed, or checked further"))
            return None

    async def _still_here(self, head: ManifestState) -> None:
        """What was missed, or found to be another's, counts only if the head that is read afterwards is of the same
        database, and the marker says that this is its place (R10). Raises `InvalidError` if not."""
        database = self._database
        try:
            newest, found = await head_and_marker(database.ground, self._driver)
        except CorruptionError:
            return  # that was found, too
        if newest is None:
            newest = await database.head()
        check_database(newest, head.database_id)
        if newest.has_marker:
            await database.ground.check(newest, self._driver.load, found)

    # ---- the manifest

    async def _read_versions(self, head: ManifestState) -> _Named:
        """Read and judge every version that lives; what they name."""
        states = await self._living(head)
        for state in states:
            self._findings += await self._offload.run(lambda state=state: check_state(state))  # type: ignore[misc]
        return await self._offload.run(lambda: _named(head, states))

    async def _living(self, head: ManifestState) -> list[ManifestState]:
        """The states of the head and its checkpoints; those that cannot be read become findings."""
        for ref in living_versions(head):
            if ref in self._versions:
                continue
            try:
                stored = await self._driver.read_stored(ref)
            except CorruptionError as error:
                self._findings.append(finding_of(error))
                continue
            if stored is not None:
                self._versions[ref] = stored
            elif await self._still_names(ref):
                base = await self._driver.base_named_by(ref)
                lost, why = (
                    (ref, "the manifest names it") if base is None else (base, f"{ref.version} is a change to it")
                )
                self._findings.append(Finding(f"manifest version {lost.version}", None, f"is missing, though {why}"))
        return [self._versions[ref].state for ref in living_versions(head) if ref in self._versions]

    async def _still_names(self, ref: VersionRef) -> bool:
        return ref in living_versions(await self._database.head())

    async def _count_versions(self, head: ManifestState) -> None:
        bases = [stored.base for stored in self._versions.values() if stored.base is not None]
        retained = {*living_versions(head), *self._versions, *bases}
        stored = await translated(self._driver.metastore.versions())
        idle = [ref for ref in stored if ref.version < head.version and ref not in retained]
        note = "nothing needs it; a garbage collector deletes it"
        self._notes += [Finding(f"manifest version {ref.version}", None, note) for ref in idle]

    # ---- the log

    async def _check_log(self, named: _Named, register: Register | None) -> list[CheckedObject]:
        state = await self._database.head()
        check = self._log_check(state, await self._read(register), named)
        found, notes = await check.listed()
        self._notes += notes
        self._begin("log", len(found), sum(info.size for info, _ in found))

        async def one(item: tuple[ObjectInfo, LogName]) -> CheckedObject:
            info, name = item
            checked = await check.check(info, name)
            self._advance(info.size)
            return checked

        objects = await map_bounded(one, found, IN_PARALLEL) if found else []
        for checked in objects:
            self._findings += checked.findings
            self._notes += checked.notes
        held = await self._read(register)  # before the head: a claim is in the manifest first
        late = self._log_check(await self._database.head(), held, named)
        present = frozenset(logged.info.key for logged in objects if logged.header or logged.findings)
        if missing := await late.missing(present):
            self._findings += await self._lost(missing, held, named, present)
        self._findings += await self._offload.run(lambda: late.order(objects))
        self._findings += late.register(objects)
        return objects

    async def _lost(
        self,
        missing: Sequence[Finding],
        register: WriterRegister | None,
        named: _Named,
        present: frozenset[str],
    ) -> list[Finding]:
        """What of ``missing`` a head that is read now needs, too (rule 13)."""
        last = self._log_check(await self._database.head(), register, named)
        needed = await last.needed(present)
        return [
            finding
            for finding in missing
            if finding.object_name in needed or not finding.object_name.startswith(LOG_PREFIX)
        ]

    async def _read(self, register: Register | None) -> WriterRegister | None:
        cell = None if register is None else await translated(register.read())
        try:
            return None if cell is None else registers.decode(cell.value)
        except CorruptionError as error:
            if all(finding.object_name != REGISTER for finding in self._findings):
                self._findings.append(finding_of(error))
            return None

    # ---- SSTs

    def _log_check(self, state: ManifestState, register: WriterRegister | None, named: _Named) -> LogCheck:
        decoding = self._ssts(state.database_id).cache.decoding
        return LogCheck(self._store, state, register, named.own_keys, self._offload, decoding)

    async def _check_ssts(self, head: ManifestState, named: _Named) -> list[CheckedSst]:
        opener = self._ssts(head.database_id)
        places = list(named.refs)
        self._begin("ssts", len(places), sum(refs[0].size for refs in named.refs.values()))

        async def check(place: Place) -> CheckedSst:
            refs = named.refs[place]
            try:
                store = opener.store_of(refs[0], named.parents)
            except (CorruptionError, InvalidError) as error:
                return CheckedSst([Finding(refs[0].location, None, f"cannot be reached: {error}")])
            database_id, object_id = place[0] or head.database_id, refs[0].object_id
            used_up = named.used_up.get(place, NO_COVERS)
            expected = ExpectedSst(store, place[1], refs[0].size, database_id, object_id, refs, used_up)
            checked = await check_sst(expected, self._offload, opener.cache.decoding)
            self._advance(refs[0].size)
            return checked

        results = await map_bounded(check, places, SSTS_IN_PARALLEL) if places else []
        for checked in results:
            self._findings += checked.findings
        missing = [place for place, checked in zip(places, results, strict=True) if checked.missing]
        if missing:
            newest = await self._database.head()
            states = await self._living(newest)
            still = await self._offload.run(lambda: _named(newest, states))
            self._findings += [
                Finding(key, None, "is missing, though the manifest names it")
                for database_id, key in missing
                if (database_id, key) in still.refs
            ]
        return [result for result in results if not result.missing]

    async def _check_unnamed(self, head: ManifestState, named: _Named) -> None:
        """SSTs that no version read names: another database's are wrong here, the others a collector's matter."""
        keys = named.own_keys
        unnamed: list[ObjectInfo] = []
        async for info in self._store.list(SST_PREFIX):
            if info.key not in keys and parse_sst_key(info.key) is None:
                self._notes.append(Finding(info.key, None, "is not the name of an SST; left alone"))
            elif info.key not in keys:
                unnamed.append(info)
        newest = (await self._database.head()).version
        owners = await map_bounded(self._owner, unnamed, READS_IN_PARALLEL) if unnamed else []
        for info, owner in zip(unnamed, owners, strict=True):
            name = parse_sst_key(info.key)
            if owner is not None and owner != head.database_id:
                self._findings.append(Finding(info.key, 16, f"belongs to database {owner}, not {head.database_id}"))
            elif name is not None and name.base_version > newest:
                what = f"was made for manifest version {name.base_version}, and {newest} is the newest: some were lost"
                self._findings.append(Finding(info.key, None, what))
            else:
                what = "nothing names it: work in progress, or garbage that a collector deletes"
                self._notes.append(Finding(info.key, None, what, info.size))

    async def _owner(self, info: ObjectInfo) -> UUID | None:
        """The database that an object's header names; ``None`` if it has none: damaged garbage is garbage."""
        try:
            data = (await self._store.get(info.key, Span(0, HEADER_BYTES))).data
            return peek_header(data, object_name=info.key).database_id
        except (ObjectNotFoundError, CorruptionError, InvalidError):
            return None

    # ---- progress

    def _begin(self, stage: VerifyStage, objects: int, nbytes: int) -> None:
        before = self._done
        self._done = VerifyProgress(stage, 0, objects, before.nbytes, before.nbytes + nbytes)
        self._tell()

    def _advance(self, nbytes: int) -> None:
        now = self._done
        self._done = VerifyProgress(now.stage, now.objects + 1, now.objects_total, now.nbytes + nbytes, now.bytes_total)
        self._tell()

    def _tell(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self._done)


def _named(head: ManifestState, versions: list[ManifestState]) -> _Named:
    """What must be there while ``head`` is the head. ``versions``: those that live, as far as they can be read."""
    refs: dict[Place, list[SstRef]] = {}
    for sst in reachable_ssts(head, versions):
        refs.setdefault((sst.database_id, sst.location), []).append(sst)
    parents = {parent.database_id: parent for state in (*versions, head) for parent in state.parents}
    return _Named(
        {place: differing(found) for place, found in refs.items()}, tuple(parents.values()), _used_up((*versions, head))
    )


def _used_up(states: Sequence[ManifestState]) -> dict[Place, Covers]:
    found: dict[Place, dict[int, RangeDelete]] = {}
    for state in states:
        for sst in state.ssts() if state.range_deletes else ():
            for delete in state.range_deletes or ():
                if delete.seq <= (sst.swept_seq or 0) and delete.overlaps(sst.first_key, sst.last_key):
                    found.setdefault((sst.database_id, sst.location), {})[delete.seq] = delete
    return {place: Covers(deletes.values()) for place, deletes in found.items()}
