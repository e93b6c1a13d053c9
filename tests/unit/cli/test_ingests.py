"""The commands of bulk ingests, over the real engine on a local folder."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from tests.unit.cli.conftest import Run

ROWS = pa.table(
    {"value": ["1", None, "3"], "key": ["b", "a", "c"], "op": ["put", "delete", "put"], "besides": [1, 2, 3]}
)


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith("SLATE_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def path(slate: Run, tmp_path: Path) -> str:
    """A database with one row, and no writer."""
    found = str(tmp_path / "db")
    assert slate("put", "a", "before", path=found).code == 0
    return found


def test_a_parquet_file_without_a_writer(slate: Run, path: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    pq.write_table(ROWS, file)
    unsorted = slate("ingest", str(file), path=path)
    assert unsorted.code == 2
    assert "row 1" in unsorted.err
    json = {"path": path, "options": ("--json",)}
    assert [one["state"] for one in slate("list-ingests", **json).objects] == ["withdrawn"]
    [waiting] = slate("ingest", str(file), "--sort", "--no-wait", "--job", "nightly", **json).objects
    assert (waiting["job_id"], waiting["state"], waiting["rows"]) == ("nightly", "pending", 3)
    late = slate("ingest", str(file), "--sort", "--job", "nightly", "--timeout", "1ms", path=path)
    assert late.code != 0
    assert "exclusive" in late.err
    [done] = slate("ingest", str(file), "--sort", "--job", "nightly", "--exclusive", **json).objects
    assert done["state"] == "admitted"
    assert slate("scan", path=path).out.splitlines() == ["b\t1", "c\t3"]
    listed = slate("list-ingests", **json).objects
    assert {one["job_id"]: one["state"] for one in listed}["nightly"] == "admitted"


def test_an_arrow_file_is_withdrawn(slate: Run, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "rows.feather"
    pyarrow.feather.write_feather(ROWS.sort_by("key"), str(file))
    assert slate("ingest", str(file), "--job", "mistake", "--no-wait", path=path).code == 0
    [gone] = slate("withdraw-ingest", "mistake", path=path, options=("--json",)).objects
    assert gone["state"] == "withdrawn"
    assert slate("get", "a", path=path).out == "before\n"
    assert slate("withdraw-ingest", "unknown", path=path).code == 2
    [orphan] = slate("list-orphans", path=path, options=("--json",)).objects
    assert (orphan["job_id"], orphan["named"]) == ("mistake", False)
    assert (Path(path) / f"{orphan['key']}.obj").stat().st_size >= orphan["size"]
    assert slate("list-orphans", "--job", "another", path=path, options=("--json",)).objects == []
    for name in ("SLATE_GC_MIN_AGE_MS", "SLATE_GC_CLOCK_SKEW_MS"):
        monkeypatch.setenv(name, "0")
    assert slate("gc", "--once", path=path).code == 0
    assert slate("list-orphans", "--all", path=path, options=("--json",)).objects == []


def test_what_cannot_be_read_is_said(slate: Run, path: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    assert "there is no file" in slate("ingest", str(file), path=path).err
    file.write_bytes(b"no parquet")
    assert slate("ingest", str(file), path=path).code == 2
