"""``scripts/spark-demo``, on a few thousand rows: it comes to its end, and finds everything right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.processes import ChildProcess

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("in_turn")]
LIMIT_S = 600.0
JUDGED = [
    "Spark reads what was loaded",
    "db.scan reads what was loaded",
    "the copy is equal",
    "the copy has each micro-batch once, in order",
    "verify finds nothing wrong with the copy",
    "the compacted database is equal",
    "verify finds nothing wrong with the source",
    "the files are equal",
]


async def test_the_demo_runs_and_judges_everything_right(tmp_path: Path, full: bool) -> None:
    """Its streaming driver is killed in the long form; `tests.spark.test_cluster` kills one, too."""
    kills = 2 if full else 0
    command = ["scripts/spark_demo.py", "--rows", "3000", "--kills", f"{kills}", "--folder", str(tmp_path / "demo")]
    async with ChildProcess(command) as demo:
        assert await demo.wait(timeout=LIMIT_S) == 0, demo.stderr_tail()
        print(*demo.received, sep="\n")
        judged = [line.split(": ") for line in demo.received if line.endswith((": yes", ": NO"))]
        assert judged == [[what, "yes"] for what in JUDGED]
        assert len([line for line in demo.received if "was killed" in line]) == kills
        starts = [line for line in demo.received if ": its start" in line]
        assert len(starts) == kills + 1
        assert "\tat " not in demo.stderr_tail()  # no trace of the JVM's
