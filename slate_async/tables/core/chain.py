"""The chain of a table: what each commit added and removed, and the sum of it.

A link holds the changes of one commit: blocks added, blocks removed, rows deleted, and deletes retired because a merge
has dropped their rows. A whole link stands for its chain up to there. `Contents` is the fold of links from a whole one,
or from the first, up to a head's newest.

Blocks are rows of an Arrow table, so that planning a hundred thousand of them is a few vector operations. Deletes stay
as they were written: small sets of row ids in links, large ones in files that a fold only names. Retired ids are never
given again, so a delete that names one, because it looked before the merge, changes nothing that can be read.

Rules T9, T11, T13 and T15.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slate_async.tables.core.append_ids import IDS, counting
from slate_async.tables.core.row_ids import RowIds, difference, no_rows, union

BLOCK: Final = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("first_row", pa.int64(), nullable=False),
        pa.field("last_row", pa.int64(), nullable=False),
        pa.field("carried", pa.bool_(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("footer_size", pa.int64(), nullable=False),
        pa.field("footer_hash", pa.binary(16), nullable=False),
        pa.field("chunk_sums", pa.binary(), nullable=False),
        pa.field("schema_id", pa.int32(), nullable=False),
    ]
)
"""Columns of every block.

first_row, last_row: its lowest and highest row id; ``carried``: they are in its column `ROW_ID`, else they are all
between, in order
size, footer_size: bytes of the object and of its Parquet footer; ``footer_hash``: of that, XXH3-128
chunk_sums: CRC32C of each column chunk, in the order of the file, as u32

Beside them stand statistics by field id, where they are known: ``nulls.3``, ``low.3``, ``high.3``."""
DELETE_FILE: Final = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("first_row", pa.int64(), nullable=False),
        pa.field("last_row", pa.int64(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("hash", pa.binary(16), nullable=False),
    ]
)
"""Files of row ids that are deleted."""


_NO_BLOCKS: Final = BLOCK.empty_table()
_NO_FILES: Final = DELETE_FILE.empty_table()
_NO_IDS: Final = IDS.empty_table()


def no_blocks() -> pa.Table:
    """None, as `BLOCK`."""
    return _NO_BLOCKS


def no_files() -> pa.Table:
    """None, as `DELETE_FILE`."""
    return _NO_FILES


def _no_ids() -> pa.Table:
    return _NO_IDS


def _no_keys() -> pa.Array:
    return pa.array([], pa.string())


@dataclass(frozen=True, slots=True)
class Link:
    """What one commit changed, or with ``whole`` all that there is.

    removed: keys of blocks, and of delete files all of whose rows are retired; a whole link has none
    deleted, retired: sets of row ids; ``delete_files`` hold more of the deleted ones
    ids: plain strings by which callers named what is in it, as `IDS`
    """

    added: pa.Table = field(default_factory=no_blocks)
    removed: pa.Array = field(default_factory=_no_keys)
    deleted: RowIds = field(default_factory=no_rows)
    delete_files: pa.Table = field(default_factory=no_files)
    retired: RowIds = field(default_factory=no_rows)
    whole: bool = False
    ids: pa.Table = field(default_factory=_no_ids)

    def then(self, later: Link) -> Link:
        """The one link that changes what this one and then ``later`` do. A whole one has no ids but its own."""
        ids = _joined([self.ids, later.ids])
        if later.whole:
            return replace(later, ids=ids)
        return Link(
            _joined([self.added, later.added]),
            pa.concat_arrays([self.removed, later.removed]),
            union([self.deleted, later.deleted]),
            _joined([self.delete_files, later.delete_files]),
            union([self.retired, later.retired]),
            self.whole,
            ids,
        )


@dataclass(frozen=True, slots=True)
class Contents:
    """All that a version has. ``blocks`` in the order in which they came.

    Deleted is what ``deleted`` or a delete file has and ``retired`` has not."""

    blocks: pa.Table = field(default_factory=no_blocks)
    deleted: RowIds = field(default_factory=no_rows)
    delete_files: pa.Table = field(default_factory=no_files)
    retired: RowIds = field(default_factory=no_rows)
    ids: pa.Table = field(default_factory=_no_ids)

    def after(self, link: Link) -> Contents:
        """The contents once ``link`` has come."""
        if link.whole:
            return Contents(link.added, link.deleted, link.delete_files, link.retired, counting(link.ids))
        files = _joined([_without(self.delete_files, link.removed), link.delete_files])
        retired = union([self.retired, link.retired])
        return Contents(
            _joined([_without(self.blocks, link.removed), link.added]),
            difference(union([self.deleted, link.deleted]), retired),
            files,
            _within_files(retired, files),
            counting(_joined([self.ids, link.ids])),
        )

    def as_link(self) -> Link:
        """The whole link that stands for these contents."""
        return Link(self.blocks, _no_keys(), self.deleted, self.delete_files, self.retired, whole=True, ids=self.ids)

    def has(self, keys: pa.Array) -> bool:
        """Whether all blocks of these keys are live."""
        return bool(pc.all(pc.is_in(keys, value_set=self.blocks.column("key").combine_chunks()), min_count=0).as_py())

    @property
    def rows(self) -> int:
        """Of all blocks, deleted ones among them."""
        return pc.sum(self.blocks.column("rows")).as_py() or 0

    @property
    def nbytes(self) -> int:
        """Of all blocks as they are stored."""
        return pc.sum(self.blocks.column("size")).as_py() or 0


def fold(links: Sequence[Link], onto: Contents | None = None) -> Contents:
    """The contents after ``links``, the oldest first; ``onto`` those before the first of them.

    Equal to `Contents.after` of each in turn, with each block looked at once."""
    start = max((at for at, link in enumerate(links) if link.whole), default=-1)
    if start >= 0:
        onto, links = Contents().after(links[start]), links[start + 1 :]
    contents = Contents() if onto is None else onto
    if not links:
        return contents
    removed = pa.chunked_array([link.removed for link in links], pa.string()).combine_chunks()
    blocks = _without(_joined([contents.blocks, *(link.added for link in links)]), removed)
    for link in links:
        contents = replace(contents, blocks=BLOCK.empty_table()).after(replace(link, added=BLOCK.empty_table()))
    return replace(contents, blocks=blocks)


def placed(blocks: pa.Table, next_row: int) -> tuple[pa.Table, int]:
    """``blocks`` that were just written, with ids for their rows from ``next_row`` on, in order; and the next one then.
    Those that carry their rows' ids stay as they are."""
    carried = blocks.column("carried").to_numpy(zero_copy_only=False)
    rows = np.where(carried, 0, blocks.column("rows").to_numpy())
    ends = next_row + np.cumsum(rows)
    first = np.where(carried, blocks.column("first_row").to_numpy(), ends - rows)
    last = np.where(carried, blocks.column("last_row").to_numpy(), ends - 1)
    for name, values in (("first_row", first), ("last_row", last)):
        at = blocks.schema.get_field_index(name)
        blocks = blocks.set_column(at, BLOCK.field(name), pa.array(values, pa.int64()))
    return blocks, int(ends[-1]) if len(ends) else next_row


