"""The example of orders: what Spark computes from two collections at one time is the view that was kept."""

from __future__ import annotations

import asyncio
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.docs.examples import ROOT

pytestmark = pytest.mark.timeout(300)
EXAMPLE = ROOT / "docs" / "examples" / "orders"


async def test_spark_computes_the_view_of_the_example(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = tmp_path.as_uri()
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, str(EXAMPLE / "run.py"), "--seconds", "3", "--url", url],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-8000:]
    *_, last = map(int, re.findall(r"^at (\d+):", done.stdout, re.MULTILINE))
    monkeypatch.syspath_prepend(str(EXAMPLE))
    compare = importlib.import_module("spark_view").compare
    assert await asyncio.to_thread(compare, spark, url, last) >= 1
