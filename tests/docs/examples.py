"""The examples of the documentation, found in its pages and run.

Each fenced ``python`` or ``sh`` block of a page is an example. It runs by itself, in an empty folder. In Python an
``await`` may stand at the top level; a shell ends at the first command that fails. A comment on the line above the
block says otherwise::

    <!-- example: not run, because it takes an hour -->
    <!-- example: in Spark -->              ``tests/spark/test_guide.py`` runs it, and prepares what it needs
    <!-- example: continues -->             the names of the block before are there, and its files
    <!-- example: given db, reader -->      these handles are open; see `GIVEN`. For a shell the database exists
    <!-- example: given db
    seen = 0                                more lines run before the block; of ``given`` alone, too
    -->

Stores named in examples (``s3://bucket/db``, ``file:///data/db``) stand for folders of the scratch folder.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

import slate_async as slate

ROOT = Path(__file__).resolve().parents[2]
LIMIT, SHELL_LIMIT = 30.0, 110.0  # seconds an example may take; each command of a shell starts an interpreter
GIVEN = ("db", "reader", "admin", "env")  # of the database at s3://bucket/db
BLOCK = re.compile(
    r"(?:^[ ]*<!-- example: (?P<mark>[^\n]*?)[ ]*(?:-->\n|\n(?P<setup>(?:(?!-->).)*)-->\n))?"
    r"^(?P<indent>[ ]*)```(?P<language>python|sh)\n(?P<code>.*?)^[ ]*```$",
    re.MULTILINE | re.DOTALL,
)
STORE = re.compile(r"(?:s3a?|gs|az)://|file:///data/")
NOT_RUN = re.compile(r"not run, because .{8,}")


@dataclass(frozen=True, slots=True)
class Example:
    """A block of code in a page, and what its comment says of it."""

    page: str
    line: int
    language: str
    mark: str
    setup: str
    code: str

    @property
    def runs(self) -> bool:
        return not self.mark.startswith("not run") and not self.in_spark

    @property
    def in_spark(self) -> bool:
        return self.mark == "in Spark"

    @property
    def continues(self) -> bool:
        return self.mark == "continues"

    @property
    def given(self) -> list[str]:
        names = self.mark.removeprefix("given").split(",") if self._gives else []
        return [name.strip() for name in names if name.strip()]

    @property
    def mark_is_known(self) -> bool:
        """Whether the comment is one of those above, with all names and reasons it needs."""
        if self._gives:
            return set(self.given) <= set(GIVEN)
        return self.in_spark or self.mark in ("", "continues") or NOT_RUN.fullmatch(self.mark) is not None

    @property
    def _gives(self) -> bool:
        return self.mark.startswith("given")


def pages() -> list[Path]:
    """All pages that have examples: the README and the documentation."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def examples_of(page: str, text: str) -> Iterator[Example]:
    """The examples of one page, from its top to its bottom."""
    for found in BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("code"))
        code = textwrap.dedent(found["code"])
        yield Example(page, line, found["language"], found["mark"] or "", found["setup"] or "", code)


def stories_of(examples: list[Example]) -> list[list[Example]]:
    """Examples that run, each with those of its language that it continues before it."""
    stories: list[list[Example]] = []
    for example in examples:
        if example.continues and (before := [story for story in stories if story[0].language == example.language]):
            before[-1].append(example)
        elif example.runs:
            stories.append([example])
    return stories


def run_story(story: list[Example], folder: Path) -> dict[str, Any]:
    """Run examples that share their names, in ``folder``; returns the names. Raises whatever an example raises."""
    if story[0].language == "sh":
        return _run_shell(story, folder)
    names: dict[str, Any] = {"__name__": "example", "slate": slate, "asyncio": asyncio}
    compiled = [_compiled(example, folder) for example in story]
    if not story[0].given and not any(code.co_flags & inspect.CO_COROUTINE for code in compiled):
        for code in compiled:
            exec(code, names)
        return names

    async def run() -> None:
        async with asyncio.timeout(LIMIT), AsyncExitStack() as stack:
            await _open_given(story[0].given, names, folder, stack)
            stack.push_async_callback(_close_what_is_left, names)
            for code in compiled:
                if (waiting := eval(code, names)) is not None:
                    await waiting

    asyncio.run(run())
    return names


def _run_shell(story: list[Example], folder: Path) -> dict[str, Any]:
    """Run examples in one shell. Raises `AssertionError` with what they printed if a command fails."""
    if story[0].given:
        asyncio.run(_open_once(folder))
    commands = in_folder("".join(example.setup + example.code for example in story), folder)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=folder,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("SLATE_")},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SHELL_LIMIT,
        check=False,
    )
    if done.returncode:
        raise AssertionError(f"{story[0].page}:{story[0].line}: exit code {done.returncode}\n{done.stdout}")
    return {"printed": done.stdout}


async def _open_once(folder: Path) -> None:
    async with AsyncExitStack() as stack:
        await _open_given(["db"], {}, folder, stack)


def _compiled(example: Example, folder: Path) -> CodeType:
    setup = in_folder(example.setup, folder)
    code = in_folder(example.code, folder)
    lines = setup.count("\n")
    source = "\n" * max(0, example.line - lines) + setup + code  # so that tracebacks name the page's lines
    return compile(source, example.page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def in_folder(code: str, folder: Path) -> str:
    return STORE.sub(f"file://{folder}/", code)


async def _close_what_is_left(names: dict[str, Any]) -> None:
    for handle in names.values():
        if isinstance(handle, slate.Db | slate.DbReader):
            await handle.close()


async def _open_given(given: list[str], names: dict[str, Any], folder: Path, stack: AsyncExitStack) -> None:
    """Open the handles an example takes for granted, all in one environment."""
    if not given:
        return
    url = f"file://{folder}/bucket/db"
    env = names["env"] = await stack.enter_async_context(slate.Environment())
    if set(given) & {"db", "reader", "admin"}:
        db = await stack.enter_async_context(env.open(url))
        if "db" in given:
            names["db"] = db
    if "reader" in given:
        names["reader"] = await env.open_reader(url)
    if "admin" in given:
        names["admin"] = await stack.enter_async_context(slate.open_admin(url))
