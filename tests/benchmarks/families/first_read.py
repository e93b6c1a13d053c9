"""Spark on two cores: the first read of a session, a process and a JVM of its own for each subject and round."""

from __future__ import annotations

import asyncio
import compileall
import json
import sys
from pathlib import Path

from tests.benchmarks.family import Family
from tests.benchmarks.goals import OURS, Goal
from tests.benchmarks.rounds import Turn, folder, require
from tests.benchmarks.spark_rows import SparkRows

PARQUET, NOTHING = "parquet", "a format in Python of one row"
FIRST, SECOND, PROCESSOR = "first read of a session", "second read of a session", "processor time of the first read"
ROOT = Path(__file__).resolve().parents[3]


async def measure(turn: Turn, subject: str, argument: str, path: str) -> None:
    """In a fresh process."""
    command = ["-m", "tests.benchmarks.spark_first_read", argument, path]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    said, _ = await process.communicate()
    require(process.returncode == 0, subject, "a session")
    found = json.loads(said.decode().splitlines()[-1])
    for what, seconds in zip((FIRST, SECOND), found["seconds"], strict=True):
        turn.record(what, subject, seconds, "s")
    turn.record(PROCESSOR, subject, sum(found["processor"].values()), "s")
    for part, seconds in found["processor"].items():
        turn.record(f"{PROCESSOR}: {part}", subject, seconds, "s")


async def one_round(turn: Turn) -> None:
    for package in ("slate_async", "metastores"):  # as they are where they were installed
        await asyncio.to_thread(compileall.compile_dir, ROOT / package, quiet=1)
    with folder() as path:
        rows = SparkRows(Path(path), turn.plan.choose(2_000, 200_000, 200_000))
        await rows.make(turn.number)
        subjects = [
            (OURS, "slate", rows.at("one")),
            (PARQUET, "parquet", rows.at("sorted")),
            (NOTHING, "nothing", path),
        ]
        for subject, argument, place in turn.in_order(subjects):
            await measure(turn, subject, argument, place)


FAMILY = Family(
    "first-read",
    "Spark: the first read of a session",
    (
        Goal(5, FIRST, 1.2, (FIRST, NOTHING), most=True),
        Goal(5, PROCESSOR, 1.2, (PROCESSOR, NOTHING), most=True),
    ),
    one_round,
    notes=(
        "200,000 rows, to Spark's noop sink. The session has started; what it has to import counts.",
        "Spark starts a Python process to look for formats, one to make the source, one to plan, and those of tasks.",
        "The format of one row shows what these cost by themselves; it reads no rows.",
    ),
    most_rounds=3,
)
