"""``export``: rows into a file of CSV, JSON Lines or Parquet, which `load` and `ingest` take again.

Invariant: a plain file that is named is there whole or not at all: rows go to one beside it, which takes its place at
the end.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from slate_async.cli.encoding import Encoding, json_field, show
from slate_async.cli.exit_codes import OK
from slate_async.cli.keyvalue import Bounds
from slate_async.cli.output import counted, naming_standard_output
from slate_async.cli.session import Session
from slate_async.engine.read.record_batch import RecordBatch
from slate_async.engine.read.time_travel import iso_time
from slate_async.errors import InvalidError

DASH = Path("-")
BATCH_ROWS = 8192


class ExportFormat(StrEnum):
    """What a file can be."""

    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"


SUFFIXES = {
    ".csv": ExportFormat.CSV,
    ".jsonl": ExportFormat.JSONL,
    ".ndjson": ExportFormat.JSONL,
    ".parquet": ExportFormat.PARQUET,
}


@dataclass(frozen=True, slots=True)
class ExportJob:
    """What ``slate export`` was asked to do. ``expiry``: with a column expire_time, for rows that have one."""

    file: Path
    form: ExportFormat | None
    bounds: Bounds
    checkpoint: str | None
    pin: bool
    expiry: bool
    encoding: Encoding


class Sink(Protocol):
    """Takes the batches of an export (key, value, and if wanted expire_time), in order."""

    def write(self, batch: RecordBatch) -> None:
        """Write one."""


async def export(session: Session, job: ExportJob) -> int:
    """Write the rows."""
    form = job.form or SUFFIXES.get(job.file.suffix.lower())
    if form is None:
        raise InvalidError("--format says what to write: csv, jsonl or parquet")
    if job.file.is_dir():
        raise InvalidError(f"{job.file} is a folder; name a file")
    if form is ExportFormat.PARQUET and job.file == DASH:
        raise InvalidError("Parquet needs a file")
    if form is ExportFormat.PARQUET and job.encoding is not Encoding.TEXT:
        raise InvalidError("Parquet holds bytes as they are; --hex and --base64 are for csv and jsonl")
    scan = job.bounds.parsed(job.encoding)
    columns = ["key", "value", *(["expire_time"] if job.expiry else [])]
    count = 0
    async with session.scanning(checkpoint=job.checkpoint, pin=job.pin) as database:
        with _opened(job.file) as path, _sink(path, form, job.encoding, columns) as sink:
            async with database.scan(**scan) as rows:
                async for batch in rows.batches(BATCH_ROWS, times=job.expiry):
                    sink.write(batch.select(columns))
                    count += batch.num_rows
    if session.output.as_json and job.file != DASH:
        session.output.json({"file": str(job.file), "rows": count})
    else:
        session.output.note(counted(count, "row"))
    return OK


@contextmanager
def _opened(file: Path) -> Iterator[Path]:
    """Where to write; in the place of ``file`` once that went well. A link stays one; what is no plain file, such as
    a device or a pipe, is written to as it is."""
    if file == DASH or (file.exists() and not file.is_file()):
        yield file
        return
    target = file.resolve()
    part = target.with_name(target.name + ".part")
    try:
        yield part
        os.replace(part, target)
    except BaseException as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename == str(part):
            error.filename, error.filename2 = str(file), None  # what the caller named
        raise


@contextmanager
def _sink(path: Path, form: ExportFormat, encoding: Encoding, columns: list[str]) -> Iterator[Sink]:
    if form is ExportFormat.PARQUET:
        kinds = {"expire_time": pa.timestamp("ms", tz="UTC")}
        schema = pa.schema([(name, kinds.get(name, pa.binary())) for name in columns])
        with path.open("wb") as file, pq.ParquetWriter(file, schema) as writer:
            yield _Parquet(writer)
    elif path == DASH:
        with naming_standard_output():
            yield _text_sink(sys.stdout, form, encoding, columns)
    else:
        with path.open("w", encoding="utf-8", newline="") as stream:
            yield _text_sink(stream, form, encoding, columns)


def _text_sink(stream: TextIO, form: ExportFormat, encoding: Encoding, columns: list[str]) -> Sink:
    if form is ExportFormat.JSONL:
        return _Rows(lambda row: stream.write(_json_line(row, encoding)))
    writer = csv.writer(stream)
    writer.writerow(columns)
    return _Rows(lambda row: writer.writerow(_csv_cells(row, encoding)))


@dataclass(frozen=True, slots=True)
class _Parquet:
    """Bytes as they are."""

    writer: pq.ParquetWriter

    def write(self, batch: RecordBatch) -> None:
        """See `Sink`."""
        self.writer.write_batch(batch)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Row by row."""

    take: Callable[[dict[str, Any]], object]

    def write(self, batch: RecordBatch) -> None:
        """See `Sink`."""
        for row in batch.to_pylist():
            self.take(row)


def _json_line(row: dict[str, Any], encoding: Encoding) -> str:
    members: dict[str, Any] = dict(json_field(name, row[name], encoding) for name in ("key", "value"))
    if row.get("expire_time") is not None:
        members["expire_time"] = iso_time(row["expire_time"].timestamp())
    return json.dumps(members, ensure_ascii=False, separators=(",", ":")) + "\n"


def _csv_cells(row: dict[str, Any], encoding: Encoding) -> list[str]:
    cells = [_cell(row[name], name, encoding) for name in ("key", "value")]
    if "expire_time" in row:
        cells.append("" if row["expire_time"] is None else iso_time(row["expire_time"].timestamp()))
    return cells


def _cell(data: bytes, name: str, encoding: Encoding) -> str:
    if encoding is not Encoding.TEXT:
        return show(data, encoding)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidError(
            f"a {name} is not UTF-8 ({data[:32]!r}), which CSV cannot say; give --hex or --base64, or another --format"
        ) from None
