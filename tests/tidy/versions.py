"""What the project says it supports and needs, against what is installed and what its modules import."""

from __future__ import annotations

import ast
import importlib.metadata
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.tidy.findings import Finding, Source

PYPROJECT = "pyproject.toml"
OWN = {"slate_async", "metastores", "tests"}
OPTIONAL_CHECKED = "dev"


def installed(root: Path) -> Iterator[Finding]:
    """Python and every dependency, those of the ``dev`` extra included, satisfy the bounds the project states."""
    project = _project(root)
    running = ".".join(map(str, sys.version_info[:3]))
    if running not in SpecifierSet(project["requires-python"]):
        yield Finding(PYPROJECT, 0, f"requires Python {project['requires-python']}, this is {running}")
    for requirement in _requirements(project, OPTIONAL_CHECKED):
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            yield Finding(PYPROJECT, 0, f"needs {requirement}, which is not installed")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            yield Finding(PYPROJECT, 0, f"needs {requirement}, installed is {version}")


def one_python(root: Path) -> Iterator[Finding]:
    """The oldest Python is the same wherever it is stated."""
    document = tomllib.loads((root / PYPROJECT).read_text())
    oldest = document["project"]["requires-python"].removeprefix(">=")
    stated = {
        "tool.ruff.target-version": (document["tool"]["ruff"]["target-version"], f"py{oldest.replace('.', '')}"),
        "tool.mypy.python_version": (document["tool"]["mypy"]["python_version"], oldest),
    }
    for name, (value, expected) in stated.items():
        if value != expected:
            yield Finding(PYPROJECT, 0, f"{name} is {value}, the oldest Python is {oldest}")


def declared(sources: list[Source], root: Path) -> Iterator[Finding]:
    """Whatever a shipped module imports is a dependency, core or of an extra."""
    project = _project(root)
    every = {canonicalize_name(r.name) for extra in ("dev", "bench") for r in _requirements(project, extra)}
    providers = importlib.metadata.packages_distributions()
    for source in sources:
        if not source.is_product:
            continue
        for line, module in _imported_modules(source):
            if module in sys.stdlib_module_names or module in OWN:
                continue
            distributions = {canonicalize_name(name) for name in providers.get(module, [])}
            if not distributions & every:
                yield Finding(source.path, line, f"imports {module}, which no dependency of the project provides")


def _project(root: Path) -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((root / PYPROJECT).read_text())["project"]
    return project


def _requirements(project: dict[str, Any], extra: str | None) -> list[Requirement]:
    """The core's requirements and an extra's, extras that name other extras followed."""
    followed: set[str] = set()
    found, waiting = [], list(project["dependencies"])
    waiting += project["optional-dependencies"].get(extra, [])
    while waiting:
        requirement = Requirement(waiting.pop())
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra or ""}):
            continue
        if canonicalize_name(requirement.name) != canonicalize_name(project["name"]):
            found.append(requirement)
            continue
        for name in sorted(requirement.extras - followed):
            followed.add(name)
            waiting += project["optional-dependencies"][name]
    return found


def _imported_modules(source: Source) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source.text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module.partition(".")[0]
