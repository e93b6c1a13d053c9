"""``slate gc`` over the real engine on a local folder."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from slate_async import BlockingCompaction, GcReport
from slate_async.cli.gc import deeds, summary
from tests.unit.cli.conftest import Run

COMMAND = [sys.executable, "-c", "from slate_async.cli import main; main()"]


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith("SLATE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SLATE_GC_MIN_AGE_MS", "0")
    monkeypatch.setenv("SLATE_VERSION_KEEP_MS", "0")


@pytest.fixture
def path(slate: Run, tmp_path: Path) -> str:
    """A database opened a few times, so with old manifest versions."""
    made = str(tmp_path / "db")
    for value in "abc":
        assert slate("put", "k", value, path=made).code == 0
    return made


def orphan(path: str) -> Path:
    """An SST that nothing names, made for version 1."""
    there = Path(path, "sst", f"{1:020}.{'0' * 32}.sst.obj")
    there.parent.mkdir(exist_ok=True)
    donor = next(Path(path, "log").iterdir())
    there.write_bytes(donor.read_bytes())
    return there


def versions(path: str) -> int:
    return len([name for name in os.listdir(Path(path, "manifest")) if name.endswith(".manifest.obj")])


def test_a_dry_run_lists_and_changes_nothing(slate: Run, path: str) -> None:
    left, before = orphan(path), versions(path)
    listed = slate("gc", "--dry-run", path=path)
    assert listed.code == 0
    assert re.search(rf"^sst/{1:020}\.0+\.sst\t\d+\tno manifest version", listed.out, re.MULTILINE)
    *objects, summary = slate("gc", "--dry-run", path=path, options=("--json",)).objects
    assert [garbage["key"] for garbage in objects] == [f"sst/{1:020}.{'0' * 32}.sst"]
    assert (summary["dry_run"], summary["objects"]) == (True, 1)
    assert left.exists()
    assert versions(path) == before


def test_once(slate: Run, path: str, tmp_path: Path) -> None:
    left, other = orphan(path), str(tmp_path / "other")
    slate("put", "k", "v", path=other)
    first, second = slate("gc", "--once", other, path=path, options=("--json",)).objects
    assert {first["path"], second["path"]} == {path, other}
    assert first["objects"] + second["objects"] == 1
    assert not left.exists()
    assert versions(path) <= 3
    assert slate("get", "k", path=path).out == "c\n"


def test_an_abandoned_compaction_is_in_the_summary() -> None:
    holding = BlockingCompaction(UUID(int=7), 12, 0)
    shown = summary("db", GcReport(False, 20, 12, (), 0, (), 1, False, blocked_by=(holding,)))
    [said] = shown["blocked_by"]
    assert all(part in said for part in (str(holding.id), "1970-01-01T00:00:00", "`slate compact`"))


def test_a_round_is_reported_in_words_if_it_did_anything() -> None:
    idle = GcReport(False, 20, 12, (), 0, (), 1, False)
    assert deeds(idle) == []
    busy = replace(idle, manifest_versions=1, abandoned=("memory://clone",), detached=True, removed=True)
    assert deeds(busy) == [
        "deleted 0 objects of 0 bytes and 1 manifest version",
        "removed clones that were never finished: memory://clone",
        "detached from its parents",
        "removed for good, as it was destroyed",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--once or --interval"),
        (("--once", "--interval", "1s"), "--once or --interval"),
        (("--dry-run", "--interval", "1s"), "--dry-run"),
        (("--interval", "soon"), "--interval"),
    ],
)
def test_wrong_calls(slate: Run, path: str, arguments: tuple[str, ...], said: str) -> None:
    done = slate("gc", *arguments, path=path)
    assert (done.code, said in done.err) == (2, True)


def test_a_missing_database(slate: Run, tmp_path: Path) -> None:
    done = slate("gc", "--once", path=str(tmp_path / "none"))
    assert (done.code, "no database" in done.err) == (2, True)
    assert not (tmp_path / "none").exists()


def test_for_ever_until_a_signal_ends_it(path: str) -> None:
    left = orphan(path)
    command = [*COMMAND, "--path", path, "--json", "gc", "--interval", "10ms"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        rounds = [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert all('"manifest_version"' in line for line in rounds)
    assert process.returncode == 143
    assert not left.exists()


def damage(path: str) -> None:
    """Whatever is read of the manifest from now on, also a newer version than there is, is garbage."""
    found = sorted(Path(path, "manifest").glob("*.manifest.obj"))
    newer = found[-1].with_name(f"{int(found[-1].name.split('.')[0]) + 1:020}.manifest.obj")
    for manifest in (newer, *found):
        manifest.write_bytes(b"garbage")


def test_a_damaged_database_does_not_keep_others_from_being_collected(slate: Run, path: str, tmp_path: Path) -> None:
    bad, left = str(tmp_path / "bad"), orphan(path)
    slate("put", "k", "v", path=bad)
    damage(bad)
    done = slate("gc", "--once", path, path=bad)
    assert (done.code, f"slate: {bad}: " in done.err) == (4, True)
    assert not left.exists()


def test_a_database_that_is_damaged_later_does_not_end_the_service(slate: Run, path: str, tmp_path: Path) -> None:
    bad = str(tmp_path / "bad")
    slate("put", "k", "v", path=bad)
    command = [*COMMAND, "--path", bad, "--json", "gc", "--interval", "10ms", path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        next(line for line in process.stdout if json.loads(line)["path"] == bad)
        damage(bad)
        said = next(line for line in process.stderr if line.startswith('{"error"'))
        left = orphan(path)
        next(line for line in process.stdout if json.loads(line)["objects"])
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert (json.loads(said)["error"], json.loads(said)["path"]) == ("CorruptionError", bad)
    assert not left.exists()
    assert process.returncode == 4
