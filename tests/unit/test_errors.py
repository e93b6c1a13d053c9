"""Errors go to other processes as they are."""

from __future__ import annotations

import pickle

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
