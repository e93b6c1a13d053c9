"""The commands of bulk ingests, over the real engine on a local folder."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import slate_async as engine
from tests.engine import abandon
from tests.unit.cli.conftest import Run

ROWS = pa.table(
    {"value": ["1", None, "3"], "key": ["b", "a", "c"], "op": ["put", "delete", "put"], "besides": [1, 2, 3]}
)


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith("SLATE_")]:
        monkeypatch.delenv(name)


def die_as_writer(path: str) -> None:
    """Open the database to write, and leave it so."""

    async def die() -> None:
        await abandon(await engine.open(path))

    asyncio.run(die())


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
    as_json = {"path": path, "options": ("--json",)}
    assert [job["state"] for job in slate("list-ingests", **as_json).objects] == ["aborted"]
    [waiting] = slate("ingest", str(file), "--sort", "--no-wait", "--job", "nightly", **as_json).objects
    assert (waiting["job_id"], waiting["state"], waiting["rows"], waiting["deletes"]) == ("nightly", "pending", 2, 1)
    [done] = slate("ingest", str(file), "--sort", "--job", "nightly", **as_json).objects
    assert done["state"] == "applied"
    assert slate("scan", path=path).out.splitlines() == ["b\t1", "c\t3"]
    listed = slate("list-ingests", **as_json).objects
    assert {job["job_id"]: job["state"] for job in listed}["nightly"] == "applied"


def test_streams_are_listed_and_forgotten(slate: Run, path: str) -> None:
    async def count() -> None:
        async with engine.open_ingest(path, job_id="one") as job:
            await job.commit(batch=("web", 4, "query 1"))

    asyncio.run(count())
    as_json = {"path": path, "options": ("--json",)}
    assert slate("list-streams", **as_json).objects == [{"app_id": "web", "batch_id": 4, "query_id": "query 1"}]
    assert "query 1" in slate("list-streams", path=path).out
    unknown = slate("forget-stream", "wep", path=path)
    assert (unknown.code, "list-streams" in unknown.err) == (2, True)
    assert slate("forget-stream", "web", path=path).code == 0
    assert slate("list-streams", **as_json).objects == []


def test_an_arrow_file_is_aborted(slate: Run, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "rows.feather"
    pyarrow.feather.write_feather(ROWS.sort_by("key"), str(file))
    assert slate("ingest", str(file), "--job", "mistake", "--no-wait", path=path).code == 0
    [gone] = slate("abort-ingest", "mistake", path=path, options=("--json",)).objects
    assert gone["state"] == "aborted"
    assert slate("get", "a", path=path).out == "before\n"
    assert slate("abort-ingest", "unknown", path=path).code == 2
    nowhere = slate("abort-ingest", "unknown", path=f"{path}-of-nothing")
    assert nowhere.code == 2
    assert f"there is no database at {path}-of-nothing; " in nowhere.err.replace("file://", "")
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


def test_what_was_applied_is_not_aborted(slate: Run, path: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    pq.write_table(ROWS.sort_by("key"), file)
    [done] = slate("ingest", str(file), "--job", "first", "--exclusive", path=path, options=("--json",)).objects
    refused = slate("abort-ingest", "first", path=path)
    assert (refused.code, refused.out) == (5, "")
    expected = f"ingest 'first' was applied, with sequence number {done['seq']}: its 3 rows stay"
    assert refused.err == f"slate: {expected}\n"
    told = json.loads(slate("abort-ingest", "first", path=path, options=("--json",)).err)
    assert told == {"error": "ConflictError", "message": expected, "outcome": "not_applied", "exit_code": 5}


def test_without_a_writer_the_command_becomes_it(slate: Run, path: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    pq.write_table(ROWS.sort_by("key"), file)
    for _ in range(2):
        [done] = slate("ingest", str(file), path=path, options=("--json",)).objects
        assert (done["state"], done["rows"]) == ("applied", 2)


def test_what_no_writer_applies_in_time_waits(slate: Run, path: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    pq.write_table(ROWS.sort_by("key"), file)
    die_as_writer(path)
    unnamed = slate("ingest", str(file), "--timeout", "1ms", path=path, options=("--json",))
    told = json.loads(unnamed.err)
    assert (told["error"], told["outcome"], unnamed.code) == ("UnavailableError", "not_applied", 3)
    late = slate("ingest", str(file), "--job", "nightly", "--timeout", "1ms", path=path)
    assert late.code == 7
    assert "--job nightly --exclusive" in late.err
    assert "abort-ingest nightly" in late.err
    assert "did not answer" not in late.err
    again = slate("ingest", str(file), "--job", "nightly", "--timeout", "1ms", path=path, options=("--json",))
    assert json.loads(again.err)["error"] == "IngestPendingError"


def test_only_what_is_known_of_a_job_is_shown(slate: Run, path: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    pq.write_table(ROWS.sort_by("key"), file)
    as_json = {"path": path, "options": ("--json",)}
    [pending] = slate("ingest", str(file), "--job", "one", "--no-wait", **as_json).objects
    assert (pending["rows"], pending["ssts"], "seq" in pending) == (2, 1, False)
    [aborted] = slate("abort-ingest", "one", **as_json).objects
    assert not {"rows", "deletes", "ssts", "size", "seq"} & aborted.keys()
    [applied] = slate("ingest", str(file), "--job", "two", "--exclusive", **as_json).objects
    assert (applied["rows"], applied["deletes"], applied["ssts"], applied["size"]) == (2, 1, 1, pending["size"])
    shown = {line.split("\t")[0]: line.split("\t")[1:5] for line in slate("list-ingests", path=path).out.splitlines()}
    assert shown == {"one": ["aborted", "-", "-", "-"], "two": ["applied", "2", "1", str(applied["seq"])]}


@pytest.mark.parametrize("name", ["rows.parquet", "rows.arrow"])
def test_the_error_of_a_file_without_keys_names_what_it_lacks(slate: Run, path: str, tmp_path: Path, name: str) -> None:
    file, rows = tmp_path / name, pa.table({"id": ["a"], "value": ["1"]})
    if file.suffix == ".parquet":
        pq.write_table(rows, file)
    else:
        pyarrow.feather.write_feather(rows, str(file))
    refused = slate("ingest", str(file), "--sort", path=path)
    assert refused.code == 2
    assert "has no column 'key'; it has 'id', 'value'" in refused.err
    assert slate("list-ingests", path=path).out == ""


def test_a_file_replaces_what_is_there(slate: Run, path: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"key": ["b"], "value": ["1"]}), file)
    [done] = slate("ingest", str(file), "--replace", "--exclusive", path=path, options=("--json",)).objects
    assert (done["state"], done["rows"], done["deletes"]) == ("applied", 1, 1)
    assert slate("scan", path=path).out.splitlines() == ["b\t1"]
    assert slate("verify", path=path).code == 0
    begun = slate("ingest", str(file), "--job", "adds", "--no-wait", path=path)
    assert begun.code == 0
    refused = slate("ingest", str(file), "--job", "adds", "--replace", "--no-wait", path=path)
    assert refused.code == 2
    assert "'adds' adds rows, and was begun so; one that replaces needs another job id" in refused.err
