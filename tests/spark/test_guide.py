"""What pages say of Spark, block by block, as it stands there: a newcomer's path, run against real Spark."""

from __future__ import annotations

import ast
import asyncio
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import slate_async as slate
from slate_async import spark as slate_spark
from tests.docs.examples import ROOT, Example, examples_of, in_folder, pages
from tests.spark.test_load import contents, made, small

pytestmark = pytest.mark.timeout(300)
PAGES = ("docs/guide/spark.md", "docs/guide/spark-collections.md", "docs/operations/spark-deployments.md")
EXAMPLES = [example for page in PAGES for example in examples_of(page, (ROOT / page).read_text(encoding="utf-8"))]
NOT_RUN = [
    ("pip install", "not run, because it changes the environment of the tests"),
    ("SLATE_COMPACTION_PARALLELISM=16 slate", "not run, because it needs a cluster"),
    ('cd "$SPARK_HOME/python/lib"', "not run, because it changes an installation of Spark"),
    ("frame.write.format", "not run, because Spark runs it"),
    ("pip install", "not run, because it changes the environment of the tests"),
    ("PYSPARK_PYTHON=/opt/venv/bin/python", "not run, because it needs a Spark of its own"),
    ("python3 -m venv venv", "not run, because it needs a cluster"),
    ("spark-submit --master k8s", "not run, because it needs Kubernetes"),
    ("spark-submit --deploy-mode cluster", "not run, because it needs EMR"),
]
"""How the blocks begin that run nowhere, and their marks: all there may be."""
ORDERS = "customer string, number int, item string, price decimal(10,2)"
TYPED = {"keyType": "tuple", "keyColumns": "customer,number", "valueFormat": "json"}
MORNING = "2026-11-22T00:00:00+00:00"
CHANGED = "key string, value string, op string, expire_time long"
EVENTS = [("a", "1"), ("b", "2")]


@dataclass(frozen=True)
class Guide:
    """A folder in which a block of the guide runs, and what it stands for: ``s3://bucket/db`` is a folder below."""

    spark: SparkSession
    folder: Path
    example: Example
    printed: Callable[[], str]

    def run(self, **names: object) -> dict[str, Any]:
        """Run the block with ``names`` besides those of the first one; all names then. ``_``: what its last expression
        gives."""
        tree = ast.parse(in_folder(self.example.code, self.folder), f"{self.example.page}:{self.example.line}")
        known: dict[str, Any] = {"spark": self.spark, "F": F, "slate_spark": slate_spark, "slate": slate, **names}
        last = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, self.example.page, "exec"), known)
        if last is not None:
            known["_"] = eval(compile(last, self.example.page, "eval"), known)
        return known

    def place(self, name: str) -> str:
        """Where ``s3://bucket/name`` is."""
        return f"file://{self.folder}/bucket/{name}"

    def rows(self, name: str) -> list[tuple[bytes, bytes]]:
        return asyncio.run(contents(self.place(name)))

    def put(self, name: str, rows: list[tuple[Any, ...]]) -> None:
        slate_spark.bulk_load(small(self.spark, rows), self.place(name))

    def stream(self, *columns: str) -> DataFrame:
        """Of two rows, in a file."""
        arrived = self.folder / "arrived"
        names = columns or ("key", "value")
        small(self.spark, EVENTS, ", ".join(f"{name} string" for name in names)).write.parquet(str(arrived))
        return self.spark.readStream.schema(", ".join(f"{name} string" for name in names)).parquet(str(arrived))

    def finish(self, query: Any) -> None:
        """Let a stream that the block has started do what there is, and stop it."""
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    def files(self, name: str) -> list[tuple[Any, ...]]:
        """Rows of Parquet files."""
        return sorted(tuple(row) for row in self.spark.read.parquet(self.place(name)).collect())


