"""docs/reference/cli.md names every command, option and exit code there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import typer

from slate_async.cli import exit_codes
from slate_async.cli.app import app

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
OF_EVERY_TYPER_COMMAND = {"--help", "--install-completion", "--show-completion"}


def walk(command: Any, name: str) -> list[tuple[str, str]]:
    """Names of all commands, each with every option of theirs."""
    found = [(name, "")]
    found += [(name, option) for parameter in command.params for option in parameter.opts if option.startswith("--")]
    for child, inner in getattr(command, "commands", {}).items():
        found += walk(inner, child)
    return found


def test_commands_and_options_are_described() -> None:
    for command, option in walk(typer.main.get_command(app), "slate"):
        assert re.search(rf"`(admin |inspect |collection )?{command}\b", PAGE) or command == "slate", command
        assert option in OF_EVERY_TYPER_COMMAND or option in PAGE, option


def test_exit_codes_are_described_in_the_page_and_in_the_module() -> None:
    codes = {value for name, value in vars(exit_codes).items() if name.isupper() and isinstance(value, int)}
    described = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)}
    assert described == codes
    assert {int(code) for code in re.findall(r"^(\d+) ", exit_codes.__doc__ or "", re.MULTILINE)} == codes
