"""The import contracts can fail: each case breaks them in a tree of empty modules, also for products to come."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.tidy import contracts

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = ROOT / "pyproject.toml"
LINT = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"


@pytest.fixture(scope="module")
def skeleton(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every module that a layer names, in parentheses or not, as an empty package, and the contracts themselves."""
    root = tmp_path_factory.mktemp("skeleton")
    shutil.copy(PYPROJECT, root)
    made = {"metastores", "slate_async", "slate_async.storage.format"}
    for contract in tomllib.loads(PYPROJECT.read_text())["tool"]["importlinter"]["contracts"]:
        for container in contract.get("containers", ()):
            made |= {f"{container}.{name}" for layer in contract["layers"] for name in re.findall(r"\w+", layer)}
        made |= set(contract.get("source_modules", ()))
    for name in made:
        folder = root.joinpath(*name.split("."))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").touch()
    return root


def broken(skeleton: Path, importer: str, imported: str) -> set[str]:
    """The names of the contracts that are broken when module ``importer``, made anew, imports ``imported``."""
    file = skeleton.joinpath(*importer.split(".")).with_suffix(".py")
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"import {imported}\n")
    try:
        ended = subprocess.run(
            [sys.executable, "-c", LINT, "--no-cache"],
            cwd=skeleton,
            env={**os.environ, "PYTHONPATH": str(skeleton), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        file.unlink()
    found = set(re.findall(r"^(\S.*) BROKEN$", ended.stdout, re.MULTILINE))
    assert bool(found) == bool(ended.returncode), ended.stdout + ended.stderr
    return found


ONE_WAY, APART = "Imports go one way", "Products do not know each other"


@pytest.mark.parametrize(
    ("importer", "imported", "names"),
    [
        ("slate_async.engine.read.scan", "slate_async.storage.sst", set()),
        ("slate_async.collections.store.lives", "slate_async.commits", set()),
        ("slate_async.tables.core.scan", "slate_async.codec.columns", set()),
        ("slate_async.flight.server", "slate_async.tables", set()),
        ("slate_async.bridges.relay", "slate_async.tables", set()),
        ("slate_async.storage.sst.reader", "slate_async.engine", {ONE_WAY, APART}),
        ("slate_async.collections.store.lives", "slate_async.engine", {APART}),
        ("slate_async.tables.core.head", "slate_async.storage.manifest", {APART}),
        ("slate_async.dfs.store", "slate_async.database", {ONE_WAY, APART}),
        ("slate_async.engine.read.scan", "slate_async.collections", {ONE_WAY}),
        ("slate_async.storage.sst.reader", "slate_async.dfs", {ONE_WAY, APART}),
        ("slate_async.objectstore.url", "slate_async.dfs", {ONE_WAY}),
        ("slate_async.dfs.store", "slate_async.tables", {ONE_WAY, APART}),
        ("slate_async.database.db", "slate_async.spark", {ONE_WAY}),
        ("slate_async.engine.read.scan", "slate_async.engine.write", {"Inside the engine imports go one way"}),
        ("slate_async.codec.columns", "slate_async.commits", {ONE_WAY}),
        ("slate_async.collections.core.spine", "asyncio", {"The core of collections is pure"}),
        ("slate_async.collections.core.spine", "slate_async.objectstore", {"The core of collections is pure"}),
        (
            "slate_async.collections.core.spine",
            "slate_async.collections.store",
            {"Inside collections imports go one way"},
        ),
        ("metastores.names", "slate_async.errors", {"Metastores know nothing of the engine"}),
        ("slate_async.loose", "slate_async.errors", {ONE_WAY}),
        ("slate_async.engine.loose", "slate_async.errors", {"Inside the engine imports go one way"}),
    ],
)
def test_contracts(skeleton: Path, importer: str, imported: str, names: set[str]) -> None:
    assert broken(skeleton, importer, imported) == names


def test_no_layer_is_a_list_of_loose_modules_and_nothing_is_excepted() -> None:
    document = tomllib.loads(PYPROJECT.read_text())["tool"]["importlinter"]
    assert not any("ignore_imports" in contract for contract in document["contracts"])
    layered = [contract for contract in document["contracts"] if contract["type"] == "layers"]
    assert not any(":" in layer for contract in layered for layer in contract["layers"])
    assert [contract["id"] for contract in layered if not contract.get("exhaustive")] == ["products"]


def loose_modules(package: Path) -> list[str]:
    """Modules beside the folders of ``package``."""
    return sorted(path.stem for path in package.glob("*.py") if path.stem != "__init__")


def test_few_modules_lie_loose_at_the_top(tmp_path: Path) -> None:
    """What everybody stands on may lie there; anything else has a floor."""
    for name in ("__init__", "one", "two"):
        (tmp_path / f"{name}.py").touch()
    assert loose_modules(tmp_path) == ["one", "two"]
    assert 0 < len(loose_modules(ROOT / "slate_async")) <= 8


def test_a_new_package_is_under_every_contract(skeleton: Path) -> None:
    """That of products that come, too: `tests.tidy` names those that the contracts leave out."""
    left_out = {finding.message for finding in contracts.complete(skeleton)}
    assert {f"contract {contract} leaves out slate_async.dfs" for contract in ("spark", "sdks")} <= left_out
    assert not any("slate_async.engine" in message for message in left_out)
    assert list(contracts.complete(ROOT)) == []
