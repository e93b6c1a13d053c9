"""The demo, the table command, missing packages, and the pieces the other tests do not reach."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from typing import Any

import pytest

import slate_async.cli
from metastores.dynamodb import DynamoDBMetaStore
from metastores.errors import MetaStoreInvalidError, MetaStoreUnavailableError
from slate_async.cli import error_text, exit_codes
from slate_async.cli.encoding import Encoding, parse, show
from slate_async.cli.signals import Terminated
from slate_async.cli.standard_input import WaitingInput
from slate_async.objectstore.protocol import ObjectExistsError
from tests.unit.cli.conftest import FakeDatabase, Run


def test_demo_reports_its_steps(slate: Run, database: FakeDatabase) -> None:
    result = slate("demo", "--rows", "100", path=None, options=("--json",))
    assert result.code == 0
    assert [(step["rows"], step["good"]) for step in result.objects] == [(100, True)] * 3
    assert len(database.rows) == 100


def test_demo_finds_a_lost_row(slate: Run, database: FakeDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    async def forgetful(key: bytes) -> bytes | None:
        return None if key.endswith(b"7") else database.rows.get(key)

    monkeypatch.setattr(database, "get", forgetful)
    result = slate("demo", "--rows", "20", path=None)
    assert (result.code, "MISSING" in result.out) == (exit_codes.BUG, True)


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    calls: list[tuple[str, dict[str, Any]]] = []

    async def create_table(table: str, **options: Any) -> bool:
        calls.append((table, options))
        return len(calls) == 1

    monkeypatch.setattr(DynamoDBMetaStore, "create_table", create_table)
    return calls


def test_create_table(slate: Run, tables: list[tuple[str, dict[str, Any]]]) -> None:
    first = slate("admin", "create-table", "t", "--region", "eu-west-1", path=None)
    again = slate("admin", "create-table", "t", "--billing", "provisioned", "--read-units", "9", path=None)
    assert slate("admin", "create-table", "t", "--write-units", "9", path=None).code == 2
    assert (first.code, "created\tyes" in first.out) == (0, True)
    assert (again.code, "created\tno" in again.out, "already" in again.err) == (0, True, True)
    assert "metastore\tdynamodb://t?region=eu-west-1\n" in first.out
    assert "metastore\tdynamodb://t\n" in again.out
    assert tables == [
        ("t", {"region": "eu-west-1", "endpoint_url": None, "provisioned": None}),
        ("t", {"region": None, "endpoint_url": None, "provisioned": (9, 5)}),
    ]


def test_create_table_prints_what_metastore_takes(slate: Run, tables: list[tuple[str, dict[str, Any]]]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        endpoint = f"http://127.0.0.1:{listening.getsockname()[1]}"
        made = slate("admin", "create-table", "t", "--region", "x", "--endpoint-url", endpoint, path=None)
    assert f"metastore\tdynamodb://t?region=x&endpoint_url={endpoint}\n" in made.out


def test_errors_of_the_metastore_have_exit_codes(slate: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def create_table(table: str, **options: Any) -> bool:
        raise errors.pop()

    monkeypatch.setattr(DynamoDBMetaStore, "create_table", create_table)
    errors = [MetaStoreUnavailableError("no answer"), MetaStoreInvalidError("other keys")]
    assert [slate("admin", "create-table", "t", path=None).code for _ in range(2)] == [2, 3]


def test_without_typer_the_command_says_what_to_install() -> None:
    code = "import sys; sys.modules['typer'] = None; import slate_async.cli; slate_async.cli.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, "pip install 'slate-async[cli]'" in done.stderr) == (2, True)
    assert "Traceback" not in done.stderr


def test_a_reader_of_the_output_that_goes_away_is_no_error() -> None:
    program = (
        "import slate_async\n"
        "from contextlib import asynccontextmanager\n"
        "class Endless:\n"
        "    async def scan(self, start, end, **options):\n"
        "        while True:\n"
        "            yield b'k', b'v' * 1000\n"
        "@asynccontextmanager\n"
        "async def open_(path, **options):\n"
        "    yield Endless()\n"
        "slate_async.open_reader = open_\n"
        "import slate_async.cli\n"
        "slate_async.cli.main()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, "--path", "memory://x", "scan"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert (process.wait(), errors) == (exit_codes.BROKEN_PIPE, "")


def test_importing_the_package_imports_no_command_line_libraries() -> None:
    code = "import sys, slate_async, slate_async.cli; print(sorted({'typer', 'rich'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    assert slate_async.cli.main


def test_the_error_of_a_metastore_has_a_public_name(slate: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def create_table(table: str, **options: Any) -> bool:
        raise errors.pop()

    monkeypatch.setattr(DynamoDBMetaStore, "create_table", create_table)
    errors = [MetaStoreUnavailableError("no answer"), MetaStoreInvalidError("other keys")]
    said = [slate("admin", "create-table", "t", "--json", path=None).err for _ in range(2)]
    assert [json.loads(line)["error"] for line in said] == ["ConfigError", "UnavailableError"]


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (ObjectExistsError("k"), "ConflictError"),
        (FileNotFoundError(2, "No such file"), "InvalidError"),
        (KeyError("k"), "InternalError"),
        (KeyboardInterrupt(), "Interrupted"),
        (Terminated("terminated"), "Interrupted"),
    ],
)
def test_names_of_errors_are_public(error: BaseException, name: str) -> None:
    assert error_text.as_json(error)["error"] == name


@pytest.mark.parametrize("arguments", [("--json", "get", "a"), ("get", "--json", "a"), ("get", "a", "--json")])
def test_json_may_stand_anywhere(slate: Run, database: FakeDatabase, arguments: tuple[str, ...]) -> None:
    database.rows[b"a"] = b"1"
    assert slate(*arguments).objects == [{"key": "a", "found": True, "value": "1"}]


def test_after_two_dashes_it_is_an_argument(slate: Run, database: FakeDatabase) -> None:
    assert slate("put", "--", "--json", "v").out == ""
    assert database.rows == {b"--json": b"v"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("frob", "--json"), "frob"),
        (("get", "--json"), "key"),
        (("get", "a", "--nope", "--json"), "--nope"),
        (("--json",), "command"),
        (("admin", "--json", "frob"), "frob"),
        (("scan", "--limit", "x", "--json"), "--limit"),
        (("load", "/no/such/file.csv", "--key", "id", "--json"), "file.csv"),
        (("get", "--hex", "--base64", "00", "--json"), "exclude"),
    ],
)
def test_usage_errors_are_objects_too(
    slate: Run, database: FakeDatabase, arguments: tuple[str, ...], says: str
) -> None:
    result = slate(*arguments)
    error = json.loads(result.err)
    assert (result.code, result.out) == (2, "")
    assert (error["error"], error["outcome"], error["exit_code"]) == ("InvalidError", None, 2)
    assert says in error["message"]
    plain = slate(*[argument for argument in arguments if argument != "--json"])
    assert plain.code == 2
    assert not plain.err.startswith("{")


def test_help_and_version(slate: Run) -> None:
    version = slate("--version", path=None)
    assert (version.code, version.out) == (0, f"slate {slate_async.__version__}\n")
    for arguments in (("--help",), ("get", "--help"), ("get", "--help", "--json"), ("--version", "--json")):
        assert slate(*arguments, path=None).code == 0


def test_standard_input_needs_a_format_of_lines(slate: Run, database: FakeDatabase) -> None:
    assert "say --format" in slate("load", "-", "--key", "id").err
    assert "give a file" in slate("load", "-", "--key", "id", "--format", "parquet").err
    assert database.opened == []


async def test_lines_of_a_pipe_come_as_they_are_written() -> None:
    reading, writing = os.pipe()
    lines = WaitingInput(reading)
    os.write(writing, b"one\ntwo\nthr")
    assert [await lines.pull(lines.readline) for _ in range(2)] == [b"one\n", b"two\n"]
    waiting = asyncio.ensure_future(lines.pull(lines.readline))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    os.write(writing, b"ee\nfour")
    assert await waiting == b"three\n"
    assert lines.tell() == len(b"one\ntwo\nthree\n")
    cancelled = asyncio.ensure_future(lines.pull(lines.readline))
    await asyncio.sleep(0.01)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    lines.close()
    lines.close()
    os.close(writing)
    os.close(reading)


@pytest.mark.parametrize("text", ["é", "\\xe9", "b'\\xe9'", "b'", "→"])
def test_what_the_output_cannot_write_is_a_literal_and_unlike_any_other(text: str) -> None:
    for charset in ("ascii", "latin-1", "utf-8", "no-such-charset"):
        shown = show(text.encode(), Encoding.TEXT, charset)
        assert charset == "no-such-charset" or shown.encode(charset).decode(charset) == shown
        assert (eval(shown) if shown.startswith(("b'", 'b"')) else shown.encode()) == text.encode()


@pytest.mark.parametrize("data", [b"", b"a", "é".encode(), b"\x00", b"\xff\xfe", b"b'a'", b"a\\b", b"a\nb"])
def test_notations_are_unambiguous_and_reversible(data: bytes) -> None:
    for encoding in (Encoding.HEX, Encoding.BASE64):
        assert parse(show(data, encoding), encoding, what="it") == data
    shown = show(data, Encoding.TEXT)
    assert shown.isprintable()
    assert (eval(shown) if shown.startswith(("b'", 'b"')) else shown.encode()) == data
