"""put, get, delete, scan, status: arguments, forms of output, exit codes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from slate_async.errors import (
    ClosedError,
    CorruptionError,
    FencedError,
    InternalError,
    InvalidError,
    UnavailableError,
)
from tests.unit.cli.conftest import FakeDatabase, Run


def test_put_get_delete(slate: Run, database: FakeDatabase) -> None:
    assert slate("put", "user:1", "Ålice").code == 0
    assert database.rows == {b"user:1": "Ålice".encode()}
    assert slate("get", "user:1").out == "Ålice\n"
    assert slate("delete", "user:1").code == 0
    missing = slate("get", "user:1")
    assert (missing.code, missing.out) == (1, "")
    assert "no such key: user:1" in missing.err
    assert database.closed == len(database.opened) == 4


def test_only_writes_that_make_sense_create_a_database(slate: Run, database: FakeDatabase) -> None:
    database.exists = False
    for command in (["get", "k"], ["scan"], ["status"], ["delete", "k"], ["put", "k", "v", "--no-create"]):
        result = slate(*command)
        assert (result.code, "no database" in result.err) == (2, True), command
    assert slate("put", "k", "v").code == 0


def test_path_metastore_and_settings_reach_open(
    slate: Run, database: FakeDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "slate.toml"
    file.write_text("flush_interval_ms = 7\nflush_parallelism = 2\n")
    monkeypatch.setenv("SLATE_FLUSH_PARALLELISM", "9")
    slate("get", "k", options=("--metastore", "if-match", "--settings", str(file)))
    opened = database.opened[0]
    assert (opened["path"], opened["metastore"]) == ("memory://fake", "if-match")
    assert (opened["settings"].flush_interval_ms, opened["settings"].flush_parallelism) == (7, 9)


def test_path_from_the_environment_or_an_error(
    slate: Run, database: FakeDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = slate("get", "k", path=None)
    assert (result.code, "--path" in result.err) == (2, True)
    monkeypatch.setenv("SLATE_PATH", "memory://other")
    slate("get", "k", path=None)
    assert database.opened[0]["path"] == "memory://other"


def test_hex_and_base64_in_and_out(slate: Run, database: FakeDatabase) -> None:
    slate("put", "--hex", "00ff", "1b5b")
    assert database.rows == {b"\x00\xff": b"\x1b["}
    assert slate("get", "--hex", "00FF").out == "1b5b\n"
    assert slate("get", "--base64", "AP8=").out == "G1s=\n"
    assert slate("scan", "--base64", "--start", "AP8=").out == "AP8=\tG1s=\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["put", "--hex", "0g", "00"],
        ["put", "--base64", "AP8", "AA=="],
        ["get", "--hex", "--base64", "00"],
        ["put", "k"],
        ["put", "k", "v", "--ttl", "0"],
        ["put", "k", "v", "--ttl", "nan"],
        ["scan", "--prefix", "a", "--end", "b"],
        ["scan", "--limit", "0"],
        ["nonsense"],
    ],
)
def test_bad_arguments_are_refused_before_the_database_is_taken_over(
    slate: Run, database: FakeDatabase, arguments: list[str]
) -> None:
    result = slate(*arguments)
    assert result.code == 2
    assert result.err
    assert "Traceback" not in result.err
    assert database.opened == []


def test_control_characters_never_reach_the_terminal(slate: Run, database: FakeDatabase) -> None:
    database.rows = {b"k": b"\x1b[31mred", b"b": b"\xff", b"fake": b"b'k'"}
    assert slate("get", "k").out == repr(b"\x1b[31mred") + "\n"
    assert slate("get", "b").out == "b'\\xff'\n"
    assert slate("get", "fake").out == repr(b"b'k'") + "\n"
    assert slate("get", "k", "--raw").raw == b"\x1b[31mred"


def test_json_says_which_notation_it_uses(slate: Run, database: FakeDatabase) -> None:
    database.rows = {b"a": b"\xff", b"b": b"tab\t"}
    json = ("--json",)
    assert slate("get", "a", options=json).objects == [{"key": "a", "found": True, "value_base64": "/w=="}]
    assert slate("get", "x", options=json).objects == [{"key": "x", "found": False}]
    assert slate("scan", options=json).objects == [{"key": "a", "value_base64": "/w=="}, {"key": "b", "value": "tab\t"}]
    assert slate("scan", "--keys-only", options=json).objects == [{"key": "a"}, {"key": "b"}]
    assert slate("put", "c", "d", options=json).objects == [{"key": "c", "seq": 1}]


def test_scan_bounds_and_forms(slate: Run, database: FakeDatabase) -> None:
    database.rows = {b"a1": b"1", b"a2": b"2", b"b1": b"3"}
    assert slate("scan").out == "a1\t1\na2\t2\nb1\t3\n"
    assert slate("scan", "--prefix", "a", "--reverse").out == "a2\t2\na1\t1\n"
    assert slate("scan", "--start", "a2", "--end", "b1").out == "a2\t2\n"
    assert slate("scan", "--limit", "1", "--keys-only").out == "a1\n"
    assert slate("scan", "--limit", "1", "--raw").raw == b"a1\t1\n"
    assert "3 rows" in slate("scan").err


def test_a_scan_longer_than_a_page_prints_every_row(slate: Run, database: FakeDatabase) -> None:
    database.rows = {b"%05d" % i: b"v" for i in range(1_234)}
    lines = slate("scan").out.splitlines()
    assert lines == [f"{i:05d}\tv" for i in range(1_234)]


def test_ttl_and_value_from_a_file(slate: Run, database: FakeDatabase, tmp_path: Path) -> None:
    file = tmp_path / "value"
    file.write_bytes(b"\x00\x01")
    assert slate("put", "k", "--file", str(file), "--ttl", "1.5").code == 0
    assert (database.rows, database.ttls) == ({b"k": b"\x00\x01"}, [1.5])
    result = slate("put", "k", "--file", str(tmp_path / "none"))
    assert (result.code, "none" in result.err) == (2, True)


def test_status_as_lines_and_as_json(slate: Run, database: FakeDatabase) -> None:
    assert "nested.inner\t7\nnothing\t-\n" in slate("status").out
    assert "writer.state\talive\nwriter.epoch\t3\n" in slate("status").out
    assert "metrics.puts\t3\n" in slate("status", "--metrics").out
    assert slate("status", options=("--json",)).objects[0]["nested"] == {"inner": 7}


def closed_by(cause: BaseException) -> ClosedError:
    error = ClosedError("the database is closed")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnavailableError("no answer", outcome="unknown"), 3),
        (CorruptionError("bad checksum", object_name="sst/1"), 4),
        (FencedError("epoch 2 exists"), 5),
        (closed_by(FencedError("epoch 2 exists")), 5),
        (ExceptionGroup("many", [UnavailableError("no answer")]), 3),
        (ClosedError("on purpose"), 70),
        (InternalError("impossible"), 70),
        (ZeroDivisionError("oops"), 70),
        (KeyboardInterrupt(), 130),
    ],
    ids=lambda value: type(value).__name__,
)
def test_exit_codes_and_messages(slate: Run, database: FakeDatabase, error: BaseException, code: int) -> None:
    database.error = error
    result = slate("get", "k")
    assert result.code == code
    assert result.err
    assert "Traceback" not in result.err
    if not isinstance(error, KeyboardInterrupt):
        assert "Traceback" in slate("get", "k", options=("-v",)).err


def test_errors_as_json(slate: Run, database: FakeDatabase) -> None:
    database.error = UnavailableError("no answer", outcome="unknown")
    result = slate("put", "k", "v", options=("--json",))
    assert result.out == ""
    assert result.err == ('{"error":"UnavailableError","message":"no answer","outcome":"unknown","exit_code":3}\n')


def test_bad_settings_name_the_setting(slate: Run, database: FakeDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLATE_FLUSH_BYTES", "many")
    result = slate("get", "k")
    assert (result.code, "flush_bytes" in result.err) == (2, True)


def test_what_only_reads_writes_nothing_without_pin(slate: Run, database: FakeDatabase) -> None:
    database.rows = {b"k": b"v"}
    for command in (("get", "k"), ("scan",), ("scan", "--pin"), ("count",), ("exists", "k")):
        assert slate(*command).code == 0
    opened = [(arguments["create"], arguments["pin"]) for arguments in database.opened]
    assert opened == [(False, False), (False, False), (False, True), (False, False), (False, False)]


def test_scanning_what_may_only_be_read_names_the_option(slate: Run, database: FakeDatabase) -> None:
    database.error = InvalidError("the store does not take it; open it with pin=False: Permission denied")
    result = slate("scan")
    assert (result.code, "give --no-pin: Permission denied" in result.err) == (2, True)


def test_a_refusal_of_destroy_names_the_option(slate: Run, database: FakeDatabase) -> None:
    held = InvalidError("checkpoints hold the database: x (clone); delete them, or destroy it softly (soft=True)")
    database.error = held
    assert "or give --soft" in slate("get", "k").err


def test_keys_are_counted_asked_for_and_deleted_by_prefix(slate: Run, database: FakeDatabase) -> None:
    database.rows = {b"a:%d" % number: b"v" for number in range(1200)} | {b"b": b"v"}
    assert (slate("count").out, slate("count", "--prefix", "a:").out) == ("1201\n", "1200\n")
    assert slate("count", "--start", "b", "--json").objects == [{"count": 1}]
    assert (slate("exists", "b").out, slate("exists", "b").code) == ("yes\n", 0)
    assert (slate("exists", "c").out, slate("exists", "c").code) == ("no\n", 1)
    assert slate("exists", "c", "--json").objects == [{"key": "c", "exists": False}]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("k", "--prefix", "k"),
        ("--prefix", ""),
        ("--prefix", "a", "--start", "a"),
        ("--start", ""),
        ("--start", "b", "--end", "a"),
        ("--end", ""),
    ],
)
def test_a_delete_without_a_clear_meaning_is_refused(
    slate: Run, database: FakeDatabase, arguments: tuple[str, ...]
) -> None:
    result = slate("delete", *arguments)
    assert (result.code, database.opened) == (2, [])
    assert re.search("--prefix|--start|holds no key", result.err), result.err
