"""What a commit may change in a table: the closed list. Each is pure, and judged anew on every head it meets.

Appends and deletes always apply, whatever was committed meanwhile: rows get their ids from the very head that the
commit extends, and deletes name rows, not places in files. A merge of blocks applies if its inputs are live. What adds
an object applies if that is not below the floor, where a vacuum may be deleting.

Rules T4, T5, T6, T13, T14, T15, T17, T18 and T19.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from slate_async.errors import ConflictError, InternalError, InvalidError, NotFoundError
from slate_async.tables.core.chain import Contents, Link, no_blocks, no_files, placed
from slate_async.tables.core.head import NOTHING, Head, Job, Kept, Totals
from slate_async.tables.core.key_columns import names_of
from slate_async.tables.core.names import base_of
from slate_async.tables.core.row_ids import RowIds, between, no_rows, union
from slate_async.tables.core.schema import TableSchema

MAX_BLOCKS: Final = 100_000
OWN_ROWS: Final = 1 << 62
"""Rows of a commit have no ids before it. Its own deletes count them from here on."""
NO_ROW: Final = (1 << 63) - 1
MAX_KEPT_VERSIONS: Final = 1_000
"""Pins and tags together."""
MAX_JOBS: Final = 1_000
BELOW_FLOOR: Final = "below_floor"
"""`ConflictError.reason`: the objects may be deleted already; they are to be written again under new names."""
LOOK_AGAIN: Final = "look_again"
"""`ConflictError.reason`: it was judged by contents of another version."""


@dataclass(frozen=True, slots=True)
class Write:
    """Add blocks and delete rows, in one commit: an append, a delete, an update, or with ``instead`` an overwrite.

    added: as `BLOCK`, without row ids
    deleted, delete_files: rows that were there when the caller looked; ids from `OWN_ROWS` on count those of ``added``
    instead: of all that the table has when it commits
    """

    added: pa.Table = field(default_factory=no_blocks)
    deleted: RowIds = field(default_factory=no_rows)
    delete_files: pa.Table = field(default_factory=no_files)
    instead: bool = False

    def apply(self, head: Head) -> Head:
        """Always applies above the floor."""
        _check_floor(head, self.added, self.delete_files)
        for schema_id in set(self.added.column("schema_id").to_pylist()):
            if head.schema_of(schema_id) is None:
                raise InternalError(f"a block has schema {schema_id}, which the table never had")
        blocks, next_row = placed(self.added, head.next_row)
        there, own = between(self.deleted, 0, OWN_ROWS), between(self.deleted, OWN_ROWS, NO_ROW)
        if len(there) and int(there[-1]) >= head.next_row:
            raise InternalError(f"row {there[-1]} is deleted, and the next one is {head.next_row}")
        if len(own) and int(own[-1]) - OWN_ROWS >= next_row - head.next_row:
            raise InternalError(f"its row {own[-1] - OWN_ROWS} is deleted, of {next_row - head.next_row}")
        own = own - OWN_ROWS + head.next_row
        totals = _after(NOTHING if self.instead else head.totals, blocks)
        link = Link(blocks, deleted=union([there, own]), delete_files=self.delete_files)
        if self.instead:
            link, head = Link(blocks, deleted=own, whole=True), replace(head, removals=head.removals + 1)
        return replace(head, next_row=next_row, totals=totals, change=link)


@dataclass(frozen=True, slots=True)
class ReplaceBlocks:
    """Put merged blocks in the place of their inputs: the same rows but those that were deleted.

    added: blocks that carry their rows' ids (rule T13)
    removed: keys of the inputs
    retired: the deleted rows that it dropped, and no others (rule T15)
    emptied: keys of delete files all of whose rows are retired
    lineage: of the version that it read (rule T14)
    removals, contents: of the version by which it was judged last, which may be newer
    """

    added: pa.Table
    removed: pa.Array
    retired: RowIds
    lineage: int
    removals: int
    contents: Contents
    emptied: tuple[str, ...] = ()

    def apply(self, head: Head) -> Head:
        """Applies iff all inputs are live and nothing was restored since it read (rule T14).

        What was only added to or deleted from since it was judged has the same blocks, and more."""
        _check_floor(head, self.added)
        if head.lineage != self.lineage:
            raise ConflictError(
                "a version was restored, and may have brought back rows that were dropped", outcome="not_applied"
            )
        if head.removals != self.removals:
            raise ConflictError("blocks were removed since", outcome="not_applied", reason=LOOK_AGAIN)
        if not self.contents.has(self.removed):
            raise ConflictError("another merge took some of its blocks", outcome="not_applied")
        taken = self.contents.blocks.filter(pc.is_in(self.contents.blocks.column("key"), value_set=self.removed))
        less = Totals(
            head.totals.blocks - taken.num_rows,
            head.totals.rows - (pc.sum(taken.column("rows")).as_py() or 0),
            head.totals.nbytes - (pc.sum(taken.column("size")).as_py() or 0),
        )
        removed = pa.array([*self.removed.to_pylist(), *self.emptied], pa.string())
        link = Link(self.added, removed, retired=self.retired)
        return replace(head, removals=head.removals + 1, totals=_after(less, self.added), change=link)


@dataclass(frozen=True, slots=True)
class Restore:
    """Make the table what it was at ``version``, whose contents are ``contents``. Row ids go on (rule T13)."""

    version: int
    contents: Contents

    def apply(self, head: Head) -> Head:
        """Applies iff that version is kept (rule T18)."""
        _check_kept(head, self.version)
        totals = _after(NOTHING, self.contents.blocks)
        return replace(
            head,
            lineage=head.lineage + 1,
            removals=head.removals + 1,
            totals=totals,
            change=self.contents.as_link(),
        )


@dataclass(frozen=True, slots=True)
class Alter:
    """Change the schema. ``changes``: arguments of `TableSchema.altered`, judged on the schema that is there."""

    changes: Mapping[str, Any]

    def apply(self, head: Head) -> Head:
        """Raises `InvalidError` for a change that stored rows would not survive, or of a key or sort column."""
        fixed = names_of(head.schema, (*head.key, *head.sort_by))
        made: TableSchema = head.schema.altered(**self.changes, fixed=fixed)
        return replace(head, schemas=(*head.schemas, made))


@dataclass(frozen=True, slots=True)
class SetProperties:
    """Set properties of the table, and remove those that ``unset`` names."""

    properties: Mapping[str, str]
    unset: tuple[str, ...] = ()

    def apply(self, head: Head) -> Head:
        """Always applies."""
        left = {name: text for name, text in head.properties.items() if name not in self.unset}
        return replace(head, properties={**left, **self.properties})


@dataclass(frozen=True, slots=True)
class Keep:
    """Keep a version: a tag, or with a lease a pin. The same name again moves it."""

    name: str
    kept: Kept

    def apply(self, head: Head) -> Head:
        """Applies iff the version is kept by the very head it extends (rule T17)."""
        _check_kept(head, self.kept.version)
        tags, pins = dict(head.tags), dict(head.pins)
        (tags if self.kept.until_ms is None else pins)[self.name] = self.kept
        if len(tags) + len(pins) > MAX_KEPT_VERSIONS:
            raise InvalidError(f"a table has at most {MAX_KEPT_VERSIONS} tags and pins", outcome="not_applied")
        return replace(head, tags=tags, pins=pins)


@dataclass(frozen=True, slots=True)
class Release:
    """Remove a tag or a pin. One that is not there is released already."""

    name: str
    pin: bool

    def apply(self, head: Head) -> Head:
        """Always applies."""
        names = {name: kept for name, kept in (head.pins if self.pin else head.tags).items() if name != self.name}
        return replace(head, pins=names) if self.pin else replace(head, tags=names)


@dataclass(frozen=True, slots=True)
class Expire:
    """Give up versions below ``oldest`` and leases that ended before ``now_ms``; let objects be deleted that are named
    after versions below ``floor``, but for those of jobs. A vacuum deletes by the head that this makes (rule T6)."""

    oldest: int
    floor: int
    now_ms: int

    def apply(self, head: Head) -> Head:
        """Always applies. None of it goes back, nor beyond the version that it makes (rule T19)."""
        version = head.version + 1
        pins = {name: kept for name, kept in head.pins.items() if kept.until_ms is None or kept.until_ms > self.now_ms}
        jobs = {name: job for name, job in head.jobs.items() if job.until_ms > self.now_ms}
        return replace(
            head,
            oldest=max(head.oldest, min(self.oldest, version)),
            floor=max(head.floor, min(self.floor, version, *(job.base for job in jobs.values()))),
            pins=pins,
            jobs=jobs,
        )


@dataclass(frozen=True, slots=True)
class HoldFloor:
    """Begin or prolong the job ``name``, or with ``None`` end it. What it puts is not deleted meanwhile (rule T5)."""

    name: str
    job: Job | None

    def apply(self, head: Head) -> Head:
        """Applies iff nothing that the job has put may be deleted already."""
        jobs = {name: job for name, job in head.jobs.items() if name != self.name}
        if self.job is None:
            return replace(head, jobs=jobs)
        if self.job.base < head.floor:
            raise ConflictError(
                f"what was put since version {self.job.base} may be deleted already",
                outcome="not_applied",
                reason=BELOW_FLOOR,
            )
        if len(jobs) >= MAX_JOBS:
            raise InvalidError(f"a table has at most {MAX_JOBS} jobs", outcome="not_applied")
        return replace(head, jobs={**jobs, self.name: self.job})


@dataclass(frozen=True, slots=True)
class SetDrops:
    """Drop the table, or bring it back: ``drops`` is odd, or even. An edit of `slate_async.commits` by itself, because
    its number is its mark: it never goes back, so one that is late changes nothing (rule T19)."""

    drops: int
    now_ms: int

    def apply(self, head: Head) -> Head | None:
        """``None`` once it was dropped or brought back so often."""
        if head.drops >= self.drops:
            return None
        time_ms = max(head.time_ms, self.now_ms)
        return replace(head, version=head.version + 1, time_ms=time_ms, drops=self.drops, token="")


def _after(totals: Totals, added: pa.Table) -> Totals:
    made = Totals(
        totals.blocks + added.num_rows,
        totals.rows + (pc.sum(added.column("rows")).as_py() or 0),
        totals.nbytes + (pc.sum(added.column("size")).as_py() or 0),
    )
    if made.blocks > MAX_BLOCKS:
        raise InvalidError(
            f"a table has at most {MAX_BLOCKS} blocks; merge them, or append more rows at once", outcome="not_applied"
        )
    return made


def _check_kept(head: Head, version: int) -> None:
    if not head.keeps(version):
        raise NotFoundError(f"version {version} is not kept any more", outcome="not_applied")


def _check_floor(head: Head, *tables: pa.Table) -> None:
    for table in tables:
        for key in table.column("key").to_pylist():
            if base_of(key) < head.floor:
                raise ConflictError(
                    f"{key} was begun before version {head.floor}, and may be deleted already",
                    outcome="not_applied",
                    reason=BELOW_FLOOR,
                )
