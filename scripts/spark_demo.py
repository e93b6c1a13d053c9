"""Load, read, stream, compact and export a data set with Spark, and judge that every row is where it belongs.

Processes: this one is a driver with two cores; ``--role write`` writes beside it all the while; ``--role stream`` is
another driver, which is killed with SIGKILL, its JVM with it, while it copies one database into another by the change
feed, and started again. What it prints goes to a file beside the data, which is shown if it ends by itself. Rows are
compared by their number and the sum of the checksums of each; that the stream applied each micro-batch once is judged
by the change feeds of both databases.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import slate_async as slate
from slate_async import spark as slate_spark
from slate_async.spark.frames import read_changes
from tests.spark import exactly_once

CORES = 2
ROWS = 2_000_000
LIVE_PREFIX = b"live:"
LEAST_BATCH_ROWS = 2_000
BATCHES = 10
"""A micro-batch has as many changes as a tenth of the data set has rows. (What one load brought is in one of them.)"""
KILLS = 2
SHOWN_PHASES = 3
"""Of the micro-batches of the last driver, the longest."""
PROCESS_LIMIT_S = 1_800
Sum = tuple[int, int]
"""Rows, and the sum of the CRC-32 of each (key and value)."""


class Demo:
    """Where everything is, and what came of it."""

    def __init__(self, folder: Path, rows: int, console: Console) -> None:
        self.source, self.copy = str(folder / "source"), str(folder / "copy")
        self.checkpoint, self.parquet, self.input = folder / "checkpoint", folder / "parquet", folder / "input"
        self.folder, self.rows = folder, rows
        self.console = console
        self.wrong: list[str] = []
        self.parts = Table()
        self.table = Table(title="What happened")
        self.table.add_column("step")
        for heading in ("rows", "seconds", "rows/s"):
            self.table.add_column(heading, justify="right")

    def row(self, step: str, rows: int, seconds: float) -> None:
        self.table.add_row(step, f"{rows:,}", f"{seconds:.1f}", f"{rows / max(seconds, 1e-9):,.0f}")
        self.console.print(f"{step}: {rows:,} rows in {seconds:.1f} s")

    def judge(self, what: str, good: bool) -> None:
        self.console.print(f"{what}: {'[green]yes[/]' if good else '[red]NO[/]'}")
        if not good:
            self.wrong.append(what)


def session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("slate_async demo")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "3g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(CORES),
    }.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    slate_spark.register(spark)
    return spark


# ---- sums


def sum_of(df: DataFrame) -> Sum:
    """Of the columns key and value."""
    row = df.select(F.crc32(F.concat("key", "value")).alias("crc")).agg(F.count("crc"), F.sum("crc")).collect()[0]
    return int(row[0]), int(row[1] or 0)


async def scanned(path: str, *, without_live: bool = False) -> tuple[Sum, float]:
    """The sum of what ``db.scan`` gives, in seconds of scanning alone."""
    rows = crcs = 0
    seconds = 0.0
    async with slate.open_reader(path) as reader, reader.scan() as scan:
        began = time.perf_counter()
        async for batch in scan.batches():
            keys, values = batch.column("key"), batch.column("value")
            seconds += time.perf_counter() - began
            if without_live:
                kept = pc.invert(pc.starts_with(keys, LIVE_PREFIX))
                keys, values = keys.filter(kept), values.filter(kept)
            rows += len(keys)
            crcs += sum(zlib.crc32(v, zlib.crc32(k)) for k, v in zip(keys.to_pylist(), values.to_pylist(), strict=True))
            began = time.perf_counter()
    return (rows, crcs), seconds


# ---- the other processes


async def write_for_ever(path: str) -> None:
    """Write small batches and print a line for each acknowledged one; the last line says what was written."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    written = 0
    async with slate.open(path, settings=slate.Settings(auto_compaction=False)) as db:
        print("open", flush=True)
        while not stop.is_set():
            batch = slate.WriteBatch()
            for number in range(10):
                batch.put(LIVE_PREFIX + b"%d" % ((written + number) % 5_000), b"%d" % written)
            batch.delete(LIVE_PREFIX + b"%d" % (written % 5_000))
            await db.write(batch)
            written += 11
            await asyncio.sleep(0.02)
    print(written, flush=True)


