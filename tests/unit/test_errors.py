"""Errors go to other processes as they are."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import slate_async as slate
from slate_async.objectstore.protocol import ObjectNotFoundError


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


def test_every_public_error_is_in_the_documentation() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    public = [getattr(slate, name) for name in slate.__all__]
    errors = [kind for kind in public if isinstance(kind, type) and issubclass(kind, slate.SlateError)]
    assert len(errors) > 9
    for kind in errors:
        assert f"`{kind.__name__}`" in page or f"`slate.{kind.__name__}`" in page
