"""Public names that are imported at first use, and what a process imports that needs few of them."""

from __future__ import annotations

import ast
import gc
import importlib
import pkgutil
from pathlib import Path

import pytest

from slate_async.late_names import late_names
from tests.support.interpreter import run

LATE = ["slate_async", "slate_async.spark"]
HEAVY = {"anyio", "asyncio", "metastores", "numpy", "pandas", "pyarrow", "pydantic", "pyspark"}


PACKAGES = {"collections", "keys", "sync"}
"""Given whole, not name by name."""


def declared(package: str) -> dict[str, str]:
    """Public names by the modules that type checkers find them in; a module that is public itself by its own."""
    file = importlib.import_module(package).__file__
    assert file is not None
    found: dict[str, str] = {}
    for statement in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8"))):
        if isinstance(statement, ast.ImportFrom) and statement.module not in ("typing", "slate_async.late_names"):
            for alias in statement.names:
                whole = statement.module == package
                found[alias.name] = f"{package}.{alias.name}" if whole else str(statement.module)
    return found


def given(package: str) -> dict[str, str]:
    """The same of what `late_names` is given."""
    file = importlib.import_module(package).__file__
    assert file is not None
    [table] = [
        node for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8"))) if isinstance(node, ast.Dict)
    ]
    modules: dict[str, str] = ast.literal_eval(table)
    return {name: module for module, names in modules.items() for name in names.split() or [module.rpartition(".")[2]]}


@pytest.fixture(params=LATE)
def package(request: pytest.FixtureRequest) -> str:
    if request.param == "slate_async.spark":
        pytest.importorskip("pyspark")
    return str(request.param)


def test_a_package_gives_what_type_checkers_find(package: str) -> None:
    names = importlib.import_module(package).__all__
    assert given(package) == declared(package)
    assert set(names) == set(given(package)) - PACKAGES
    for name in names:
        assert getattr(importlib.import_module(package), name) is getattr(
            importlib.import_module(given(package)[name]), name
        )


def test_no_module_takes_the_place_of_a_public_name(package: str) -> None:
    modules = {module.name for module in pkgutil.iter_modules(importlib.import_module(package).__path__)}
    assert modules & set(given(package)) <= PACKAGES


def test_a_name_that_is_not_there_is_no_attribute(package: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        importlib.import_module(package).nothing  # noqa: B018 - it raises
    with pytest.raises(ImportError, match="nothing"):
        exec(f"from {package} import nothing")


def test_a_name_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    slate = importlib.import_module("slate_async")
    find = late_names("slate_async", {"slate_async.types": "Row", "slate_async.sync": ""})
    monkeypatch.delattr(slate, "Row", raising=False)
    assert find("Row") is vars(slate)["Row"]
    assert find("sync") is importlib.import_module("slate_async.sync")


@pytest.mark.parametrize("collecting", [True, False])
def test_python_looks_for_garbage_as_before(collecting: bool) -> None:
    find = late_names("slate_async", {"slate_async.types": "Row", "slate_async.nothing": "Nothing"})
    try:
        (gc.enable if collecting else gc.disable)()
        find("Row")
        assert gc.isenabled() == collecting
        with pytest.raises(ModuleNotFoundError):
            find("Nothing")
        assert gc.isenabled() == collecting
    finally:
        gc.enable()


def modules_after(code: str) -> set[str]:
    """The modules that a fresh interpreter has after ``code``, with the packages they are in."""
    return set(run(f"{code}\nimport sys; print(*sys.modules)"))


def test_to_import_the_package_imports_next_to_nothing() -> None:
    imported = modules_after("import slate_async; slate_async.InvalidError, slate_async.__version__")
    assert HEAVY.isdisjoint(imported)
    assert {name for name in imported if name.startswith("slate_async")} == {
        "slate_async",
        "slate_async.errors",
        "slate_async.late_names",
    }
