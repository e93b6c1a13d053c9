"""The facade has the names, arguments and defaults of what it is a facade of."""

from __future__ import annotations

import inspect
import pickle
import pydoc
import re
from collections.abc import Callable
from typing import get_type_hints

import pytest

import slate_async as slate
from slate_async.database.opener import Opener
from slate_async.engine.changes.feed import ChangeFeed
from slate_async.sync import collection_handles

CLASSES = [
    (slate.Db, slate.sync.Db),
    (slate.DbReader, slate.sync.DbReader),
    (slate.Snapshot, slate.sync.Snapshot),
    (slate.Namespace, slate.sync.Namespace),
    (slate.Map, slate.sync.Map),
    (slate.NamespaceView, slate.sync.NamespaceView),
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
    (slate.Watch, slate.sync.Watch),
    (slate.Readable, slate.sync.Readable),
    (slate.Lake, slate.sync.Lake),
    (slate.Collection, slate.sync.Collection),
    (slate.collections.BatchBuilder, collection_handles.BatchBuilder),
    (slate.collections.Controller, collection_handles.Controller),
    (slate.collections.ControllerService, collection_handles.ControllerService),
    (slate.collections.CriticalHandle, collection_handles.CriticalHandle),
    (slate.collections.ReadHandle, collection_handles.ReadHandle),
    (slate.collections.Snapshot, collection_handles.Snapshot),
    (slate.collections.Writer, collection_handles.Writer),
]
OTHERWISE = {"aclose": "close"}
"""What has another name where nothing is awaited."""
FUNCTIONS = [name for name in slate.__all__ if hasattr(Opener, name)]


def arguments(function: object) -> list[tuple[str, object, object]]:
    """Name, kind and default of each."""
    assert callable(function)
    return [
        (parameter.name, parameter.kind, parameter.default)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name not in ("self", "runtime")
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


def test_collections_are_opened_with_the_same_arguments() -> None:
    assert arguments(slate.sync.open_collections) == arguments(slate.open_collections)


@pytest.mark.parametrize("environment", [slate.Environment, slate.sync.Environment], ids=["await", "sync"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_environment_opens_with_the_same_arguments(name: str, environment: type) -> None:
    assert arguments(getattr(environment, name)) == arguments(getattr(slate, name))


def test_nobody_but_the_opener_declares_arguments() -> None:
    """What is derived has nothing to fall behind with."""
    for name in FUNCTIONS:
        for derived in (getattr(slate, name), getattr(slate.sync, name), getattr(slate.sync.Environment, name)):
            assert inspect.unwrap(derived) is getattr(Opener, name)
            assert inspect.getdoc(derived) == inspect.getdoc(getattr(Opener, name))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_class_that_is_returned_is_shown(name: str) -> None:
    shown = inspect.signature(getattr(slate, name)).return_annotation
    kind = shown.removeprefix("Opening[").removesuffix("]")
    assert shown == f"Opening[{kind}]"
    assert inspect.signature(getattr(slate.sync, name)).return_annotation == kind
    assert inspect.signature(getattr(slate.sync.Environment, name)).return_annotation == kind
    assert get_type_hints(getattr(slate, name))["return"] == slate.Opening[getattr(slate, kind)]
    assert get_type_hints(getattr(slate.sync, name))["return"] is getattr(slate.sync, kind)


def test_help_shows_every_argument() -> None:
    shown = pydoc.plain(pydoc.render_doc(slate.open))
    assert "open(path: 'DatabasePath', *, metastore: 'str | MetaStoreFactory | None' = None, settings:" in shown
    assert "standby: wait until no writer has the database open" in shown
    assert "environment" not in shown
    assert shown.startswith("Python Library Documentation: function open in module slate_async.database.open")


CALLS = [
    ("open()", slate.open),
    ("open()", slate.sync.open),
    ("open()", slate.sync.Environment.open),
    ("open_ingest_task()", slate.open_ingest_task),
    ("open_ingest_task()", slate.sync.open_ingest_task),
]


@pytest.mark.parametrize(("name", "call"), CALLS)
def test_wrong_arguments_are_told_of_the_name_that_was_called(name: str, call: Callable[..., object]) -> None:
    name = f"^{re.escape(name)} "
    own = [object()] if "self" in inspect.signature(call).parameters else []
    with pytest.raises(TypeError, match=f"{name}got an unexpected keyword argument 'wrong_kw'"):
        call(*own, "memory://x", "spec", wrong_kw=1) if "task" in name else call(*own, "memory://x", wrong_kw=1)
    with pytest.raises(TypeError, match=f"{name}missing a required argument: 'path'"):
        call(*own)
    with pytest.raises(TypeError, match=f"{name}too many positional arguments"):
        call(*own, "memory://x", "spec", "more")


def test_functions_can_be_sent_to_other_processes() -> None:
    for name in FUNCTIONS:
        for function in (getattr(slate, name), getattr(slate.sync, name)):
            assert pickle.loads(pickle.dumps(function)) is function


def test_an_environment_has_the_arguments_of_its_engine() -> None:
    assert arguments(slate.sync.Environment) == arguments(slate.Environment)
