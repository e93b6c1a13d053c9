"""What the command line says of errors: the engine's advice in its own words."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from slate_async.cli import error_text
from slate_async.errors import InvalidError

PACKAGE = Path(error_text.__file__).resolve().parents[1]


@cache
def texts() -> list[str]:
    """All strings of the packages below the command line; of those with values in them, what stands between."""
    found: list[str] = []
    for path in PACKAGE.rglob("*.py"):
        if path.is_relative_to(PACKAGE / "cli"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            words = [part.value if isinstance(part, ast.Constant) else "\0" for part in parts]
            found.append("".join(word for word in words if isinstance(word, str)))
    return found


@pytest.mark.parametrize(("engine", "here"), error_text._IN_WORDS_OF_THE_COMMAND_LINE)
def test_advice_of_the_engine_is_given_in_words_of_the_command_line(engine: str, here: str) -> None:
    assert any(engine in text for text in texts()), "the engine gives no such advice any more"
    assert here in error_text.explain(InvalidError(f"it is wrong: {engine}"))
