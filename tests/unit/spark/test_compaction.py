"""What becomes of errors where a range is merged: with a context that runs tasks in this process."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("pyspark")

import slate_async as slate
from slate_async.engine.compaction.executor import MergeCounts
from slate_async.spark import SparkExecutor, compaction

DONE = pickle.dumps("a result")


class Context:
    """What of a SparkContext is asked for."""

    def __init__(self, lost: Exception | None = None) -> None:
        self.lost = lost
        self.tags: list[str] = []

    def addJobTag(self, tag: str) -> None:
        self.tags.append(tag)

    def removeJobTag(self, tag: str) -> None:
        self.tags.remove(tag)

    def setJobDescription(self, text: str) -> None:
        pass

    def parallelize(self, rows: list[int], slices: int) -> Any:
        def of(work: Callable[[Iterable[int]], Iterator[bytes]]) -> Any:
            def collect() -> list[bytes]:
                if self.lost is not None:
                    raise self.lost
                return list(work(rows))

            return SimpleNamespace(collect=collect)

        return SimpleNamespace(mapPartitions=of)


def executor(context: Context, path: Path) -> SparkExecutor:
    return SparkExecutor(cast(Any, SimpleNamespace(sparkContext=context)), str(path))


async def fill(path: Path) -> None:
    async with slate.open(path, settings=slate.Settings(auto_compaction=False)) as db:
        for value in (b"1", b"2"):
            await db.put(b"key", value)
            await db.flush(l0=True)


def damage_one(path: Path) -> str:
    """Flip a bit of an SST; its name."""
    sst = min(path.glob("sst/*.obj"))
    stored = bytearray(sst.read_bytes())
    stored[len(stored) // 3] ^= 1
    sst.write_bytes(stored)
    return str(sst)


async def compacted(path: Path, context: Context) -> int:
    with executor(context, path) as there:
        async with slate.open_compactor(path, executor=there, auto_compaction=False) as compactor:
            return await compactor.compact(full=True)


async def test_a_range_is_merged_and_counted(tmp_path: Path) -> None:
    await fill(tmp_path)
    context = Context()
    assert await compacted(tmp_path, context) == 1
    assert context.tags == []
    async with slate.open_reader(tmp_path) as reader:
        assert await reader.get(b"key") == b"2"


async def test_what_the_engine_raises_there_is_raised_here(tmp_path: Path) -> None:
    await fill(tmp_path)
    damaged = damage_one(tmp_path)
    with pytest.raises(slate.ClosedError) as told:
        await compacted(tmp_path, Context())
    assert isinstance(told.value.__cause__, slate.CorruptionError)
    assert told.value.__cause__.object_name in damaged


async def test_what_spark_raises_is_no_answer(tmp_path: Path) -> None:
    """The compactor waits then, and tries again."""
    context = Context(lost=RuntimeError("the executor was lost"))
    with executor(context, tmp_path) as there, pytest.raises(slate.UnavailableError, match="executor was lost"):
        await there.run(cast(Any, None), lambda counts: pytest.fail(f"{MergeCounts()} of nothing"))
    assert context.tags == []


async def test_workers_that_never_run_a_range_end_the_compactor(tmp_path: Path) -> None:
    context = Context(RuntimeError("no module named slate_async"))
    with executor(context, tmp_path) as there:
        for _ in range(compaction.FAILURES_IN_A_ROW - 1):
            with pytest.raises(slate.UnavailableError, match="no module named"):
                await there.run(cast(Any, None))
        with pytest.raises(slate.InvalidError, match=r"in a row.*import slate_async.*no module named"):
            await there.run(cast(Any, None))


async def test_a_range_that_runs_forgives_those_that_did_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_merge_there", lambda path, metastore, task: lambda rows: iter([DONE]))
    context = Context(RuntimeError("a machine is lost"))
    with executor(context, tmp_path) as there:
        for _ in range(3):
            for _ in range(compaction.FAILURES_IN_A_ROW - 1):
                with pytest.raises(slate.UnavailableError):
                    await there.run(cast(Any, None))
            context.lost, lost = None, context.lost
            await there.run(cast(Any, None))
            context.lost = lost