def copying(spark: SparkSession, demo: Demo, **trigger: bool) -> StreamingQuery:
    """The changes of one database put into another one, each batch in one commit that is recognised when repeated."""
    changes = read_changes(spark, demo.source, maxRowsPerTrigger=max(LEAST_BATCH_ROWS, demo.rows // BATCHES))
    writer = changes.drop("create_time").repartitionByRange(CORES, "key").writeStream.format("slate")
    writer = writer.option("checkpointLocation", str(demo.checkpoint)).option("appId", "demo")
    writer = writer.option("orderColumn", "seq").option("ingestMode", "exclusive")
    return (writer.trigger(**trigger) if trigger else writer).start(demo.copy)


@contextmanager
def process(role: str, demo: Demo) -> Iterator[subprocess.Popen[str]]:
    """This script in another role, killed at the end with all below it that still runs: a JVM whose driver is killed
    alone stops Spark under a query that runs, with pages of traces. What it says of errors is in `log_of`."""
    command = [sys.executable, __file__, "--role", role, "--folder", str(demo.folder), "--rows", str(demo.rows)]
    with (
        log_of(role, demo).open("a") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True) as running,
    ):
        try:
            yield running
        finally:
            with suppress(ProcessLookupError):  # all of them have ended
                os.killpg(running.pid, signal.SIGKILL)


def log_of(role: str, demo: Demo) -> Path:
    """What the processes of that role wrote to their standard error."""
    return demo.folder / f"{role}.log"


# ---- steps


def data_set(spark: SparkSession, demo: Demo, parquet: str | None) -> DataFrame:
    """In no order of keys, from Parquet."""
    if parquet is None:
        wide = spark.range(0, demo.rows, 1, CORES).select(
            F.md5(F.col("id").cast("string")).alias("key"),
            F.concat(F.lit('{"id":'), "id", F.lit(',"name":"'), F.repeat(F.sha1(F.col("id").cast("string")), 2)).alias(
                "value"
            ),
        )
        began = time.perf_counter()
        wide.write.parquet(str(demo.input))
        demo.row("generate, as Parquet", demo.rows, time.perf_counter() - began)
    frame = spark.read.parquet(str(demo.input) if parquet is None else parquet)
    return frame.select(F.col("key").cast("binary"), F.col("value").cast("binary"))


def load_and_read(spark: SparkSession, demo: Demo, frame: DataFrame) -> Sum:
    """Bulk load beside the writer; then what Spark and the engine read must be what was loaded."""
    expected = sum_of(frame)
    began = time.perf_counter()
    slate_spark.bulk_load(frame, demo.source, partitions=CORES * 2, timeout=300)
    demo.row("bulk load beside a live writer", expected[0], time.perf_counter() - began)
    began = time.perf_counter()
    found = sum_of(slate_spark.read(spark, demo.source).filter(~F.col("key").startswith(F.lit(LIVE_PREFIX))))
    demo.row("read back with Spark", found[0], time.perf_counter() - began)
    demo.judge("Spark reads what was loaded", found == expected)
    found, seconds = asyncio.run(scanned(demo.source, without_live=True))
    demo.row("read back with db.scan", found[0], seconds)
    demo.judge("db.scan reads what was loaded", found == expected)
    return expected


async def compact(spark: SparkSession, demo: Demo) -> None:
    """Into one run; what is read must stay the same."""
    (before, _) = await scanned(demo.source)
    began = time.perf_counter()
    with slate_spark.SparkExecutor(spark, demo.source) as executor:
        settings = slate.Settings(compaction_parallelism=CORES + 1)  # one waits for a core
        async with slate.open_compactor(demo.source, settings=settings, executor=executor) as compactor:
            await compactor.compact(full=True)
            rows = int(compactor.metrics()["compaction.rows_in"])
    demo.row(f"compact on local[{CORES}]", rows, time.perf_counter() - began)
    (after, _) = await scanned(demo.source)
    demo.judge("the compacted database is equal", before == after)
    await judge_verified(demo, "source", demo.source)


def until_committed(demo: Demo, count: int, running: subprocess.Popen[str]) -> None:
    """Wait until Spark has committed so many micro-batches."""
    deadline = time.monotonic() + PROCESS_LIMIT_S
    while not (demo.checkpoint / "commits" / str(count - 1)).exists():
        if running.poll() is not None or time.monotonic() > deadline:
            sys.stderr.write(log_of("stream", demo).read_text())
            raise SystemExit("the streaming process did not come so far; see above")
        time.sleep(0.05)


class Start(NamedTuple):
    """A driver of the stream: when it was started, and when its session was there, in seconds since 1970."""

    who: str
    began: float
    up: float


def table_of(starts: list[Start], checkpoint: Path) -> Table:
    """Where the seconds of the stream went, up to now: by the times of the files in its checkpoint."""
    ended = time.time()
    begun, done = (
        {int(file.name): file.stat().st_mtime for file in (checkpoint / name).glob("[0-9]*")}
        for name in ("offsets", "commits")
    )
    table = Table("part", title="Where the seconds of the stream went")
    table.add_column("seconds", justify="right")
    accounted = 0.0
    for start, stop in zip(starts, [*(later.began for later in starts[1:]), ended], strict=True):
        first = min((number for number, end in done.items() if start.up < end < stop), default=None)
        until = stop if first is None else done.pop(first)
        table.add_row(f"{start.who}: its start", f"{start.up - start.began:.1f}")
        table.add_row(f"{start.who}: until its first micro-batch is committed", f"{until - start.up:.1f}")
        accounted += until - start.began
    took = [end - begun[number] for number, end in done.items()]
    table.add_row(f"the other {len(took)} micro-batches", f"{sum(took):.1f}")
    table.add_row(
        "between them, and for the ends of drivers and writer", f"{ended - starts[0].began - accounted - sum(took):.1f}"
    )
    return table


def phases_of(query: StreamingQuery) -> Counter[str]:
    """Milliseconds of each phase of its micro-batches, as Spark calls them."""
    found: Counter[str] = Counter()
    for progress in query.recentProgress:
        found.update(progress.durationMs)
    del found["triggerExecution"]  # all of them together
    return found


def stream(spark: SparkSession, demo: Demo, writer: subprocess.Popen[str], kills: int) -> None:
    """Copy all changes while the writer writes, with a driver that is killed; then let it finish."""
    starts: list[Start] = []
    for killed in range(1, kills + 1):
        began = time.time()
        with process("stream", demo) as running:
            assert running.stdout is not None
            running.stdout.readline()
            starts.append(Start(f"driver {killed}", began, time.time()))
            until_committed(demo, killed * 2, running)
        demo.console.print(f"the streaming driver was killed after {killed * 2} micro-batches or more")
    began = time.time()
    writer.send_signal(signal.SIGTERM)
    assert writer.stdout is not None
    demo.console.print(f"the writer wrote {int(writer.stdout.readline()):,} rows all the while")
    writer.wait(PROCESS_LIMIT_S)
    starts.append(Start("the last driver", began, time.time()))
    query = copying(spark, demo, availableNow=True)
    query.awaitTermination()
    seconds = time.time() - starts[0].began
    demo.parts = table_of(starts, demo.checkpoint)
    for phase, milliseconds in phases_of(query).most_common(SHOWN_PHASES):
        demo.parts.add_row(f"of those of the last driver: {phase}", f"{milliseconds / 1000:.1f}")
    (source, _), (copy, _) = asyncio.run(scanned(demo.source)), asyncio.run(scanned(demo.copy))
    demo.row(f"stream into another database, kills: {kills} (starts included)", copy[0], seconds)
    demo.judge("the copy is equal", source == copy)
    asyncio.run(judge_batches(demo))


async def judge_batches(demo: Demo) -> None:
    """The copy's own history: each micro-batch once, in order."""
    expected = await exactly_once.streamed(demo.source, exactly_once.offsets(demo.checkpoint))
    wrong = exactly_once.judged(expected, await exactly_once.applied(demo.copy))
    demo.console.print(f"{len(expected)} micro-batches" if wrong is None else wrong)
    demo.judge("the copy has each micro-batch once, in order", wrong is None)
    await judge_verified(demo, "copy", demo.copy)


async def judge_verified(demo: Demo, name: str, path: str) -> None:
    async with slate.open_admin(path) as admin:
        demo.judge(f"verify finds nothing wrong with the {name}", (await admin.verify()).clean)


def at_least(least: int) -> Callable[[str], int]:
    """Reads a number that is not below ``least``."""

    def read(text: str) -> int:
        if (number := int(text)) < least:
            raise argparse.ArgumentTypeError(f"{number} is below {least}")
        return number

    return read


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=at_least(1), default=ROWS)
    parser.add_argument("--parquet", help="a data set with columns key and value, instead of generated rows")
    parser.add_argument("--folder", type=Path, default=Path("demo-data/spark"), help="emptied first")
    parser.add_argument("--kills", type=at_least(0), default=KILLS, help="of the streaming driver")
    parser.add_argument("--role", choices=("drive", "write", "stream"), default="drive", help=argparse.SUPPRESS)
    given = parser.parse_args()
    demo = Demo(given.folder.resolve(), given.rows, Console())
    if given.role == "write":
        asyncio.run(write_for_ever(demo.source))
        return 0
    if given.role == "stream":
        spark = session()
        print("up", flush=True)
        copying(spark, demo).awaitTermination()
        return 0
    shutil.rmtree(given.folder, ignore_errors=True)
    asyncio.run(make(demo.copy))
    spark = session()
    frame = data_set(spark, demo, given.parquet)
    with process("write", demo) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        load_and_read(spark, demo, frame)
        stream(spark, demo, writer, given.kills)
    asyncio.run(compact(spark, demo))
    began = time.perf_counter()
    report = slate_spark.export_parquet(spark, demo.copy, str(demo.parquet))
    demo.row("export to Parquet", report.rows, time.perf_counter() - began)
    demo.judge(
        "the files are equal", sum_of(spark.read.parquet(str(demo.parquet))) == asyncio.run(scanned(demo.copy))[0]
    )
    spark.stop()
    demo.console.print(demo.table, demo.parts)
    return 1 if demo.wrong else 0


async def make(path: str) -> None:
    """An empty database, whose changes are kept from now on."""
    async with slate.open(path):
        pass
    await exactly_once.keep(path)


if __name__ == "__main__":
    sys.exit(main())
