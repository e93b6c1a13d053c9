"""What SQL alone can do: the statements of the guide, as they stand there."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import slate_async as slate
from tests.docs.examples import ROOT

pytestmark = pytest.mark.timeout(300)
GUIDE = ROOT / "docs" / "guide" / "spark.md"
SQL = re.compile(r"^```sql\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def statements(path: Path) -> list[str]:
    """Those of the guide, on the database at ``path``."""
    (block,) = SQL.findall(GUIDE.read_text(encoding="utf-8"))
    assert "s3://bucket/people" in block
    return [part.strip() for part in block.replace("s3://bucket/people", str(path)).split(";") if part.strip()]


async def put_people(path: Path) -> None:
    async with slate.open(path) as db:
        for number in range(9):
            value = json.dumps({"name": f"n{number}", "age": 15 + number}).encode()
            await db.put(b"user:%d" % number, value, await_durable=False)


async def stored(path: Path) -> dict[bytes, bytes]:
    async with slate.open_reader(path, pin=False) as reader:
        return {key: value async for key, value in reader.scan()}


def test_the_statements_of_the_guide_run(spark: SparkSession, tmp_path: Path) -> None:
    asyncio.run(put_people(tmp_path))
    spark.range(9, 40, 1, 3).selectExpr(
        "concat('user:', id) AS key", "concat('n', id) AS name", "CAST(15 + id AS int) AS age"
    ).createOrReplaceTempView("newcomers")
    view, query, insert = statements(tmp_path)
    spark.sql(view)
    ages = {row.age: row["count(1)"] for row in spark.sql(query).collect()}
    assert ages == dict.fromkeys(range(18, 24), 1)
    with pytest.raises(PySparkException, match="overlap"):
        spark.sql(insert.removesuffix("ORDER BY key"))
    spark.sql(insert)
    rows = asyncio.run(stored(tmp_path))
    assert len(rows) == 40
    assert json.loads(rows[b"user:39"]) == {"name": "n39", "age": 54}
    assert spark.table("people").count() == 9, "a view stays at the state of its first query"
    spark.sql(view)
    assert spark.table("people").count() == 40


def test_a_view_of_changes(spark: SparkSession, tmp_path: Path) -> None:
    asyncio.run(put_people(tmp_path))
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW people_changes USING `slate-changes`"
        f" OPTIONS (path '{tmp_path}', startingSeq 'beginning')"
    )
    rows = spark.sql("SELECT op, count(*) AS n FROM people_changes GROUP BY op").collect()
    assert [(row.op, row.n) for row in rows] == [("put", 9)]


def test_rows_are_not_changed_by_statements(spark: SparkSession, tmp_path: Path) -> None:
    asyncio.run(put_people(tmp_path))
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW fixed USING slate OPTIONS (path '{tmp_path}')")
    for statement in (
        "DELETE FROM fixed WHERE seq = 1",
        "UPDATE fixed SET value = key",
        "MERGE INTO fixed USING fixed AS more ON fixed.key = more.key WHEN MATCHED THEN DELETE",
    ):
        with pytest.raises(PySparkException, match=r"UPDATE TABLE|MERGE INTO TABLE|deletes"):
            spark.sql(statement)
    assert len(asyncio.run(stored(tmp_path))) == 9


def test_a_table_whose_columns_spark_asks_for_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    for kind, provider in (("TABLE", "slate"), ("EXTERNAL TABLE", "`slate-changes`")):
        with pytest.raises(PySparkException, match=r"CREATE TABLE makes none of slate: .* CREATE TEMPORARY VIEW"):
            spark.sql(f"CREATE {kind} refused USING {provider} OPTIONS (path '{tmp_path}')")
        assert not spark.catalog.tableExists("refused")


def test_queries_of_a_table_name_its_path(spark: SparkSession, tmp_path: Path) -> None:
    """Spark asks nobody before it makes a table of given columns, and hands none of its options on."""
    asyncio.run(put_people(tmp_path))
    insert = "INSERT INTO kept {} VALUES (CAST('user:9' AS binary), CAST('{{}}' AS binary))"
    spark.sql(f"CREATE TABLE kept (key binary, value binary) USING slate OPTIONS (path '{tmp_path}')")
    try:
        for statement in ("SELECT * FROM kept", insert.format("")):
            with pytest.raises(PySparkException, match=r"option path is missing: .* CREATE TEMPORARY VIEW"):
                spark.sql(statement).collect()
        named = f"WITH (path = '{tmp_path}')"
        spark.sql(insert.format(named))
        assert spark.sql(f"SELECT count(*) FROM kept {named}").first() == (10,)
    finally:
        spark.sql("DROP TABLE kept")
    assert len(asyncio.run(stored(tmp_path))) == 10
