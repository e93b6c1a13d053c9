"""The facade has the names, arguments and defaults of what it is a facade of."""

from __future__ import annotations

import inspect

import pytest

import slate_async as slate
from slate_async.engine.changes.feed import ChangeFeed

CLASSES = [
    (slate.Db, slate.sync.Db),
    (slate.DbReader, slate.sync.DbReader),
    (slate.Snapshot, slate.sync.Snapshot),
    (slate.Admin, slate.sync.Admin),
    (slate.Checkpoints, slate.sync.Checkpoints),
    (slate.Ingests, slate.sync.Ingests),
    (slate.Inspection, slate.sync.Inspection),
    (slate.DbCompactor, slate.sync.DbCompactor),
    (slate.GarbageCollector, slate.sync.GarbageCollector),
    (slate.IngestJob, slate.sync.IngestJob),
    (slate.IngestTask, slate.sync.IngestTask),
    (slate.Scan, slate.sync.Scan),
    (slate.WriteHandle, slate.sync.WriteHandle),
    (ChangeFeed, slate.sync.ChangeFeed),
    (slate.Readable, slate.sync.Readable),
]
OTHERWISE = {"aclose": "close"}
"""What has another name where nothing is awaited."""
FUNCTIONS = [name for name in slate.__all__ if name.startswith("open")]


def arguments(function: object) -> list[tuple[str, object, object]]:
    """Name, kind and default of each."""
    assert callable(function)
    return [
        (parameter.name, parameter.kind, parameter.default)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name not in ("self", "runtime", "environment")
    ]


@pytest.mark.parametrize(("engine", "facade"), CLASSES, ids=lambda kind: kind.__name__)
def test_a_class_has_the_methods_of_its_engine(engine: type, facade: type) -> None:
    names = {name for name in dir(engine) if not name.startswith("_")}
    for name in names:
        own = getattr(facade, OTHERWISE.get(name, name), None)
        wanted = getattr(engine, name)
        if inspect.isfunction(wanted):
            assert own is not None, name
            assert (name, arguments(own)) == (name, arguments(wanted))
    assert {OTHERWISE.get(name, name) for name in names if inspect.isfunction(getattr(engine, name))} >= {
        name for name in dir(facade) if not name.startswith("_") and inspect.isfunction(getattr(facade, name))
    }


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_the_arguments_of_its_engine(name: str) -> None:
    assert arguments(getattr(slate.sync, name)) == arguments(getattr(slate, name))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_environment_opens_with_the_same_arguments(name: str) -> None:
    assert arguments(getattr(slate.Environment, name)) == arguments(getattr(slate, name))


def test_an_environment_has_the_arguments_of_its_engine() -> None:
    assert arguments(slate.sync.Environment) == arguments(slate.Environment)
