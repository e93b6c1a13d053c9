"""Rules for code that was copied to save a call: every copy bears a mark, and what it is a copy of exists.

A mark is a comment above the copied lines, ``HOT: copy of <module.function>; <saved> ns, <date>``; the module's name
leaves out ``slate_async``. `tests/property/test_copies.py` runs each original and its copy on the same input.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tests.tidy.findings import Finding, Source

PACKAGE = "slate_async/"
SIGN = "HOT" + ":"
_MARK = re.compile(rf"^\s*# {SIGN} copy of ([\w.]+); \d+ ns, \d{{4}}-\d\d-\d\d$")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Copy(NamedTuple):
    """``place``: the function that holds the copy, and ``original``, both as ``module.function``."""

    path: str
    line: int
    place: str
    original: str


def marks(sources: Sequence[Source]) -> tuple[list[Copy], list[Finding]]:
    """All copies of the product, and the marks that are not written as a mark is."""
    copies: list[Copy] = []
    findings: list[Finding] = []
    for source in sources:
        if not source.is_product:
            continue
        for number, line in enumerate(source.lines, 1):
            if f"# {SIGN}" not in line:
                continue
            found = _MARK.match(line)
            place = _function_at(source, number)
            if found is None:
                findings.append(Finding(source.path, number, f"is no mark of a copy: {line.strip()}"))
            elif place is None:
                findings.append(Finding(source.path, number, "a copy is marked outside of any function"))
            else:
                copies.append(Copy(source.path, number, place, found[1]))
    return copies, findings


def originals(sources: Sequence[Source]) -> Iterator[Finding]:
    """What a mark names is a function of the product."""
    copies, findings = marks(sources)
    yield from findings
    known: dict[str, set[str]] = {}
    for source in sources if copies else ():
        if source.is_product and source.path.startswith(PACKAGE):
            known[_module(source.path)] = set(_functions(ast.parse(source.text)))
    for copy in copies:
        names = copy.original.split(".")
        if not any(".".join(names[at:]) in known.get(".".join(names[:at]), ()) for at in range(1, len(names))):
            yield Finding(copy.path, copy.line, f"{copy.original} is no function, so nothing can be a copy of it")


def _module(path: str) -> str:
    return path.removeprefix(PACKAGE).removesuffix(".py").replace("/", ".")


def _functions(node: ast.AST, outer: str = "") -> Iterator[str]:
    """The names of all functions and methods inside, with those of their classes."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _Function):
            yield outer + child.name
        if isinstance(child, _Function | ast.ClassDef):
            yield from _functions(child, f"{outer}{child.name}.")


def _function_at(source: Source, line: int) -> str | None:
    """The innermost function around ``line``."""
    node: ast.AST = ast.parse(source.text)
    names: list[str] = []
    inside = False
    while True:
        around = [
            child
            for child in ast.walk(node)
            if child is not node
            and isinstance(child, _Function | ast.ClassDef)
            and child.lineno <= line <= (child.end_lineno or 0)
        ]
        if not around:
            break
        node = min(around, key=lambda child: child.lineno)
        names.append(node.name)
        inside = isinstance(node, _Function)
    return ".".join([_module(source.path), *names]) if inside else None
