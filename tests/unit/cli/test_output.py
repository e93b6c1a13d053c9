"""What is printed steers no terminal and breaks no line, whatever its name."""

import io

import pytest
from rich.console import Console

from slate_async.cli.output import Output


@pytest.mark.parametrize("terminal", [False, True])
def test_control_characters_of_cells_and_errors_are_escaped(terminal: bool) -> None:
    out, err = (Console(file=io.StringIO(), force_terminal=terminal, width=200, color_system=None) for _ in range(2))
    output = Output(out=out, err=err)
    output.table("", ("name",), [("red\x1b[31m\tone\ntwo \u20ac",)])
    output.problem("column \x1b[31m\x9b, line 1\nline 2 \u20ac")
    assert "red\\x1b[31m\\tone\\ntwo \u20ac" in out.file.getvalue()  # type: ignore[attr-defined]
    assert err.file.getvalue() == "column \\x1b[31m\\x9b, line 1\nline 2 \u20ac\n"  # type: ignore[attr-defined]