def with_deleted(link: Link, deleted: Iterable[RowIds]) -> Link:
    """``link`` that deletes these sets, too."""
    return replace(link, deleted=union([link.deleted, *deleted]))


def _without(objects: pa.Table, removed: pa.Array) -> pa.Table:
    if not len(removed) or not objects.num_rows:
        return objects
    return objects.filter(pc.invert(pc.is_in(objects.column("key"), value_set=removed)))


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    """One after the other; a statistic that some of them lack is not known there, and is of the widest type."""
    filled = [table for table in tables if table.num_rows]
    if len(filled) < 2:
        return filled[0] if filled else tables[0]
    try:
        return pa.concat_tables(filled, promote_options="permissive")
    except pa.ArrowTypeError:  # a column of dates was widened to timestamps, which Arrow does not do by itself
        return pa.concat_tables(_as_timestamps(filled), promote_options="permissive")


def _as_timestamps(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """Statistics of dates as the timestamps that others have in the same column."""
    stamps = {
        column.name: column.type for table in tables for column in table.schema if pa.types.is_timestamp(column.type)
    }
    made = []
    for table in tables:
        for at, column in enumerate(table.schema):
            kind = stamps.get(column.name)
            if kind is not None and pa.types.is_date(column.type):
                table = table.set_column(at, column.with_type(kind), table.column(at).cast(kind))
        made.append(table)
    return made


def _within_files(retired: RowIds, files: pa.Table) -> RowIds:
    """Those that a delete file may have: the others were taken out of the sets already."""
    if not len(retired) or not files.num_rows:
        return no_rows()
    first, last = files.column("first_row").to_numpy(), files.column("last_row").to_numpy()
    low, high = np.searchsorted(retired, first), np.searchsorted(retired, last, side="right")
    steps = np.zeros(len(retired) + 1, np.int64)
    np.add.at(steps, low, 1)
    np.add.at(steps, high, -1)
    return retired[np.cumsum(steps[:-1]) > 0]
