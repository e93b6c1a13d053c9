"""What only a terminal sees: tables and the progress bar."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from uuid import uuid4

import pytest
from rich.console import Console

from slate_async.cli import keyvalue, transfer
from slate_async.cli.compaction import Progressing
from slate_async.cli.encoding import Encoding
from slate_async.cli.output import Output
from slate_async.cli.session import Session
from slate_async.engine.compaction.progress import CompactionEvent
from tests.unit.cli.conftest import FakeDatabase


class Terminal:
    """A terminal of 60 columns that keeps what is printed."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.out, self.err = io.StringIO(), io.StringIO()
        consoles = [
            Console(file=file, force_terminal=True, width=60, highlight=False, markup=False, emoji=False)
            for file in (self.out, self.err)
        ]
        self.session = Session("memory://fake", None, None, False, Output(as_json, *consoles))


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


def test_a_scan_is_a_table_and_markup_in_values_is_text(terminal: Terminal, database: FakeDatabase) -> None:
    database.rows = {b"k1": b"[bold]not markup[/bold]", b"k2": b":smile:", b"k3": b"\x1b[2J"}
    bounds = keyvalue.Bounds(None, None, None, limit=None, reverse=False)
    code = terminal.session.run(
        keyvalue.scan(
            terminal.session, bounds, checkpoint=None, pin=True, keys_only=False, encoding=Encoding.TEXT, raw=False
        )
    )
    shown = terminal.out.getvalue()
    assert code == 0
    assert "key" in shown
    assert "[bold]not markup[/bold]" in shown
    assert ":smile:" in shown
    assert "\x1b[2J" not in shown


def job(file: Path) -> transfer.LoadJob:
    return transfer.LoadJob(file, ["id"], None, ":", "", None, None, None, False, 4, True)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_load_shows_its_progress_except_with_json(database: FakeDatabase, tmp_path: Path, as_json: bool) -> None:
    terminal = Terminal(as_json=as_json)
    file = tmp_path / "a.csv"
    file.write_text("id,v\n" + "".join(f"{i},v\n" for i in range(2_000)) + "bad\n")
    assert asyncio.run(transfer.load(terminal.session, job(file))) == 1
    assert ("100%" in terminal.err.getvalue()) is not as_json
    said = '{"line":2002,"reason":"1 fields' if as_json else "line 2002: 1 fields"
    assert said in terminal.err.getvalue()
    assert ("2,000" in terminal.out.getvalue()) is not as_json


@pytest.mark.parametrize("as_json", [False, True])
def test_a_compaction_shows_its_progress_except_with_json(as_json: bool) -> None:
    terminal, begun = Terminal(as_json=as_json), uuid4()
    with Progressing(terminal.session.output, lines=False) as progressing:
        progressing.tell(CompactionEvent("begun", begun, 1, 0, 4_000, 0, 3))
        progressing.tell(CompactionEvent("range", begun, 1, 1_500, 4_000, 1, 3))
    shown = terminal.err.getvalue()
    assert ("1500/4000" in shown, "range 1 of 3" in shown) == (not as_json, not as_json)
    assert terminal.out.getvalue() == ""
