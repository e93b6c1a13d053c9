"""Errors go to other processes as they are."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
from pathlib import Path

import pytest

import slate_async as slate
from slate_async.objectstore.protocol import ObjectNotFoundError
from slate_async.rpc.statuses import StatusError


@pytest.mark.parametrize(
    "error",
    [
        slate.InvalidError("wrong"),
        slate.UnavailableError("no answer", outcome="unknown"),
        slate.CorruptionError("is damaged", object_name="sst/1", offset=7),
        ObjectNotFoundError("sst/2"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_pickling(error: slate.SlateError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), again.__dict__) == (str(error), error.__dict__)


def test_every_error_is_of_one_of_seven_kinds() -> None:
    """But for the answer of a store, of which the engine makes one of them, and for a status that a service answers."""
    for module in pkgutil.walk_packages(slate.__path__, "slate_async."):
        if not module.name.startswith(("slate_async.spark", "slate_async.cli.__main__")):
            importlib.import_module(module.name)
    kinds = {kind for kind in slate.SlateError.__subclasses__() if kind.__module__.startswith("slate_async.")}
    of_errors = {kind for kind in kinds if kind.__module__ == "slate_async.errors"}
    assert (len(of_errors), kinds - of_errors) == (7, {ObjectNotFoundError, StatusError})
    assert issubclass(slate.IngestPendingError, slate.UnavailableError)


def test_every_public_error_is_in_the_documentation() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    public = [getattr(slate, name) for name in slate.__all__]
    errors = [kind for kind in public if isinstance(kind, type) and issubclass(kind, slate.SlateError)]
    assert len(errors) > 9
    for kind in errors:
        assert f"`{kind.__name__}`" in page or f"`slate.{kind.__name__}`" in page
