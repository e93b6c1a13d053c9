"""Ctrl-C at any time is one line."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import slate_async

COMMAND = "import slate_command; slate_command.main()"
DURING_IMPORTS = """
import sys, os, signal
class Presser:
    def find_spec(self, name, path=None, target=None):
        if name == "slate_async.database.db":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Presser())
"""
AT_THE_END = """
import atexit, os, signal, sys
class Presser:
    def find_spec(self, name, path=None, target=None):
        if name == "slate_async.database.db":
            atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))
sys.meta_path.insert(0, Presser())
"""
TAKEN_DOWN = """
import os
class Witness:
    def __del__(self, write=os.write):
        write(1, b"taken down")
witness = Witness()
"""


@pytest.mark.parametrize(("before", "out"), [(DURING_IMPORTS, ""), (AT_THE_END, "slate ")], ids=["imports", "end"])
@pytest.mark.parametrize("as_json", [False, True])
def test_it_is_one_line_while_nothing_is_open(before: str, out: str, as_json: bool) -> None:
    arguments = ["--version", *(["--json"] if as_json else [])]
    command = [sys.executable, "-c", before + COMMAND, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.startswith(out)) == (130, True)
    assert len(done.stderr.splitlines()) == 1
    assert json.loads(done.stderr)["error"] == "Interrupted" if as_json else done.stderr == "interrupted\n"


@pytest.mark.parametrize(("arguments", "code"), [(["--version"], 0), (["get", "a"], 2)])
def test_the_process_ends_before_the_interpreter_is_taken_down(arguments: list[str], code: int) -> None:
    command = [sys.executable, "-c", TAKEN_DOWN + COMMAND, *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SLATE_")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert (done.returncode, done.stdout.startswith("slate "), "taken down" in done.stdout) == (code, code == 0, False)
    assert done.stderr.startswith("slate: which database?") == (code == 2)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this machine has no /dev/full")
def test_output_that_cannot_be_written_is_no_success() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", COMMAND, "--version"], stdout=full, timeout=60)
    assert done.returncode != 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this machine has no /dev/full")
@pytest.mark.parametrize("form", [[], ["--json"]])
@pytest.mark.parametrize("command", [["list"], ["export", "-", "--format", "csv"]])
def test_a_full_disk_behind_standard_output_is_named(command: list[str], form: list[str], tmp_path: Path) -> None:
    path = str(tmp_path / "stored")
    asyncio.run(_something_to_print(path))
    arguments = ["collection", *command] if command == ["list"] else command
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", COMMAND, *form, "--path", f"{path}/{command[0]}", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert done.returncode == 2
    assert "standard output" in done.stderr
    assert "No space left" in done.stderr


async def _something_to_print(path: str) -> None:
    async with slate_async.open_collections(f"{path}/list") as lake:
        await (await lake.create("orders")).expire()
    async with slate_async.open(f"{path}/export") as db:
        await db.put(b"a", b"b" * 100_000)


def test_a_process_in_the_background_ignores_it_still() -> None:
    before = "import os, signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + DURING_IMPORTS
    done = subprocess.run([sys.executable, "-c", before + COMMAND, "--version"], capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")


def test_destroy_asks_on_a_terminal_and_ctrl_c_ends_that(tmp_path: Path) -> None:
    path = str(tmp_path / "db")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SLATE_")}

    def answer(*typed: bytes, sent: int | None = None) -> tuple[int, str]:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, "--path", path, "destroy"],
            stdin=theirs,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert process.stderr is not None
        said = process.stderr.readline()
        for line in typed:
            os.write(ours, line + b"\n")
        if sent is not None:
            process.send_signal(sent)
        rest = process.stderr.read()
        os.close(ours)
        os.close(theirs)
        return process.wait(), said + rest

    subprocess.run(
        [sys.executable, "-c", COMMAND, "--path", path, "put", "k", "v"], check=True, timeout=60, env=environment
    )
    code, said = answer(b"yes")
    assert (code, "nothing was done" in said) == (2, True)
    code, said = answer(sent=signal.SIGINT)
    assert (code, said.splitlines()[1:]) == (130, ["interrupted"])
    code, said = answer(path.encode())
    assert (code, said.splitlines()[1:]) == (0, ["the database is destroyed"])
