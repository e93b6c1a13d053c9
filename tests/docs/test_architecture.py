"""docs/design/architecture.md names every module there is and no other; pages name only files that exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.module_tree import BEGIN, END, PAGE, first_sentence

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"`((?:[a-z_]+/)+[a-z_]+\.py)`")
BELOW = (ROOT, ROOT / "slate_async", ROOT / "tests" / "simulation")


def modules_of_the_tree() -> list[str]:
    """Paths of the modules that the page's tree names."""
    named: list[str] = []
    folder = ""
    for line in PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].splitlines():
        if heading := re.match(r"#+ `([a-z_/]+)`$", line):
            folder = heading[1]
        elif module := re.match(r"- `([a-z_0-9]+\.py)`: \S", line):
            named.append(folder + module[1])
    return named


def test_every_module_is_named_and_no_other() -> None:
    there = {
        str(path.relative_to(ROOT))
        for package in ("slate_async", "metastores")
        for path in (ROOT / package).rglob("*.py")
        if path.name != "__init__.py"
    }
    named = modules_of_the_tree()
    assert set(named) == there
    assert len(named) == len(there)


def test_the_tree_is_up_to_date() -> None:
    """`scripts/module_tree.py` writes it."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "module_tree.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8").partition(BEGIN)[0]
    missing = [name for name in NAMED.findall(text) if not any((below / name).is_file() for below in BELOW)]
    assert missing == []


def test_a_purpose_is_the_first_sentence() -> None:
    assert first_sentence("What it does, e.g. this. And more.\n\nElse.") == "What it does, e.g. this"
    assert first_sentence("`put`: one\nrow (see ``x.y``). More.") == "`put`: one row"
    assert first_sentence("") == ""
