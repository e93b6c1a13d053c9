"""The import contracts leave no module out."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.findings import Finding

PYPROJECT = "pyproject.toml"
EDGES = {"spark": {"spark"}, "sdks": {"cli", "objectstore", "spark"}, "grpc": {"flight", "rpc"}}
"""By contract: what may import what the contract forbids to all others."""


def complete(root: Path) -> Iterator[Finding]:
    """Every module at the top of ``slate_async`` is under each contract that keeps optional packages at the edges."""
    contracts = tomllib.loads((root / PYPROJECT).read_text())["tool"]["importlinter"]["contracts"]
    package = root / "slate_async"
    top = {path.stem for path in package.glob("*.py")} | {path.parent.name for path in package.glob("*/__init__.py")}
    for contract in contracts:
        edges = EDGES.get(contract["id"])
        if edges is None:
            continue
        named = {name.removeprefix("slate_async.") for name in contract["source_modules"]}
        for name in sorted(top - {"__init__"} - edges - named):
            yield Finding(PYPROJECT, 0, f"contract {contract['id']} leaves out slate_async.{name}")
