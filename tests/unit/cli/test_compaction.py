"""``slate compact`` and ``slate compactor`` over the real engine on a local folder."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

import slate_async
from slate_async.spark import session
from tests.unit.cli.conftest import Run

COMMAND = [sys.executable, "-c", "from slate_async.cli import main; main()"]
SSTS = 5


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith("SLATE_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A database with `SSTS` SSTs in L0."""

    async def fill() -> None:
        async with slate_async.open(tmp_path / "db", settings=slate_async.Settings(auto_compaction=False)) as db:
            for number in range(SSTS):
                await db.put(b"k", b"%d" % number)
                await db.put(b"k%d" % number, b"v")
                await db.flush(l0=True)

    asyncio.run(fill())
    return str(tmp_path / "db")


def test_compact_full(slate: Run, path: str) -> None:
    done = slate("compact", "--full", path=path, options=("--json",))
    assert done.code == 0
    [told] = done.objects
    assert (told["compactions"], told["resumed"]) == (1, 0)
    assert (told["rows_in"], told["rows_out"]) == (2 * SSTS, SSTS + 1)
    assert (told["l0_ssts"], told["sorted_runs"]) == (0, 1)
    assert slate("get", "k", path=path).out == f"{SSTS - 1}\n"
    assert "compactions\t0" in slate("compact", path=path).out


def test_where_all_rows_are_in_the_log_it_says_so(slate: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "logged")
    assert slate("put", "k", "v", path=path).code == 0
    done = slate("compact", "--full", path=path)
    assert (done.code, "the log has 1 row," in done.err) == (0, True), done.err
    assert "compactions\t0" in done.out


def test_compact_a_range_and_a_level(slate: Run, path: str) -> None:
    assert slate("compact", "--range", "6b30", "6b32", "--hex", path=path, options=("--json",)).objects[0][
        "sorted_runs"
    ]
    assert slate("compact", "--level", "0", path=path).code == 0
    assert slate("scan", "--keys-only", path=path).out.split() == ["k", *(f"k{number}" for number in range(SSTS))]


@pytest.mark.parametrize(
    "wrong", [("--level", "7"), ("--full", "--level", "0"), ("--range", "b", "a"), ("--range", "zz", "zz", "--hex")]
)
def test_what_cannot_be_compacted_is_said_in_words(slate: Run, path: str, wrong: tuple[str, ...]) -> None:
    refused = slate("compact", *wrong, path=path)
    assert refused.code == 2
    assert refused.err.startswith("slate: ")


def test_there_is_nothing_to_compact_without_a_database(slate: Run, tmp_path: Path) -> None:
    assert slate("compact", path=str(tmp_path / "none")).code == 2


def test_spark_is_not_started_for_a_database_that_is_not_there(
    slate: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_start", started := Mock())
    refused = slate("compact", "--executor", "spark", path=str(tmp_path / "none"))
    assert (refused.code, "there is no database" in refused.err, started.called) == (2, True, False), refused.err


JVM_ERROR = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: org.apache.spark.SparkException: Could not parse Master URL: 'local[x]'
\tat org.apache.spark.SparkContext$.org$apache$spark$SparkContext$$createTaskScheduler(SparkContext.scala:3406)
\tat org.apache.spark.SparkContext.<init>(SparkContext.scala:615)
"""


def test_why_spark_does_not_start_is_one_line(slate: Run, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_start", Mock(side_effect=RuntimeError(JVM_ERROR)))
    refused = slate("compact", "--full", "--executor", "spark", "--master", "local[x]", path=path)
    assert refused.code == 2
    cause = "org.apache.spark.SparkException: Could not parse Master URL: 'local[x]'"
    assert refused.err.splitlines() == ["starting Spark", f"slate: Spark did not start: {cause}"]


def test_without_the_extra_it_says_what_spark_needs(slate: Run, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("slate_async.spark")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    refused = slate("compactor", "--executor", "spark", path=path)
    assert (refused.code, "pip install 'slate-async[spark]'" in refused.err) == (2, True), refused.err


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("--master", "local[2]"), "belong to --executor spark"),
        (("--executor", "spark", "--spark-conf", "spark.ui.enabled"), "NAME=VALUE"),
    ],
)
def test_options_of_spark_are_checked_before_it_is_started(
    slate: Run, path: str, wrong: tuple[str, ...], said: str
) -> None:
    refused = slate("compact", *wrong, path=path)
    assert (refused.code, said in refused.err) == (2, True), refused.err


@pytest.mark.parametrize(("end", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_compactor_runs_until_a_signal_ends_it(path: str, end: signal.Signals, code: int) -> None:
    with subprocess.Popen(
        [*COMMAND, "--json", "--path", path, "compactor"], stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if '"kind":"committed"' in line:
                break
        running.send_signal(end)
        assert running.wait(30) == code


def test_a_compactor_that_is_fenced_says_so(path: str) -> None:
    with subprocess.Popen(
        [*COMMAND, "--path", path, "compactor"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as older:
        assert older.stdout is not None
        assert older.stderr is not None
        begun = older.stdout.readline()
        assert begun.startswith("begun ")
        assert " to a sorted run" in begun
        with subprocess.Popen([*COMMAND, "--path", path, "compactor"], stderr=subprocess.DEVNULL) as newer:
            assert older.wait(60) == 5
            said = older.stderr.read()
            assert "compactor epoch 2 took over" in said
            assert "writer" not in said
            newer.terminate()
