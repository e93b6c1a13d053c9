"""The first example of the guide on Spark, run twice: no writer is waited for, neither time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import slate_async as slate
from slate_async import spark as slate_spark
from slate_async.engine.ingest.watch import WriterWatch
from slate_async.storage.liveness.observer import WriterLife
from tests.docs.examples import ROOT, examples_of, run_story

pytestmark = pytest.mark.timeout(300)
PAGE = "docs/guide/spark.md"
SHOWN = "|age|count|"


class Waits:
    """What the drivers of this process found of writers, and how often one began to wait for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: list[WriterLife] = []
        self.count = 0
        look, pause_s = WriterWatch.look, WriterWatch.pause_s.fget
        assert pause_s is not None

        async def looked(watch: WriterWatch) -> WriterLife:
            self.found.append(await look(watch))
            return self.found[-1]

        def paused(watch: WriterWatch) -> float:
            self.count += 1
            return pause_s(watch)

        monkeypatch.setattr(WriterWatch, "look", looked)
        monkeypatch.setattr(WriterWatch, "pause_s", property(paused))


async def test_the_first_example_waits_for_no_writer_when_it_runs_again(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    record_property: Callable[[str, object], None],
) -> None:
    examples = examples_of(PAGE, (ROOT / PAGE).read_text(encoding="utf-8"))
    first = next(example for example in examples if "slate_spark.bulk_load(" in example.code)
    path = str(tmp_path / "people")  # Spark's processes work in the folder in which its JVM has begun
    first = replace(first, code=first.code.replace('"data/people"', repr(path)))
    waits, seconds, looks = Waits(monkeypatch), list[float](), list[int]()
    for _ in range(2):
        began = time.perf_counter()
        await asyncio.to_thread(run_story, [first], tmp_path)
        seconds.append(time.perf_counter() - began)
        looks.append(len(waits.found))
    printed = capfd.readouterr().out
    record_property("seconds of the first example, run twice", seconds)
    print(f"the first example took {seconds[0]:.1f} s, and {seconds[1]:.1f} s when it ran again")
    assert printed.count(SHOWN) == 2, printed
    assert waits.count == 0
    assert looks[0] > 0
    assert all(life.free for life in waits.found)

    async with slate.open(path):  # such a load waits for its writer, and that is counted
        rows = spark.createDataFrame([(b"user:000003", b"{}")], "key binary, value binary")
        await asyncio.to_thread(slate_spark.bulk_load, rows, path)
    assert waits.count > 0
