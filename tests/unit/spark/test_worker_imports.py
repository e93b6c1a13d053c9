"""What Spark's Python processes import: each only what it is asked for, because a cold session starts many of them.

A process is stood in for by a fresh interpreter that unpickles what Spark would send it.
"""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.cloudpickle import dumps

import slate_async as slate
from slate_async.spark.batch_read import BatchReader
from slate_async.spark.collection_source import SlateCollectionSource
from slate_async.spark.plan import KeyPartition
from slate_async.spark.read_options import ReadOptions
from slate_async.spark.source import SlateDataSource
from slate_async.spark.stream_source import SlateChangesSource
from slate_async.spark.typed_rows import ROW
from tests.support.interpreter import run

OPTIONAL = {"aiobotocore", "boto3", "botocore", "obstore", "pandas"}
DRIVERS = {
    f"slate_async.spark.{name}"
    for name in (
        *("arrangement", "collection_frames", "collection_merge", "compaction", "database_size", "decode"),
        *("engine_errors", "export", "frames", "key_lookup"),
        *("load", "load_plan", "progress", "report", "session", "statistics_frame", "task_job", "worker_python"),
    )
}
"""What only a driver needs."""
WRITERS = {f"slate_async.spark.{name}" for name in ("collection_sink", "known_job", "write", "write_options")}
STREAMS = {
    f"slate_async.spark.{name}"
    for name in (
        *("batch_changes", "collection_offset", "collection_stream", "collection_stream_plan"),
        *("stream_end", "stream_plan", "stream_reader"),
    )
}
ENGINE = {"numpy", "pyarrow", "pydantic", "slate_async.database", "slate_async.engine", "slate_async.settings"}
DOORS = {"slate_async.cli", "slate_async.sync"}


def modules_after(code: str, **sent: object) -> set[str]:
    """The modules that a fresh interpreter has after ``code``, in which the names of ``sent`` are unpickled."""
    names = "".join(f"{name} = loads(b64decode({b64encode(dumps(value))!r}))\n" for name, value in sent.items())
    imports = "import sys\nfrom base64 import b64decode\nfrom pickle import loads\n"
    return set(run(f"{imports}{names}{code}\nprint(*sys.modules)"))


@pytest.mark.parametrize("source", [SlateDataSource, SlateChangesSource, SlateCollectionSource])
def test_a_source_is_made_without_the_engine(source: type) -> None:
    imported = modules_after("source({'path': '/db'})", source=source)
    sources = ("source", "stream_source", "collection_source", "registration")
    needed = {f"slate_async.spark.{name}" for name in sources}
    ours = {name for name in imported if name.startswith("slate_async.")}
    assert ours <= {"slate_async.late_names", "slate_async.spark", *needed}
    assert imported.isdisjoint({*OPTIONAL, *ENGINE})


def test_the_schema_of_a_stream_needs_no_feed() -> None:
    imported = modules_after("source({'path': '/db'}).schema()", source=SlateChangesSource)
    assert imported.isdisjoint({*OPTIONAL, *DRIVERS, *WRITERS, *STREAMS, *DOORS, "numpy", "slate_async.database"})


async def test_a_read_is_planned_without_what_drivers_and_tasks_alone_need(tmp_path: Path) -> None:
    await written(tmp_path)
    code = "assert len(source({'path': path}).reader(schema).partitions()) == 1"
    imported = modules_after(code, source=SlateDataSource, path=str(tmp_path), schema=ROW)
    assert imported.isdisjoint({*OPTIONAL, *DRIVERS, *WRITERS, *STREAMS, *DOORS})


async def test_a_task_reads_without_what_drivers_and_writers_need(tmp_path: Path) -> None:
    await written(tmp_path)
    options = ReadOptions.of({"path": str(tmp_path)})
    [partition] = BatchReader(options, ROW).partitions()
    assert isinstance(partition, KeyPartition)
    code = "assert sum(batch.num_rows for batch in reader.read(partition)) == 3"
    imported = modules_after(code, reader=BatchReader(options, ROW), partition=partition)
    assert imported.isdisjoint({*OPTIONAL, *DRIVERS, *WRITERS, *STREAMS, *DOORS})


async def written(path: Path) -> None:
    """A database of three rows there."""
    async with slate.open(path) as db:
        for key in (b"a", b"b", b"c"):
            await db.put(key, b"v")
