"""Reading CSV, JSON Lines and Parquet files as records, one at a time, bad ones included.

Invariant: every record of the file comes out exactly once, as a `Record` or as a `BadRow` with the line where it
begins; nothing is dropped or guessed. Memory is bounded by the largest record (and, for Parquet, one batch).
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from slate_async.cli.standard_input import WaitingInput
from slate_async.errors import InvalidError

T = TypeVar("T")

MAX_FIELD_BYTES = 64 * 1024 * 1024
"""Longest field of a CSV file; an unclosed quote stops here instead of swallowing the rest of the file."""
PARQUET_BATCH_ROWS = 1_024


class Format(StrEnum):
    """The kinds of file `open_source` reads."""

    CSV = "csv"
    TSV = "tsv"
    JSONL = "jsonl"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True)
class Record:
    """One row of a file: ``line`` where it begins, counted from 1 (for Parquet the number of the row)."""

    line: int
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BadRow:
    """One row that cannot be used, why, and what could be read of it."""

    line: int
    reason: str
    content: Any


Item: TypeAlias = Record | BadRow


class Lines(Protocol):
    """What is read line by line: a file, or standard input."""

    def readline(self) -> bytes:
        """The next line, ``b""`` at the end."""

    def tell(self) -> int:
        """Bytes read so far."""

    def close(self) -> None:
        """Read no more."""


_EXTENSIONS = {
    ".csv": Format.CSV,
    ".tsv": Format.TSV,
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
    ".parquet": Format.PARQUET,
}


@dataclass(slots=True)
class Source:
    """An open file. ``columns`` is ``None`` where every record has its own (JSON Lines).

    ``total`` (0: not known) and ``done()`` measure progress in the same unit, bytes or rows. ``items`` is to be
    advanced inside `pull` only. Use as a context manager."""

    columns: Sequence[str] | None
    total: int
    done: Callable[[], int]
    items: Iterator[Item]
    file: Lines

    async def pull(self, work: Callable[[], T]) -> T:
        """Run ``work``, which advances ``items``: at once, or where that may wait for long, on a worker thread."""
        return await self.file.pull(work) if isinstance(self.file, WaitingInput) else work()

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *exc: object) -> None:
        self.file.close()


def format_of(path: Path) -> Format:
    """The format a file's extension stands for. Raises `InvalidError` for an unknown one, or if there is no file."""
    if not path.exists():
        raise InvalidError(f"there is no file {path}")
    try:
        return _EXTENSIONS[path.suffix.lower()]
    except KeyError:
        raise InvalidError(
            f"the extension of {path.name!r} names no format; say --format {'|'.join(f.value for f in Format)}"
        ) from None


def open_source(path: Path, form: Format) -> Source:
    """Open a file of records. Raises `InvalidError` if it cannot be of that format, `OSError` if not readable."""
    if path.exists() and not path.is_file():  # a pipe would block the event loop, and has no end to show progress to
        raise InvalidError(f"{path} is not a regular file")
    file = path.open("rb")
    try:
        if form is Format.PARQUET:
            return _parquet(path, file)
        if form is Format.JSONL:
            return Source(None, path.stat().st_size, file.tell, _json_lines(file), file)
        return _csv(path.name, path.stat().st_size, file, "\t" if form is Format.TSV else ",")
    except BaseException:
        file.close()
        raise


async def open_standard_input(form: Format | None, descriptor: int = 0) -> Source:
    """Records that come through a pipe, as they come. Raises `InvalidError` without a format of lines."""
    if form is None:
        raise InvalidError("standard input has no extension; say --format csv, tsv or jsonl")
    if form is Format.PARQUET:
        raise InvalidError("Parquet cannot be read from standard input; give a file")
    lines = WaitingInput(descriptor)
    try:
        if form is Format.JSONL:
            return Source(None, 0, lines.tell, _json_lines(lines), lines)
        return await lines.pull(lambda: _csv("standard input", 0, lines, "\t" if form is Format.TSV else ","))
    except BaseException:
        lines.close()
        raise


def _csv(name: str, nbytes: int, file: Lines, delimiter: str) -> Source:
    csv.field_size_limit(MAX_FIELD_BYTES)
    reader = csv.reader(_decoded(file), delimiter=delimiter, strict=True)
    try:
        columns = next(reader)
    except StopIteration:
        raise InvalidError(f"{name} is empty; its first line must name the columns") from None
    except csv.Error as error:
        raise InvalidError(f"{name}: its first line, which must name the columns, is bad: {error}") from error
    _refuse_twins(name, columns)
    return Source(columns, nbytes, file.tell, _csv_rows(reader, columns), file)


def _refuse_twins(file_name: str, columns: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in columns:
        if name in seen:
            raise InvalidError(f"{file_name} has the column {name!r} twice")
        seen.add(name)


def _decoded(file: Lines) -> Iterator[str]:
    """Lines as text; bytes that are not UTF-8 become lone surrogates, which `_csv_rows` finds."""
    while raw := file.readline():
        yield raw.decode("utf-8-sig" if file.tell() == len(raw) else "utf-8", "surrogateescape")


def _csv_rows(reader: Any, columns: Sequence[str]) -> Iterator[Item]:
    while True:
        line = reader.line_num + 1
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield BadRow(line, f"not CSV: {error}", None)
            continue
        if not values:
            continue
        if len(values) != len(columns):
            yield BadRow(line, f"{len(values)} fields where there are {len(columns)} columns", values)
        elif not all(map(_is_unicode, values)):
            yield BadRow(line, "not UTF-8", [value.encode("utf-8", "surrogateescape").hex() for value in values])
        else:
            yield Record(line, dict(zip(columns, values, strict=True)))


def _is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def _json_lines(file: Lines) -> Iterator[Item]:
    line = 0
    while raw := file.readline():
        line += 1
        body = raw.removeprefix(b"\xef\xbb\xbf") if line == 1 else raw
        if not body.strip():
            continue
        try:
            text = body.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            yield BadRow(line, "not UTF-8", body.hex())
            continue
        try:
            value = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_twins)
        except (ValueError, RecursionError) as error:
            yield BadRow(line, f"not JSON: {error}", text)
            continue
        if isinstance(value, dict):
            yield Record(line, value)
        else:
            yield BadRow(line, "not a JSON object", text)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON value")


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return members


def _parquet(path: Path, file: BinaryIO) -> Source:
    try:
        table = pq.ParquetFile(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise InvalidError(f"{path.name} is not Parquet: {error}") from error
    columns = list(table.schema_arrow.names)
    _refuse_twins(path.name, columns)
    read = [0]
    return Source(
        columns,
        table.metadata.num_rows,
        lambda: read[0],
        _parquet_rows(path, table, read),
        file,
    )


def _parquet_rows(path: Path, table: Any, read: list[int]) -> Iterator[Item]:
    try:
        for batch in table.iter_batches(batch_size=PARQUET_BATCH_ROWS):
            for fields in batch.to_pylist():
                read[0] += 1
                yield Record(read[0], fields)
    except (pa.ArrowException, OSError) as error:
        raise InvalidError(f"{path.name} cannot be read after row {read[0]}: {error}") from error
