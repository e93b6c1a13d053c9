"""`vacuum`: gives up old versions of a table, and deletes what no version needs that is kept.

Ordering rule: one commit raises the oldest version and the floor; then objects are listed; then what the very state of
that commit keeps is read, link by link; then what was listed and is not needed is deleted, if its base is below the
floor; then the metastore raises its boundary and deletes heads. No step depends on a clock. Any number of vacuums run
at once, and each may end anywhere: the next one does the rest.

Rules T3, T5, T6, T7, T8 and T10.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from metastores.protocol import VersionRef
from slate_async.errors import CorruptionError, InvalidError
from slate_async.objectstore.protocol import ObjectNotFoundError
from slate_async.runtime.concurrent import map_bounded
from slate_async.tables.context import TableContext
from slate_async.tables.core.edits import Expire
from slate_async.tables.core.head import Head, LinkRef
from slate_async.tables.core.vacuum_plan import (
    MIN_AGE_MS,
    RETAIN_MS,
    RETAIN_VERSIONS,
    Step,
    garbage,
    gave_up,
    kept_versions,
    reachable,
)

logger = logging.getLogger(__name__)
PARALLEL: Final = 16
BATCH: Final = 1_000
"""Objects of one request to delete."""


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """What a vacuum did, or with ``dry_run`` would do now.

    version: of the table whose needs it computed; ``oldest``: the oldest version that is kept besides those named
    objects, nbytes: that were deleted, without heads; ``heads``: versions that were deleted
    kept: objects that are still there
    complete: ``False`` if a newer vacuum was at work, and this one left the rest to it
    """

    version: int
    oldest: int
    objects: int
    nbytes: int
    heads: int
    kept: int
    complete: bool
    dry_run: bool


async def vacuum(
    context: TableContext,
    *,
    retain_ms: int = RETAIN_MS,
    retain_versions: int = RETAIN_VERSIONS,
    min_age_ms: int = MIN_AGE_MS,
    dry_run: bool = False,
) -> VacuumReport:
    """See `Table.vacuum`."""
    for name, value in (("retain_ms", retain_ms), ("retain_versions", retain_versions), ("min_age_ms", min_age_ms)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise InvalidError(f"{name}= is a number from 0 on, not {value!r}", outcome="not_applied")
    state = await _expired(context, retain_ms, retain_versions, min_age_ms, dry_run=dry_run)
    listed = await context.blocks.listed()
    try:
        refs = await _refs(context, state)
        kept = await _kept(context, state, refs, listed)
    except _MissingError as missing:
        newest = await context.newest()
        if not dry_run and not gave_up(state, newest):
            said = f"it is missing, and a version of {context.name} that is kept needs it; restore it"
            raise CorruptionError(said, object_name=missing.key) from missing
        logger.info("%s: a newer vacuum is at work; it does the rest", context.name)
        return VacuumReport(state.version, state.oldest, 0, 0, 0, len(listed), False, dry_run)
    doomed = garbage(listed, kept, state.floor)
    if not dry_run:
        for start in range(0, len(doomed), BATCH):
            context.check()
            await context.blocks.delete(doomed[start : start + BATCH])
    heads = await context.heads.collect(list(refs.values()), refs[state.version], dry_run=dry_run)
    nbytes = sum(listed[key] for key in doomed)
    left = len(listed) - len(doomed)
    return VacuumReport(state.version, state.oldest, len(doomed), nbytes, heads, left, True, dry_run)


class _MissingError(Exception):
    """What its own state keeps is not there (rule T7)."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


async def _expired(
    context: TableContext, retain_ms: int, retain_versions: int, min_age_ms: int, *, dry_run: bool
) -> Head:
    """The state by which it deletes: the one that its commit makes, or the newest if there is nothing to raise (T6)."""
    head = await context.newest()
    now_ms = context.runtime.clock.now_ms()
    made = head.version if dry_run else head.version + 1
    oldest = min(await _since(context, head, now_ms, retain_ms, made), made + 1 - max(1, retain_versions))
    edit = Expire(oldest, await _since(context, head, now_ms, min_age_ms, made), now_ms)
    after = edit.apply(head)
    raised = (after.oldest, after.floor, after.pins, after.jobs) != (head.oldest, head.floor, head.pins, head.jobs)
    if dry_run or not raised:
        return after
    return (await context.committer.commit(edit)).head


async def _since(context: TableContext, head: Head, now_ms: int, age_ms: int, made: int) -> int:
    """The version that was the newest one ``age_ms`` ago, if it is kept; ``made``: the one that is made now."""
    if not age_ms:
        return made
    refs = [ref for ref in await context.heads.stored() if head.oldest <= ref.version <= head.version]
    low, high = 0, len(refs)
    while low < high:
        middle = (low + high) // 2
        found = await context.heads.read(refs[middle])
        if found is None:  # a newer vacuum has given it up
            return head.oldest
        low, high = (middle + 1, high) if found.time_ms <= now_ms - age_ms else (low, middle)
    return refs[low - 1].version if low else head.oldest


async def _refs(context: TableContext, state: Head) -> dict[int, VersionRef]:
    """The names of all versions that ``state`` keeps. Raises `_MissingError`."""
    versions = kept_versions(state)
    stored: Mapping[int, str] = {}
    if None in versions.values():
        stored = {ref.version: ref.token for ref in await context.heads.stored()}
    refs = {}
    for version, token in versions.items():
        known = token or stored.get(version)
        if known is None:
            raise _MissingError(f"version {version}")
        refs[version] = VersionRef(version, known)
    return refs


async def _kept(
    context: TableContext, state: Head, refs: Mapping[int, VersionRef], listed: Mapping[str, int]
) -> set[str]:
    """Names of all objects that these versions need. Raises `_MissingError`."""

    async def link_of(ref: VersionRef) -> LinkRef | None:
        head = state if ref.version == state.version else await context.heads.read(ref)
        if head is None:
            raise _MissingError(f"version {ref.version}")
        return head.link

    newest = {ref.key: ref for ref in await map_bounded(link_of, list(refs.values()), PARALLEL) if ref is not None}
    steps = await _walked(context, list(newest.values()), listed)
    return await context.runtime.offload.run(lambda: reachable(steps, newest))


async def _walked(context: TableContext, newest: Sequence[LinkRef], listed: Mapping[str, int]) -> dict[str, Step]:
    """Every link from ``newest`` down to the nearest whole ones (T10)."""

    async def read(ref: LinkRef) -> tuple[str, Step, LinkRef | None]:
        try:
            name, stored = await context.chain.taken(ref, listed)
        except ObjectNotFoundError as error:
            raise _MissingError(error.key) from error
        before = None if stored.link.whole else stored.before
        return ref.key, Step.of(name, stored.link, None if before is None else before.key), before

    steps: dict[str, Step] = {}
    waiting = {ref.key: ref for ref in newest}
    while waiting:
        found = await map_bounded(read, list(waiting.values()), PARALLEL)
        steps.update((key, step) for key, step, _ in found)
        waiting = {before.key: before for _, _, before in found if before is not None and before.key not in steps}
    return steps