def first_steps(guide: Guide) -> None:
    guide.run()
    assert "| 30|    1|" in guide.printed()
    stored = asyncio.run(contents(guide.folder / "data" / "people"))
    assert stored == [
        (b"user:000001", b'{"name":"Alice","age":30}'),
        (b"user:000002", b'{"name":"Bob","age":40}'),
    ]


def typed_rows(guide: Guide) -> None:
    df = guide.spark.createDataFrame([("ann", 1, "pen", Decimal("1.50"))], ORDERS)
    df.coalesce(1).write.format("slate").mode("append").options(**TYPED).save(guide.place("orders"))
    names = guide.run(df=df.coalesce(1), url=guide.place("copy"))
    assert [tuple(row) for row in names["orders"].collect()] == [("ann", Decimal("1.50"))]
    assert guide.rows("copy") == guide.rows("orders") != []


def single_rows(guide: Guide) -> None:
    guide.put("users", [("ann", '{"name": "Ann", "age": 30}'), ("bob", '{"name": "Bob", "age": 40}')])
    clicks = guide.spark.createDataFrame([("ann", 7), ("eve", 8)], "user_id string, page int")
    found = {tuple(row) for row in guide.run(clicks=clicks)["_"].collect()}
    assert found == {("ann", 7, "Ann", 30), ("eve", 8, None, None)}


def save(guide: Guide) -> None:
    df = guide.spark.createDataFrame([(f"{number:03}", "x") for number in range(100)], "key string, value string")
    guide.run(df=df)
    assert len(guide.rows("db")) == 100


def sink(guide: Guide) -> None:
    guide.finish(guide.run(stream=guide.stream())["_"])
    assert guide.rows("db") == [(b"a", b"1"), (b"b", b"2")]


def changes(guide: Guide) -> None:
    guide.put("db", [("before", "0")])
    query = guide.run()["_"]
    try:
        query.processAllAvailable()
        guide.put("db", EVENTS)
        deadline = time.monotonic() + 60
        while not query.lastProgress["numInputRows"] and time.monotonic() < deadline:
            time.sleep(0.05)  # the query looks now and then whether there are changes
    finally:
        guide.finish(query)
    assert [row[:3] for row in guide.files("changes")] == [("put", b"a", b"1"), ("put", b"b", b"2")]


def replica(guide: Guide) -> None:
    """Several changes of a key, a delete and an expiry, in one micro-batch."""
    asyncio.run(made(guide.folder / "bucket" / "db"))
    guide.put("db", [("a", "0"), ("gone", "0")])
    guide.put("db", EVENTS)
    expires = int(time.time() * 1000) + 3_600_000
    last = small(guide.spark, [("gone", None, "delete", None), ("c", "3", "put", expires)], CHANGED)
    slate_spark.bulk_load(last, guide.place("db"), op="op", expire="expire_time")
    guide.finish(guide.run()["_"])
    assert guide.rows("replica") == guide.rows("db") == [(b"a", b"1"), (b"b", b"2"), (b"before", b"1"), (b"c", b"3")]
    [copied] = slate_spark.read(guide.spark, guide.place("replica"), prefix="c").collect()
    assert copied.expire_time.timestamp() * 1000 == expires


def join(guide: Guide) -> None:
    guide.put("prices", [("a", "9.99")])
    orders = guide.stream("key", "customer").withColumn("key", F.col("key").cast("binary"))
    guide.finish(guide.run(orders=orders)["_"])
    assert [row[:3] for row in guide.files("priced")] == [(b"a", "1", b"9.99")]


