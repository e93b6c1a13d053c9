"""The command over the real engine on a local folder."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import slate_async
from tests.unit.cli.conftest import Run

COMMAND = [sys.executable, "-c", "from slate_async.cli import main; main()"]


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith("SLATE_")]:
        monkeypatch.delenv(name)


def test_a_database_through_its_life(slate: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "db")
    missing = slate("get", "k", path=path)
    assert (missing.code, "no database" in missing.err) == (2, True)
    assert "check --path and --metastore; `slate put` makes one" in missing.err
    assert "create=True" not in missing.err
    assert slate("put", "user:1", "Ann", path=path).code == 0
    assert slate("put", "--hex", "ff00", "1b", path=path).code == 0
    assert slate("get", "user:1", path=path).out == "Ann\n"
    assert slate("scan", path=path).out == "user:1\tAnn\nb'\\xff\\x00'\tb'\\x1b'\n"
    assert slate("scan", "--reverse", "--limit", "1", "--hex", path=path).out == "ff00\t1b\n"
    assert "name that one with --metastore" in slate("get", "k", path=path, options=("--metastore", "if-match")).err
    assert "one of --full, --range and --level" in slate("compact", "--full", "--level", "0", path=path).err
    assert slate("delete", "user:1", path=path).code == 0
    assert slate("get", "user:1", path=path).code == 1
    status = slate("status", "--metrics", path=path, options=("--json",)).objects[0]
    assert (status["state"], status["following"], status["last_seq"]) == ("open", True, 3)
    assert status["metrics"]["manifest.commits"] == 0
    assert (status["writer"]["state"], status["writer"]["epoch"]) == ("closed", 3)


def test_commands_that_only_look_disturb_no_writer(tmp_path: Path) -> None:
    path = str(tmp_path / "db")
    command = [*COMMAND, "--path", path]

    async def look_while_writing() -> list[str]:
        async with slate_async.open(path) as database:
            await database.put(b"k", b"v")
            looks = [("get", "k"), ("scan",), ("scan", "--no-pin"), ("status", "--json")]
            done = [await asyncio.to_thread(subprocess.check_output, [*command, *look], text=True) for look in looks]
            await database.put(b"k", b"w")
            assert database.status().state == "open"
        return done

    got, scanned, unpinned, status = asyncio.run(look_while_writing())
    assert (got, scanned, unpinned) == ("v\n", "k\tv\n", "k\tv\n")
    assert json.loads(status)["last_seq"] == 1


def test_status_shows_what_the_writers_requests_come_to(
    slate: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "db")

    def writer() -> dict[str, Any]:
        found: dict[str, Any] = slate("status", path=path, options=("--json",)).objects[0]["writer"]
        return found

    def beating(interval_ms: int) -> slate_async.Settings:
        return slate_async.Settings(heartbeat_interval_ms=interval_ms)

    def awaited(words: str) -> dict[str, Any]:
        deadline = time.monotonic() + 60
        while words not in (found := writer())["estimate"]:
            assert time.monotonic() < deadline, found
        return found

    with slate_async.sync.open(path, settings=beating(0)):
        assert "beats are off" in writer()["estimate"]
    assert "no writer" in writer()["estimate"]
    with slate_async.sync.open(path, settings=beating(60_000)):
        found = writer()
        assert "first beat" in found["estimate"]
        assert (found["monthly_requests"], found["monthly_dollars"]) == (None, None)
    with slate_async.sync.open(path, settings=beating(200)) as database:
        database.put(b"k", b"v")
        monkeypatch.setattr("slate_async.objectstore.costs.SHORTEST_S", 1e9)
        awaited("counted for 10 s")
        monkeypatch.setattr("slate_async.objectstore.costs.SHORTEST_S", 0.0)
        found = awaited("the writer's own, as of its last beat, ")
        assert found["monthly_requests"]["puts"] > 0
        assert found["monthly_dollars"] > 0
        assert "writer.monthly_dollars\t" in slate("status", path=path).out


def test_status_counts_the_checkpoints_that_are_listed(slate: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "db")
    assert slate("put", "k", "v", path=path).code == 0
    for _ in range(2):
        assert slate("create-checkpoint", path=path).code == 0
    listed = slate("list-checkpoints", path=path).out.splitlines()
    status = slate("status", path=path, options=("--json",)).objects[0]
    assert (status["checkpoints"], status["own_checkpoints"]) == (len(listed), 0)
    assert len(listed) >= 2


def test_load_and_scan_back(slate: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "db")
    file = tmp_path / "rows.csv"
    file.write_text("id,v\n" + "".join(f"{i:05d},value {i}\n" for i in range(3_000)) + "broken\n")
    loaded = slate("load", str(file), "--key", "id", "--value", "v", path=path, options=("--json",))
    assert (loaded.code, loaded.objects[0]["loaded"], loaded.objects[0]["bad_rows"]) == (1, 3_000, 1)
    assert slate("scan", path=path).out == "".join(f"{i:05d}\tvalue {i}\n" for i in range(3_000))


def test_demo(slate: Run) -> None:
    result = slate("demo", "--rows", "300", path=None)
    assert result.code == 0, result.err
    assert result.out.count("all there") == 3


def test_a_folder_that_holds_something_else_and_bad_urls_are_usage_errors(slate: Run, tmp_path: Path) -> None:
    (tmp_path / "letter.obj").write_text("Dear Ann")
    refused = slate("put", "k", "v", path=str(tmp_path))
    assert refused.code == 2
    assert "holds 'letter', which is not a database's; choose an empty path" in refused.err
    secret = slate("get", "k", path="s3://me:hunter2@bucket/db")
    assert secret.code == 2
    assert "hunter2" not in secret.err + secret.out


def test_a_folder_may_hold_files_of_others(slate: Run, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear Ann")
    assert slate("put", "k", "v", path=str(tmp_path)).code == 0
    assert slate("get", "k", path=str(tmp_path)).out == "v\n"
    assert (tmp_path / "letter.txt").read_text() == "Dear Ann"


def test_a_table_made_by_the_command_holds_a_database(
    slate: Run, tmp_path: Path, s3_endpoint: str, aws_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_endpoint)
    options = ("--metastore", "dynamodb://of-the-command")
    path = str(tmp_path / "db")
    missing = slate("put", "k", "v", path=path, options=options)
    assert (missing.code, "slate admin create-table" in missing.err) == (2, True), missing.err
    made = slate("admin", "create-table", "of-the-command", "--endpoint-url", s3_endpoint, path=None)
    assert made.code == 0, made.err
    assert slate("put", "k", "v", path=path, options=options).code == 0
    assert slate("get", "k", path=path, options=options).out == "v\n"
    elsewhere = slate("get", "k", path=path)
    assert elsewhere.code == 2, "without its metastore the database is not found"


def test_the_process_itself(tmp_path: Path) -> None:
    command = [*COMMAND, "--path", str(tmp_path / "db")]
    assert subprocess.run([*command, "put", "k", "v"], check=False).returncode == 0
    done = subprocess.run([*command, "get", "k"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "v\n", "")


ENDS = [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]


@pytest.mark.parametrize(("number", "code", "says"), ENDS)
def test_ctrl_c_and_sigterm_end_cleanly(tmp_path: Path, number: int, code: int, says: str) -> None:
    file, folder = tmp_path / "rows.csv", tmp_path / "db"
    file.write_text("id,v\n" + "".join(f"{i},v\n" for i in range(500_000)))
    command = [*COMMAND, "--path", str(folder), "load", str(file), "--key", "id", "--concurrency", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not any(folder.glob("log/*")):
        time.sleep(0.01)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert re.search(r"broken off: [\d,]+ rows are durable", err)
    assert says in err
    assert "Traceback" not in err + out


@pytest.mark.parametrize(("number", "code", "says"), ENDS)
def test_a_load_that_waits_for_its_input_can_be_ended(tmp_path: Path, number: int, code: int, says: str) -> None:
    command = [*COMMAND, "--path", str(tmp_path / "db"), "load", "-", "--format", "csv", "--key", "id", "--json"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    process.stdin.write("id,v\n" + "".join(f"{i},v\n" for i in range(600)))
    process.stdin.flush()
    while process.poll() is None and not any((tmp_path / "db").glob("log/*")):
        time.sleep(0.01)  # the first 500 rows are in; the others wait for their batch to fill
    process.send_signal(number)
    assert process.wait(timeout=60) == code
    assert process.stderr is not None
    broken, error = map(json.loads, process.stderr.read().splitlines())
    assert (broken["broken_off"], broken["bad_rows"]) == (True, 0)
    assert (error["error"], error["exit_code"]) == ("Interrupted", code)
    for stream in (process.stdin, process.stdout, process.stderr):
        assert stream is not None
        stream.close()


def test_load_from_a_pipe_and_from_a_redirected_file(tmp_path: Path) -> None:
    command = [*COMMAND, "--path", str(tmp_path / "db")]
    body = "".join(f'{{"id":{i:04d}}}\n'.replace(":0", ":1") for i in range(1_500))
    loading = [*command, "load", "-", "--format", "jsonl", "--key", "id", "--json"]
    piped = subprocess.run(loading, input=body, capture_output=True, text=True, check=False)
    assert (piped.returncode, json.loads(piped.stdout)["loaded"]) == (0, 1_500), piped.stderr
    file = tmp_path / "rows.csv"
    file.write_text("\ufeffid,v\n1,a\nbad\n")
    with file.open() as redirected:
        loading = [*command, "load", "-", "--format", "csv", "--key", "id"]
        done = subprocess.run(loading, stdin=redirected, capture_output=True, text=True, check=False)
    assert (done.returncode, "line 3: 1 fields" in done.stderr) == (1, True)
