"""The engine as Spark ships it to its workers: an archive of plain Python."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import slate_async

ROOT = Path(slate_async.__file__).parent.parent
WORK = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
import slate_async as slate
from slate_async.spark.worker import this_worker

async def work(environment):
    async with environment.open(sys.argv[2]) as db:
        await db.put(b"key", b"value")
        await db.flush(l0=True)
        return await db.get(b"key")

print(slate.__file__, this_worker().run(work))
"""


def test_it_works_from_an_archive(tmp_path: Path) -> None:
    """As `SparkContext.addPyFile` puts it on the path."""
    archive = tmp_path / "slate_async.whl"
    with zipfile.ZipFile(archive, "w") as packed:
        for package in ("slate_async", "metastores"):
            for file in (ROOT / package).rglob("*.py"):
                packed.write(file, file.relative_to(ROOT))
    command = [sys.executable, "-c", WORK, str(archive), str(tmp_path / "db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=tmp_path, check=False)
    assert done.stdout.split() == [str(archive / "slate_async" / "__init__.py"), "b'value'"], done.stderr