def collections(guide: Guide) -> None:
    async def prepare(path: Path) -> None:
        data = pa.schema([("customer", pa.string()), ("total", pa.int64())])
        async with slate.open_collections(path) as lake:
            for name in ("orders", "copy"):
                await (await lake.create(name, data=data, appends="compare")).expire()
            async with lake.collection("orders").writer() as writer:
                await writer.append([(("ann", 5), 0, 2), (("bob", 7), 3, 1)], upper=4)

    async def copied(path: Path) -> list[tuple[Any, int]]:
        async with slate.open_collections(path) as lake, lake.collection("copy").reader() as reader:
            return [row async for row in (await reader.snapshot(0)).rows()]

    live = guide.folder / "bucket" / "live"
    asyncio.run(prepare(live))
    names = guide.run()
    guide.finish(names["_"])
    assert sorted(tuple(row) for row in names["totals"]) == [("ann", 10), ("bob", 7)]
    assert asyncio.run(copied(live)) == [(("ann", 5), 2), (("bob", 7), 1)]


def batch_of_changes(guide: Guide) -> None:
    """The guide's day is one on which its database was there."""
    asyncio.run(made(guide.folder / "bucket" / "db"))
    morning = datetime.now(UTC).isoformat()
    guide.put("db", EVENTS)
    assert guide.example.code.count(MORNING) == 1
    today = replace(guide, example=replace(guide.example, code=guide.example.code.replace(MORNING, morning))).run()[
        "today"
    ]
    assert sorted((row.op, row.key) for row in today.collect()) == [("put", b"a"), ("put", b"b")]


def export(guide: Guide) -> None:
    async def checkpoint() -> None:
        async with slate.open_admin(guide.place("db")) as admin:
            await admin.checkpoints.create(name="nightly")

    guide.put("db", EVENTS)
    asyncio.run(checkpoint())
    guide.put("db", [("later", "3")])
    guide.run()
    assert guide.rows("copy") == [(b"a", b"1"), (b"b", b"2")]
    assert (guide.folder / "db.png").stat().st_size > 10_000


def notebook(guide: Guide) -> None:
    guide.put("db", EVENTS)
    guide.run()
    assert "[61]" in guide.printed()


def databricks(guide: Guide) -> None:
    guide.put("db", EVENTS)
    assert guide.run()["_"] == 2


BLOCKS: Mapping[str, Callable[[Guide], None]] = {
    "from pyspark.sql import SparkSession": first_steps,
    "orders = slate_spark.read(": typed_rows,
    "slate_spark.lookup(": single_rows,
    "df.repartitionByRange(": save,
    "stream.repartitionByRange(": sink,
    "stream.writeStream.foreachBatch(": sink,
    "changes = slate_spark.read_changes(": changes,
    "source = slate_spark.read_changes(": replica,
    "prices = slate_spark.read(": join,
    "today = spark.read": batch_of_changes,
    "slate_spark.export_parquet(": export,
    "with slate_spark.reading_collection(": collections,
    "import os": notebook,
    "from slate_async import spark as slate_spark": databricks,
}
"""How the blocks begin that run here, in their order, and what runs them."""


def test_every_block_runs_but_those_that_cannot() -> None:
    for page in pages():
        name, text = str(page.relative_to(ROOT)), page.read_text(encoding="utf-8")
        assert name in PAGES or not any(example.in_spark for example in examples_of(name, text)), name
    marks = [(example.code, example.mark) for example in EXAMPLES if not example.in_spark]
    assert [(code[: len(begins)], mark) for (code, mark), (begins, _) in zip(marks, NOT_RUN, strict=True)] == NOT_RUN
    blocks = [example.code for example in EXAMPLES if example.in_spark]
    assert [code[: len(begins)] for code, begins in zip(blocks, BLOCKS, strict=True)] == list(BLOCKS)


@pytest.mark.parametrize("begins", BLOCKS, ids=lambda begins: begins.strip("( ").replace(" ", "-"))
def test_a_block_of_the_guide_runs(
    spark: SparkSession,
    begins: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)  # what a block changes is taken back
    [example] = [example for example in EXAMPLES if example.in_spark and example.code.startswith(begins)]
    BLOCKS[begins](Guide(spark, tmp_path, example, lambda: capsys.readouterr().out))
