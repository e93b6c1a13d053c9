"""Rules over Python modules: size, docstrings, and which modules may ask for time, chance, names and threads."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import PurePosixPath

from tests.tidy.findings import Finding, Source

MAX_MODULE_LINES = 500
MAX_FUNCTION_LINES = 80
RUNTIME = ("slate_async/runtime/", "slate_async/spark/", "metastores/runtime.py", "metastores/testing/")
"""Where the outside world may be asked."""

FORBIDDEN_CALLS = {
    "time": None,
    "random": None,
    "secrets": None,
    "uuid": {"uuid1", "uuid4", "getnode"},
    "os": {"urandom", "getrandom", "fork"},
    "threading": {"Thread", "Timer"},
    "concurrent.futures": {"ThreadPoolExecutor", "ProcessPoolExecutor"},
    "multiprocessing": None,
    "asyncio": {"to_thread"},
    "datetime.datetime": {"now", "utcnow", "today"},
    "datetime.date": {"today"},
}
"""Calls that ask the outside world, by module (``None``: all of its functions)."""


def size(source: Source, tree: ast.Module) -> Iterator[Finding]:
    """Modules and functions stay small; nothing is named for being useful."""
    if len(source.lines) - 1 > MAX_MODULE_LINES:
        yield Finding(source.path, 0, f"has more than {MAX_MODULE_LINES} lines")
    if PurePosixPath(source.path).name in ("util.py", "utils.py", "helpers.py", "misc.py"):
        yield Finding(source.path, 0, "is not named after what it does")
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                yield Finding(source.path, node.lineno, f"{node.name} has {lines} lines, over {MAX_FUNCTION_LINES}")


def docstrings(source: Source, tree: ast.Module) -> Iterator[Finding]:
    """A module that ships says what it is for, and so does every public class in it."""
    if not source.is_product:
        return
    if ast.get_docstring(tree) is None and tree.body:
        yield Finding(source.path, 1, "has no docstring")
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and ast.get_docstring(node) is None:
            yield Finding(source.path, node.lineno, f"{node.name} has no docstring")


def loop_names(source: Source, tree: ast.Module) -> Iterator[Finding]:
    """A loop variable is called for what it runs over, and so is a parameter, unless it is one of two alike."""
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            target = node.target
            if isinstance(target, ast.Name) and target.id == "one":
                yield Finding(source.path, target.lineno, "a loop variable is called one; give it its noun")
        elif isinstance(node, ast.arguments) and source.is_product:
            parameters = {parameter.arg: parameter.lineno for parameter in (*node.args, *node.kwonlyargs)}
            if "one" in parameters and "other" not in parameters:
                yield Finding(source.path, parameters["one"], "a parameter is called one; give it its noun")


def outside_world(source: Source, tree: ast.Module) -> Iterator[Finding]:
    """Time, chance, names and threads come from ``runtime`` alone, or the simulator could not replay a run."""
    if not source.is_product or source.path.startswith(RUNTIME):
        return
    names = _imported_names(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        module, _, function = _full_name(node.func, names).rpartition(".")
        if module in FORBIDDEN_CALLS:
            functions = FORBIDDEN_CALLS[module]
            if functions is None or function in functions:
                yield Finding(source.path, node.lineno, f"calls {module}.{function}; ask the Runtime")
        elif function == "run_in_executor":
            yield Finding(source.path, node.lineno, "calls run_in_executor; ask the Runtime's Offload")


def _imported_names(tree: ast.Module) -> dict[str, str]:
    """Local name -> full name, for every import anywhere in the module."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _full_name(node: ast.expr, names: dict[str, str]) -> str:
    """``module.function`` of a called expression; a leading ``?`` where it is no imported name."""
    if isinstance(node, ast.Attribute):
        return f"{_full_name(node.value, names)}.{node.attr}"
    if isinstance(node, ast.Name):
        return names.get(node.id, f"?{node.id}")
    return "?"
