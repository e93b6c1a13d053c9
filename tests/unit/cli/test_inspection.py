"""``inspect``, ``verify``, ``mirror`` and the times, over the real engine on a local folder."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import slate_async
from slate_async.cli.encoding import Encoding
from slate_async.cli.plain import plain, spans
from slate_async.storage.manifest.state import SortedRun, SstRef
from tests.unit.cli.conftest import Run


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith("SLATE_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def path(slate: Run, tmp_path: Path) -> str:
    """A database with rows in the log, and a checkpoint called "then"."""
    found = str(tmp_path / "db")
    for key in ("a", "b"):
        assert slate("put", key, "1", path=found).code == 0
    assert slate("create-checkpoint", "-n", "then", path=found).code == 0
    assert slate("put", "b", "2", path=found).code == 0
    return found


@pytest.fixture
def compacted(slate: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database without a WAL, compacted into one run."""
    found = str(tmp_path / "sst")
    monkeypatch.setenv("SLATE_WAL_ENABLED", "false")
    for key in ("a", "b", "c"):
        assert slate("put", key, "1", path=found).code == 0
    assert slate("delete", "a", path=found).code == 0
    assert slate("compact", "--full", path=found).code == 0
    monkeypatch.delenv("SLATE_WAL_ENABLED")
    return found


@pytest.mark.parametrize(("numbers", "said"), [((), ""), ((4,), "4"), ((1, 2, 3, 7, 9, 10), "1-3, 7, 9-10")])
def test_many_numbers_are_shown_as_spans(numbers: tuple[int, ...], said: str) -> None:
    assert spans(numbers) == said


async def with_range_deletes(path: str) -> None:
    """Rows in a run and in L0, range deletes over either or both, and one that is in the log only."""
    settings = slate_async.Settings(auto_compaction=False)
    async with slate_async.open(path, settings=settings) as db:
        for key in (b"a", b"b", b"c", b"z"):
            await db.put(key, b"1")
        await db.compact(full=True)
        await db.put(b"m", b"1")
        await db.flush(l0=True)
        await db.delete_range(b"a", b"c")  # 6: rows of the run
        await db.delete_range(b"m", None)  # 7: of L0 and of the run
        await db.delete_range(b"x1", b"x2")  # 8: its bounds are within those of the run
        await db.flush(l0=True)
        await db.delete_range(b"a", None)  # 9: in the log


def test_range_deletes_are_shown_with_what_they_may_hide(slate: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "db")
    asyncio.run(with_range_deletes(path))
    [shown] = slate("inspect", "manifest", path=path, options=("--json",)).objects
    wanted = ("seq", "start", "end", "l0_ssts", "run_ssts")
    assert [tuple(delete[name] for name in wanted) for delete in shown["range_deletes"]] == [
        (6, "a", "c", 0, 1),
        (7, "m", None, 2, 1),
        (8, "x1", "x2", 1, 1),
    ]
    text = slate("inspect", "manifest", path=path).out
    assert "range_deletes\t3\n" in text
    row = next(line.split("\t") for line in text.splitlines() if line.startswith("7\tm\t-\t"))
    assert row[4:] == ["2", "1"]
    [shown] = slate("inspect", "runs", path=path, options=("--json",)).objects
    assert [run["range_deletes"] for run in shown["runs"]] == [2, 1, 3]  # the newest holds the range deletes' own rows
    location = shown["runs"][2]["ssts"][0]["location"]
    [shown] = slate("inspect", "sst", location, path=path, options=("--json",)).objects
    assert shown["range_deletes"] == 3
    [shown] = slate("inspect", "log", path=path, options=("--json",)).objects
    valid = [entry for entry in shown["objects"] if entry["status"] == "valid"]
    assert sum(entry["range_deletes"] for entry in valid) == 1
    [shown] = slate("verify", path=path, options=("--json",)).objects
    assert (shown["range_deletes"], shown["clean"]) == (4, True)
    [shown] = slate("status", path=path, options=("--json",)).objects
    assert shown["range_deletes"] == 4
    assert "range_deletes\t0\n" in slate("compact", "--full", path=path).out
    [shown] = slate("status", "--metrics", path=path, options=("--json",)).objects
    assert (shown["range_deletes"], shown["metrics"]["db.range_deletes"]) == (1, 1)
    [shown] = slate("verify", path=path, options=("--json",)).objects
    assert (shown["range_deletes"], shown["clean"]) == (1, True)


def test_the_manifest(slate: Run, path: str) -> None:
    [shown] = slate("inspect", "manifest", path=path, options=("--json",)).objects
    assert (shown["writer_epoch"], shown["log_protocol"]) == (3, "contiguous")
    assert shown["checkpoints"][0]["name"] == "then"
    assert [shown["ref"]["version"]] == [shown["versions"][-1]["version"]]
    text = slate("inspect", "manifest", path=path).out
    assert "writer_epoch\t3" in text
    assert f"versions\t1-{shown['ref']['version']}\n" in text
    assert "checkpoints.name\tthen" in text


def test_the_log(slate: Run, path: str) -> None:
    [shown] = slate("inspect", "log", path=path, options=("--json",)).objects
    assert {entry["kind"] for entry in shown["objects"]} == {"segment", "fence"}
    assert sum(entry["rows"] or 0 for entry in shown["objects"] if entry["status"] == "valid") == 3
    lines = slate("inspect", "log", path=path).out.splitlines()
    assert sum(line.endswith(".sst") for line in lines) == len(shown["objects"])


