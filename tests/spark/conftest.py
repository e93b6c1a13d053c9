"""One Spark session for all tests here, on two cores of this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.docs.examples import ROOT
from tests.engine import KINDS
from tests.slices import sample


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """``kind``: every way a database keeps its log in the long form, else this commit's. ``killed_at``: in which
    micro-batch a driver is killed; of the first one Spark has not written down where the query began."""
    full = metafunc.config.getoption("--full")
    if "kind" in metafunc.fixturenames:
        metafunc.parametrize("kind", KINDS if full else sample(KINDS, 1, "kind"), ids=str, scope="module")
    if "killed_at" in metafunc.fixturenames:
        metafunc.parametrize("killed_at", [0, 1] if full else sample([0, 1], 1, "killed at"))


LONG = ("test_demo", "test_memory")


@pytest.fixture
def in_turn(request: pytest.FixtureRequest, full: bool) -> None:
    """One of the modules `LONG` for each commit, all in the long form."""
    if not full and request.module.__name__.rpartition(".")[2] not in sample(LONG, 1, "long"):
        pytest.skip("runs with --full, and for other commits")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """``local[2]``; Python workers run this interpreter, and fail a task for good at its second failure. Nothing is
    registered: Spark finds the formats of this tree, whatever is installed."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    with pytest.MonkeyPatch.context() as patched:  # the JVM keeps the environment that it is started with
        patched.setenv("PYTHONPATH", str(ROOT / "slate_async" / "spark" / "discovery"), os.pathsep)
        session = _start()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def _start() -> SparkSession:
    return (
        SparkSession.builder.master("local[2, 2]")
        .appName("slate_async tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.execution.arrow.pyspark.enabled", "true")
        .getOrCreate()
    )
