"""One verification of a collection: everything that is needed is read once, beside those who write, read and compact.

Ordering rule: hold -> head -> holds -> versions -> listing -> merged batches -> pending batches -> holds and head once
more -> the own hold. What was missing counts only if that stands at the end: then nobody was allowed to delete it.

Bounded memory: names of all objects, and four objects of 64 MiB at most.

Rules C11, C15 to C17, C22 to C25 and C30 of collections.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from slate_async.collections.core.area import Area, MergedBatch
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.garbage import MergedFile, PendingEnds, find_lost, is_beyond
from slate_async.collections.core.names import HashedFrontier
from slate_async.collections.reader.context import ReaderContext
from slate_async.collections.store.merged import read_uppers
from slate_async.collections.verify.holds import broken, passed, read_holds
from slate_async.collections.verify.keeping import Keeping
from slate_async.collections.verify.listing import Listing, list_all
from slate_async.collections.verify.merged import CheckedMerged, MergedCheck
from slate_async.collections.verify.pending import CheckedPending, PendingCheck
from slate_async.collections.verify.report import (
    CollectionStage,
    CollectionVerifyProgress,
    CollectionVerifyReport,
    found_in,
)
from slate_async.collections.verify.versions import CheckedVersions, check_versions
from slate_async.errors import CorruptionError
from slate_async.runtime.concurrent import map_bounded
from slate_async.types import Finding

BATCHES_AT_ONCE = 2

OnProgress = Callable[[CollectionVerifyProgress], None]


async def verify(context: ReaderContext, on_progress: OnProgress | None = None) -> CollectionVerifyReport:
    """Verify the collection. What is wrong is in the report.

    Raises `ClosedError` if it is deleted, or was meanwhile, `LeaseLostError` if the hold of the verification was
    revoked, `UnavailableError`."""
    verification = _Verification(context, on_progress)
    try:
        keeping = await Keeping.begin(context)
    except CorruptionError as error:
        return await verification.run(None, found_in(context.store, error))
    try:
        return await verification.run(keeping, None)
    finally:
        await keeping.end()


class _Verification:
    def __init__(self, context: ReaderContext, on_progress: OnProgress | None) -> None:
        self._context = context
        self._on_progress = on_progress
        self._sizes: dict[str, int] = {}
        self._done = CollectionVerifyProgress("versions", 0, 0, 0, 0)
        self._nbytes = 0

    async def run(self, keeping: Keeping | None, damage: Finding | None) -> CollectionVerifyReport:
        """``keeping``: ``None`` if the head is damaged, which is ``damage``; so nothing says what should be there."""
        context, head = self._context, None if keeping is None else keeping.head
        self._begin("versions", {})
        holds = await read_holds(context)
        lowest = 0 if keeping is None else keeping.lowest
        versions = await check_versions(context, lowest, head)
        listing = await list_all(context)
        merged = await self._merged(versions, listing)
        pending = await self._pending(_lowest_area(context, versions, lowest), head, listing)
        notes = [*versions.notes, *pending.notes, *_foreign(listing)]
        findings = [*versions.findings, *holds.findings]
        if damage is not None and not versions.findings:
            findings.append(damage)
        findings += [finding for checked in merged for finding in checked.findings] + pending.findings
        if keeping is not None and head is not None:
            own = keeping.reader
            before = {reader: hold for reader, hold in holds.stored.items() if reader != own}
            findings += broken(head, before, (await read_holds(context)).stored)
            notes += passed(head, before)
            late = await context.head()
            unnamed = await self._unnamed(listing, versions, late)
            notes += [_why_unnamed(file, late) for file in unnamed]
            lost = _lost(unnamed, late, pending)
            await keeping.check()
            findings += lost
            findings += versions.missing
            findings += [finding for checked in merged for finding in checked.missing] + pending.missing
        return CollectionVerifyReport(
            name=context.name,
            version=0 if head is None else head.version,
            epoch=0 if head is None else head.epoch,
            lower="" if head is None else str(head.lower),
            upper="" if head is None else str(head.upper),
            reach="" if pending.reach is None else str(pending.reach),
            since="" if head is None else str(head.since),
            versions=len(versions.areas),
            merged=len(merged),
            pending=pending.batches,
            holds=len(holds.stored) - (keeping is not None and keeping.reader in holds.stored),
            rows=sum(checked.rows for checked in merged) + pending.rows,
            nbytes=self._nbytes,
            findings=tuple(dict.fromkeys(findings)),
            notes=tuple(dict.fromkeys(notes)),
        )

    async def _merged(self, versions: CheckedVersions, listing: Listing) -> list[CheckedMerged]:
        batches = [batch for batch in versions.batches.values() if batch.rows]
        named = {batch.name for batch in batches}
        self._begin("merged", {key: size for key, name, size in listing.merged if str(name) in named})

        async def one(batch: MergedBatch) -> CheckedMerged:
            return await MergedCheck(self._context, batch, self._read).check()

        return await map_bounded(one, batches, BATCHES_AT_ONCE) if batches else []

    async def _pending(self, lowest: Area | None, head: Area | None, listing: Listing) -> CheckedPending:
        self._begin("pending", {listed.key: listed.nbytes for listed in listing.pending})
        return await PendingCheck(self._context, lowest, head, self._read).check(listing.pending)

    async def _unnamed(self, listing: Listing, versions: CheckedVersions, late: Area) -> Sequence[MergedFile]:
        """Merged files that nothing names, though ``late`` was read after they were listed."""
        context, named = self._context, {*versions.batches, *late.names()}
        files = [file for file in listing.files() if file.batch not in named]
        return await context.answered(
            "a look at merged files", lambda: read_uppers(context.store, context.schema, files)
        )

    def _begin(self, stage: CollectionStage, sizes: dict[str, int]) -> None:
        self._sizes = sizes
        self._tell(CollectionVerifyProgress(stage, 0, len(sizes), 0, sum(sizes.values())))

    def _read(self, key: str) -> None:
        nbytes, done = self._sizes.get(key, 0), self._done
        self._nbytes += nbytes
        self._tell(replace(done, objects=done.objects + 1, nbytes=done.nbytes + nbytes))

    def _tell(self, now: CollectionVerifyProgress) -> None:
        self._done = now
        if self._on_progress is not None:
            self._on_progress(now)


def _lowest_area(context: ReaderContext, versions: CheckedVersions, lowest: int) -> Area | None:
    """Version ``lowest``; ``None`` if it could not be read."""
    if lowest == 0:
        return Area.first(Frontier.minimum(context.schema.kind))
    return next((area for area in versions.areas if area.version == lowest), None)


def _foreign(listing: Listing) -> list[Finding]:
    what = "it does not belong to the collection, and is left alone"
    return [Finding(key, None, what, size) for key, size in listing.foreign]


def _lost(unnamed: Sequence[MergedFile], late: Area, pending: CheckedPending) -> Sequence[Finding]:
    """C30: merged batches that nothing names, of updates that are neither merged nor pending."""
    if pending.reach is None:
        return ()
    ends = PendingEnds(pending.reach, pending.links)
    what = (
        f"no version names it, and what is pending ends at {ends.reach}: a later version than {late.version} was lost"
    )
    findings: dict[str, Finding] = {}
    for file in unnamed:
        if find_lost([file], late, ends) is not None:
            findings.setdefault(file.batch, Finding(file.batch, None, what, file.nbytes))
    return list(findings.values())


def _why_unnamed(file: MergedFile, late: Area) -> Finding:
    if isinstance(file.upper, HashedFrontier) and is_beyond(file, late.upper):
        what = "neither its name nor its bytes say where it ends, so it is left alone"
    elif file.epoch >= late.epoch or is_beyond(file, late.upper):
        what = "a merge that goes on, or one that was given up"
    else:
        what = "a controller deletes it"
    return Finding(file.key, None, f"no version that is needed names it: {what}", file.nbytes)