def test_runs_and_ssts(slate: Run, compacted: str) -> None:
    json = {"path": compacted, "options": ("--json",)}
    [shown] = slate("inspect", "runs", **json).objects
    [run] = shown["runs"]
    [sst] = run["ssts"]
    assert run["rows"] == sum(sst["rows"] for sst in run["ssts"]) >= 2
    [by_key] = slate("inspect", "sst", sst["location"], **json).objects
    [by_id] = slate("inspect", "sst", sst["object_id"], **json).objects
    assert by_key == by_id
    assert by_key["header"]["kind"] == "sst"
    assert sum(block["rows"] for block in by_key["blocks"]) == sst["rows"]
    [line] = slate("inspect", "runs", "--hex", path=compacted).out.splitlines()
    assert line.split("\t")[-1] == b"c".hex()
    text = slate("inspect", "sst", sst["location"], path=compacted).out
    assert f"footer.size\t{sst['size']}" in text


def test_verify_says_so_with_its_exit_code(slate: Run, path: str) -> None:
    clean = slate("verify", path=path)
    assert (clean.code, "findings\t0" in clean.out) == (0, True), clean.err
    assert "all good" in clean.err
    objects = slate("inspect", "log", path=path, options=("--json",)).objects[0]["objects"]
    key = next(entry["key"] for entry in objects if entry["status"] == "valid")
    file = Path(path) / f"{key}.obj"
    data = file.read_bytes()
    for at in (-3, 100):  # in what the folder keeps of the file, and in the object
        file.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at:][1:])
        damaged = slate("verify", path=path)
        assert (damaged.code, key in damaged.out, "Traceback" in damaged.err) == (6, True, False), damaged.err
    told = slate("verify", path=path, options=("--json",))
    assert told.code == 6
    [report] = told.objects
    assert (report["clean"], [finding["object_name"] for finding in report["findings"]]) == (False, [key])


def test_verify_has_a_line_for_each_kind_of_garbage(slate: Run, compacted: str) -> None:
    told, [report] = slate("verify", path=compacted), slate("verify", path=compacted, options=("--json",)).objects
    kinds = {note["what"] for note in report["notes"]}
    assert 0 < len(kinds) < len(report["notes"])
    assert len(told.err.splitlines()) == len(kinds) + 1
    nbytes = sum(note["size"] or 0 for note in report["notes"] if note["object_name"].startswith("log/"))
    assert f"({nbytes} bytes together)" in told.err


def test_a_mirror_is_made_and_made_newer(slate: Run, path: str, tmp_path: Path) -> None:
    target = str(tmp_path / "mirror")
    nothing = slate("mirror", target, path=path)
    assert (nothing.code, "create-checkpoint first" in nothing.err) == (2, True)
    [made] = slate("mirror", target, "--checkpoint", "then", path=path, options=("--json",)).objects
    assert made["copied"] > 0
    assert slate("get", "b", path=target).out == "1\n"
    assert slate("create-checkpoint", "-n", "now", path=path).code == 0
    again = slate("mirror", target, "-s", "now", "--prune", path=path)
    assert again.code == 0, again.err
    assert slate("get", "b", path=target).out == "2\n"
    assert slate("verify", path=target).code == 0
    assert slate("put", "b", "mine", path=target).code == 0
    for target_, said in ((target, "opened to write"), (path, "itself")):
        refused = slate("mirror", target_, "-s", "now", path=path)
        assert (refused.code, said in refused.err) == (2, True), refused.err


def test_times_both_ways(slate: Run, path: str) -> None:
    now = datetime.now(UTC)
    told = slate("seq-to-time", "1", path=path).out.strip()
    assert now - timedelta(minutes=5) < datetime.fromisoformat(told) <= now
    assert slate("time-to-seq", told, path=path).out == "1\n"
    [shown] = slate("time-to-seq", now.isoformat(), path=path, options=("--json",)).objects
    assert shown["seq"] == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("inspect", "sst", "nonsense"), "32 hexadecimal digits"),
        (("inspect", "manifest", "--hex", "--base64"), "exclude"),
        (("mirror", "somewhere", "-s", "never"), "no checkpoint"),
        (("seq-to-time", "99"), "not here yet"),
        (("seq-to-time", "0"), "begin with 1"),
        (("time-to-seq", "yesterday"), "no time"),
        (("time-to-seq", "2026-01-01T00:00:00"), "time zone"),
        (("time-to-seq", "1"), "before the database was created"),
        (("time-to-seq", "9999-01-01T00:00:00Z"), "in the future"),
    ],
)
def test_mistakes_end_with_exit_code_2(slate: Run, path: str, arguments: tuple[str, ...], said: str) -> None:
    done = slate(*arguments, path=path)
    assert (done.code, said in done.err, "Traceback" in done.err) == (2, True, False), done.err


@pytest.mark.parametrize(
    "arguments", [("inspect", "manifest"), ("inspect", "log"), ("inspect", "runs"), ("verify",), ("seq-to-time", "1")]
)
def test_where_there_is_no_database_that_is_said(slate: Run, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    missing = slate(*arguments, path=str(tmp_path / "empty"))
    assert (missing.code, "no database" in missing.err) == (2, True), missing.err
    assert not [*tmp_path.rglob("*.obj")]


def test_keys_are_shown_in_the_notation_asked_for_and_ids_in_hexadecimal() -> None:
    sst = SstRef("sst/x", b"\1\2", 1, 1, 0, b"\xff", b"z", 1, 1, 1, unknown={"later": b"\3"})
    shown = plain(SortedRun(7, (sst,)), Encoding.TEXT)
    assert (shown["id"], shown["ssts"][0]["object_id"], shown["ssts"][0]["later"]) == (7, "0102", "03")
    assert (shown["ssts"][0]["first_key_base64"], shown["ssts"][0]["last_key"]) == ("/w==", "z")
    assert plain(sst, Encoding.HEX)["first_key"] == "ff"
