"""Reads what `slate_async.collections.codec.merged` makes: a whole object, or one row group after another.

Invariant: nothing is decoded that was not checked against what names the object.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from slate_async.collections.codec.merged import HASHED_UPPER, sections_of
from slate_async.collections.codec.merged_types import stored_schema, with_schema
from slate_async.collections.codec.parts import PartRef, Section, check_bytes
from slate_async.collections.core.updates import UpdateSchema
from slate_async.errors import CorruptionError, InvalidError
from slate_async.types import Buffer

MAGIC = b"PAR1"
END_BYTES = 8
"""The length of the footer, and `MAGIC`."""


def decode_merged(data: Buffer, part: PartRef, schema: UpdateSchema, *, object_name: str) -> pa.Table:
    """All updates of the object ``data``, which is named as ``part``. Raises `CorruptionError` for any other bytes."""
    view = check_bytes(data, part.nbytes, part.crc, object_name=object_name)
    file = _opened(pa.BufferReader(pa.py_buffer(view)), schema, object_name)
    _check_rows(file.metadata.num_rows, part.rows, object_name)
    return _read(file, range(file.num_row_groups), None, schema, object_name)


def with_sections(data: Buffer, part: PartRef, *, object_name: str) -> PartRef:
    """``part`` with the sections of the object ``data``, so that a `MergedFile` can read its row groups one by one.

    Raises `CorruptionError` unless ``data`` is what ``part`` names."""
    view = check_bytes(data, part.nbytes, part.crc, object_name=object_name)
    try:
        sections = sections_of(view, pq.read_metadata(pa.BufferReader(pa.py_buffer(view))))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptionError(f"no Parquet: {error}", object_name=object_name) from error
    _check_rows(sum(section.rows for section in sections), part.rows, object_name)
    return replace(part, sections=sections)


def footer_of(end: bytes, nbytes: int, *, object_name: str) -> slice:
    """Where the footer is of an object of ``nbytes``; ``end``: its last `END_BYTES`. Raises `CorruptionError`."""
    length = int.from_bytes(end[:4], "little") + END_BYTES
    if end[4:] != MAGIC or length > nbytes:
        raise CorruptionError("no Parquet: it does not end as one", object_name=object_name, offset=nbytes - len(end))
    return slice(nbytes - length, nbytes)


def hashed_upper(footer: bytes, *, object_name: str) -> str | None:
    """What ``footer`` says that the name of its object has a hash of; ``None`` if it does not say. Nothing names these
    bytes: that hash shows whether they are right. Raises `CorruptionError`."""
    try:
        found = pq.read_metadata(pa.BufferReader(pa.py_buffer(footer))).metadata
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptionError(f"no Parquet: {error}", object_name=object_name) from error
    text: bytes | None = None if found is None else found.get(HASHED_UPPER.encode())
    return None if text is None else text.decode(errors="replace")


class MergedFile:
    """An object of which row groups are read one at a time. ``footer``: the bytes of the last of ``part.sections``.

    Raises `CorruptionError` for a footer that is not the one named, `InvalidError` without sections."""

    def __init__(self, footer: Buffer, part: PartRef, schema: UpdateSchema, *, object_name: str) -> None:
        if not part.sections:
            raise InvalidError(f"{object_name} is read as a whole: what names it says nothing of its sections")
        self._part = part
        self._schema = schema
        self._name = object_name
        place = self.span(len(part.sections) - 1)
        end = part.sections[-1]
        self._footer = check_bytes(footer, end.nbytes, end.crc, object_name=object_name, offset=place.start)
        try:
            self.metadata: pq.FileMetaData = pq.read_metadata(pa.BufferReader(pa.py_buffer(self._footer)))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise CorruptionError(f"no Parquet: {error}", object_name=object_name, offset=place.start) from error
        stored = [self.metadata.row_group(group).num_rows for group in range(self.metadata.num_row_groups)]
        if stored != [section.rows for section in part.sections[:-1]]:
            raise CorruptionError("its row groups are not those named", object_name=object_name, offset=place.start)

    @property
    def groups(self) -> Sequence[Section]:
        """Its row groups."""
        return self._part.sections[:-1]

    def span(self, section: int) -> slice:
        """Which bytes of the object a section is."""
        return section_span(self._part, section)

    def read(self, group: int, data: Buffer, columns: Sequence[str] | None = None) -> pa.Table:
        """The updates of row group ``group``, whose bytes are ``data``; ``columns``: those wanted, in any order.

        Raises `CorruptionError` for any other bytes."""
        section, place = self.groups[group], self.span(group)
        view = check_bytes(data, section.nbytes, section.crc, object_name=self._name, offset=place.start)
        source = pa.PythonFile(_Piece(view, place.start, self._part.nbytes), "r")
        file = _opened(source, self._schema, self._name, self.metadata)
        table = _read(file, [group], columns, self._schema, self._name)
        _check_rows(table.num_rows, section.rows, self._name)
        return table


def section_span(part: PartRef, section: int) -> slice:
    """Which bytes of the object ``part`` a section is; -1 is the footer."""
    section %= len(part.sections)
    start = sum(before.nbytes for before in part.sections[:section])
    return slice(start, start + part.sections[section].nbytes)


class _Piece(io.RawIOBase):
    """A file of ``nbytes`` of which only ``piece``, which begins at ``start``, is there. Another read fails."""

    def __init__(self, piece: memoryview, start: int, nbytes: int) -> None:
        super().__init__()
        self._piece = piece
        self._start = start
        self._nbytes = nbytes
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._nbytes}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, nbytes: int = -1) -> bytes:
        start, end = self._at - self._start, self._start + len(self._piece)
        self._at = end if nbytes < 0 else self._at + nbytes
        if start < 0 or self._at > end:
            raise OSError(f"bytes up to {self._at} are not in the row group")
        return bytes(self._piece[start : self._at - self._start])


def _opened(
    source: pa.NativeFile, schema: UpdateSchema, object_name: str, metadata: pq.FileMetaData | None = None
) -> pq.ParquetFile:
    try:
        # all of it is in memory: nothing has to be read ahead by other threads
        file = pq.ParquetFile(source, metadata=metadata, pre_buffer=False, page_checksum_verification=True)
        found = file.schema_arrow
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptionError(f"no Parquet: {error}", object_name=object_name) from error
    if not found.equals(stored_schema(schema)):
        columns = ", ".join(f"{field.name} {field.type}" for field in found)
        raise CorruptionError(f"it has other columns: {columns}", object_name=object_name)
    return file


def _read(
    file: pq.ParquetFile, groups: Sequence[int], columns: Sequence[str] | None, schema: UpdateSchema, object_name: str
) -> pa.Table:
    if not groups:
        return schema.arrow.empty_table()
    try:
        stored = file.read_row_groups(groups, columns=columns, use_threads=False)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptionError(f"no Parquet: {error}", object_name=object_name) from error
    return with_schema(stored, pa.schema([schema.arrow.field(name) for name in stored.column_names]))


def _check_rows(found: int, named: int, object_name: str) -> None:
    if found != named:
        raise CorruptionError(f"{found} updates in place of {named}", object_name=object_name)
