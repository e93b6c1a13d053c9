"""The modules that Spark imports to find the formats: they never fail, and leave the engine alone until it is used."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("pyspark")

import slate_async
from slate_async.spark import SlateChangesSource, SlateCollectionSource, SlateDataSource

FOLDER = Path(slate_async.__file__).parent / "spark" / "discovery"
SOURCES = {
    "pyspark_slate": SlateDataSource,
    "pyspark_slate_changes": SlateChangesSource,
    "pyspark_slate_collection": SlateCollectionSource,
}
OTHER = """
from pyspark.sql.datasource import DataSource

class DefaultSource(DataSource):
    @classmethod
    def name(cls):
        return "other"
"""
LOOK_UP = """
import io, sys
from pyspark.serializers import read_int, read_long
from pyspark.sql.worker.lookup_data_sources import _main

sys.path[:0] = sys.argv[1:]
told = io.BytesIO()
_main(io.BytesIO(), told)
told.seek(0)
for _ in range(read_int(told)):
    print(told.read(read_int(told)).decode())
    told.read(read_int(told))
print(any(name.partition(".")[0] == "slate_async" for name in sys.modules))
"""
"""What Spark runs; then whether it imported the engine."""


def imported(name: str) -> ModuleType:
    """The module, whatever was imported before."""
    found = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_every_source_has_a_module() -> None:
    assert sorted(file.stem for file in FOLDER.glob("*.py")) == sorted(SOURCES)


@pytest.mark.parametrize("name", SOURCES)
def test_it_becomes_the_source_when_it_is_used(name: str) -> None:
    found = imported(name).DefaultSource
    assert found.name() == SOURCES[name].name()
    made = found(options={"path": "/db"})
    assert type(made) is SOURCES[name]
    assert made.options == {"path": "/db"}


@pytest.mark.parametrize("name", SOURCES)
def test_where_spark_has_no_formats_in_python_it_offers_none(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql.datasource", None)
    assert not hasattr(imported(name), "DefaultSource")


@pytest.mark.parametrize("name", SOURCES)
def test_what_is_missing_is_named_when_it_is_used(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = imported(name).DefaultSource
    monkeypatch.setitem(sys.modules, SOURCES[name].__module__, None)
    with pytest.raises(ImportError, match=r"\[spark\] .* for .*python.*, beside pyspark 4.*: import of slate_async"):
        found(options={"path": "/db"})


def test_spark_finds_them_beside_others(tmp_path: Path) -> None:
    (tmp_path / "pyspark_other.py").write_text(OTHER)
    command = [sys.executable, "-c", LOOK_UP, str(tmp_path), str(FOLDER)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=tmp_path, check=False)
    assert done.stdout.split() == ["other", "slate", "slate-changes", "slate-collection", "False"], done.stderr
