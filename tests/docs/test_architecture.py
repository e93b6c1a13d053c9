"""docs/design/architecture.md names every module there is and no other, and its walks go down; pages name only files
that exist."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from functools import cache
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


WALK = re.compile(r"^### (A put|A get beyond the cache|A takeover|A compaction|An ingest)\n(.*?)(?=^##)", re.M | re.S)
STEP = re.compile(r"^\d+\. (.*?)(?=^\d+\. |^\S|\Z)", re.M | re.S)
FILE = re.compile(r"`((?:[a-z_]+/)*[a-z_]+\.py)`")


@cache
def floors() -> dict[str, int]:
    """Each package that a contract orders, with the number of its floor from the top."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found: dict[str, int] = {}
    for contract in project["tool"]["importlinter"]["contracts"]:
        for container in contract.get("containers", []):
            for number, layer in enumerate(contract["layers"]):
                for name in re.findall(r"[a-z_]+", layer):
                    found.setdefault(f"{container}.{name}", number)
    return found


def floor_of(name: str) -> tuple[int, ...]:
    """The floors of ``name``, below ``slate_async/``, and of its packages."""
    parts = name.removesuffix(".py").split("/")
    dotted = (".".join(["slate_async", *parts[:depth]]) for depth in range(1, len(parts) + 1))
    return tuple(floors()[package] for package in dotted if package in floors())


def climbs(walk: str) -> list[str]:
    """What of the steps of ``walk`` lies above the step before it, or above the first file of its own step."""
    found: list[str] = []
    before: tuple[int, ...] = ()
    for step in STEP.findall(walk):
        files = FILE.findall(step)
        found += [name for name in files if floor_of(name) < floor_of(files[0])]
        if floor_of(files[0]) < before:
            found.append(files[0])
        before = floor_of(files[0])
    return found


def test_each_walk_goes_down() -> None:
    walks = WALK.findall(PAGE.read_text(encoding="utf-8"))
    assert len(walks) == 5
    for title, walk in walks:
        assert len(STEP.findall(walk)) > 3, title
        assert climbs(walk) == [], title


@pytest.mark.parametrize(
    ("walk", "climbing"),
    [
        ("1. `database/db.py`\n2. `engine/write/writer.py`, `storage/sst/reader.py`\n   and `engine/create.py`\n", []),
        ("1. `engine/write/writer.py`\n2. `engine/compaction/job.py`\n", ["engine/compaction/job.py"]),
        ("1. `storage/memtable/memtable.py`\n2. `storage/log/reader.py`\n", ["storage/log/reader.py"]),
        ("1. `storage/log/reader.py` for `database/db.py`\n2. `commits.py`\n", ["database/db.py"]),
    ],
)
def test_a_walk_that_climbs_is_found(walk: str, climbing: list[str]) -> None:
    assert climbs(walk) == climbing


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8").partition(BEGIN)[0]
    missing = [name for name in NAMED.findall(text) if not any((below / name).is_file() for below in BELOW)]
    assert missing == []


def test_a_purpose_is_the_first_sentence() -> None:
    assert first_sentence("What it does, e.g. this. And more.\n\nElse.") == "What it does, e.g. this"
    assert first_sentence("`put`: one\nrow (see ``x.y``). More.") == "`put`: one row"
    assert first_sentence("") == ""
