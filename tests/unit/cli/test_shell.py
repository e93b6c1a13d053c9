"""``shell``: commands on a database that stays open."""

from __future__ import annotations

import io
import os
import pty
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import slate_async
from slate_async.cli import shell
from tests.unit.cli.conftest import Run


@pytest.fixture
def typed(slate: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a shell on lines."""
    for name in [name for name in os.environ if name.startswith("SLATE_")]:
        monkeypatch.delenv(name)

    def run(*lines: str, options: tuple[str, ...] = ()) -> Any:
        monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines) + "\n"))
        from slate_async.cli import shell

        original = shell._lines
        monkeypatch.setattr(shell, "_lines", lambda: (line for line in lines if line.strip()))
        try:
            return slate("shell", *options, path=str(tmp_path / "db"))
        finally:
            monkeypatch.setattr(shell, "_lines", original)

    return run


def test_it_reads_and_writes_one_database(typed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = list[str]()
    for name in ("open", "open_reader"):
        original = getattr(slate_async, name)

        def counted(path: str, *, original: Any = original, name: str = name, **more: Any) -> Any:
            opened.append(name)
            return original(path, **more)

        monkeypatch.setattr(slate_async, name, counted)
    result = typed(
        "put a 1", "put 'b c' 2", "", "get a", "scan --json", "delete --prefix b", "count", options=("--write",)
    )
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines() == ["1", '{"key":"a","value":"1"}', '{"key":"b c","value":"2"}', "1"]
    assert opened == ["open"]


def test_a_reader_follows_and_does_not_write(typed: Any, tmp_path: Path) -> None:
    with slate_async.sync.open(tmp_path / "db") as db:
        db.put(b"a", b"1")
        result = typed("put b 2", "exists a", "export - --format csv", "changes --keys-only")
        db.put(b"b", b"2")  # nobody took it over
    assert result.out.splitlines() == ["yes", "key,value", "a,1", "1\tput\ta"]
    assert "start it with --write" in result.err


def test_a_status_is_the_writers_own(typed: Any) -> None:
    assert '"state":"open"' in typed("status --json", options=("--write",)).out
    assert '"writer":{"state":"closed"' in typed("status --json").out


def test_an_error_ends_the_command_and_not_the_shell(typed: Any) -> None:
    result = typed("put a 1", "get", "frob", "get 'a", "scan --limit x", "shell", "get a", options=("--write",))
    assert (result.code, result.out) == (0, "1\n")
    said = result.err.splitlines()
    assert len(said) == 5
    assert ("frob" in said[1], "quotation" in said[2], "--limit" in said[3], "shell" in said[4]) == (True,) * 4


def test_an_option_of_the_shell_itself_is_not_taken_for_a_command(typed: Any) -> None:
    result = typed("get a --path /nowhere", "get a --metastore=memory://", options=("--write",))
    said = result.err.splitlines()
    assert ["--path is given where the shell is started" in said[0], "--metastore is given" in said[1]] == [True, True]


def test_a_shell_whose_database_was_taken_over_says_how_to_take_it_back(
    typed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ("put a 1", "put a 2", "get a", "get a --json")
    original, others = shell._run, list[Any]()

    def run(session: Any, group: Any, line: str) -> int:
        if line == "put a 2":
            others.append(slate_async.sync.open(tmp_path / "db"))
        return original(session, group, line)

    monkeypatch.setattr(shell, "_run", run)
    result = typed(*lines, options=("--write",))
    said = result.err.splitlines()
    assert [line.endswith("took over; leave the shell and start it again to take it back)") for line in said] == [
        True,
        True,
        False,
    ]
    others[0].close()


def test_the_last_command_decides_the_exit_code(typed: Any) -> None:
    assert typed("put a 1", "get zz", options=("--write",)).code == 1
    assert "commands: " in typed("help", "help get").out


def test_what_cannot_be_opened_is_one_line(slate: Run, tmp_path: Path) -> None:
    result = slate("shell", path=str(tmp_path / "nothing"))
    assert (result.code, len(result.err.splitlines())) == (2, 1)


class OnTerminal:
    """A shell on a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        self._seen = ""
        self.process = subprocess.Popen([*COMMAND, *arguments], stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)

    def until(self, marker: str) -> str:
        """What is shown up to ``marker``, which then counts as seen."""
        while marker not in self._seen:
            try:
                self._seen += os.read(self._ours, 4096).decode()
            except OSError:  # the other end is closed
                break
        found, _, self._seen = self._seen.partition(marker)
        return found

    def type(self, text: str) -> None:
        """As at the keyboard."""
        os.write(self._ours, text.encode())

    def interrupt(self) -> None:
        """Ctrl-C at the prompt; again if nothing comes of it: readline misses one between its prompt and its wait."""
        for _ in range(10):
            self.process.send_signal(signal.SIGINT)
            if select.select([self._ours], [], [], 5.0)[0]:
                return

    def close(self) -> tuple[int, str]:
        """The exit code, and what was shown at the end."""
        rest = self.until("\0")
        os.close(self._ours)
        return self.process.wait(), rest


COMMAND = [sys.executable, "-c", "import slate_command; slate_command.main()"]


def test_at_a_terminal_ctrl_c_ends_the_line_and_exit_the_shell(tmp_path: Path) -> None:
    terminal = OnTerminal("shell", "--write", "--path", str(tmp_path / "db"))
    terminal.until("slate> ")
    terminal.type("put a 1\n")
    terminal.until("slate> ")
    terminal.interrupt()
    terminal.until("slate> ")
    terminal.type("changes --follow\n")
    terminal.until("put\ta\t1")
    terminal.process.send_signal(signal.SIGINT)
    assert "interrupted" in terminal.until("slate> ")
    terminal.type("get a\n")
    assert "1" in terminal.until("slate> ").splitlines()
    terminal.type("exit\n")
    code, rest = terminal.close()
    assert (code, "Traceback" in rest) == (0, False)


def test_lines_may_be_piped_in(tmp_path: Path) -> None:
    command = [*COMMAND, "shell", "--write", "--path", str(tmp_path / "db")]
    done = subprocess.run(command, input="put a 1\n\nget a\nget b\n", capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "1\n")


def test_exit_ends_lines_that_are_piped_in(tmp_path: Path) -> None:
    command = [*COMMAND, "shell", "--write", "--path", str(tmp_path / "db")]
    done = subprocess.run(command, input="put a 1\nget a\nexit\nget b\n", capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
