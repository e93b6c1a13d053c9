"""Everything that calls itself readable has the methods of `Readable`, with the same parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

import slate_async as slate
from slate_async.database.snapshot import Snapshot


@pytest.mark.parametrize("kind", [slate.Db, slate.DbReader, Snapshot])
@pytest.mark.parametrize("name", ["get", "get_many", "get_row", "scan", "splits"])
def test_same_parameters(kind: type, name: str) -> None:
    wanted = inspect.signature(getattr(slate.Readable, name)).parameters
    offered = inspect.signature(getattr(kind, name)).parameters
    for parameter, what in wanted.items():
        assert parameter in offered, parameter
        assert (offered[parameter].kind, offered[parameter].default) == (what.kind, what.default)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (slate.Db.snapshot, slate.DbReader.snapshot),
        (slate.Db.as_of, slate.DbReader.as_of),
    ],
)
def test_what_two_offer_is_called_alike(one: Callable[..., object], other: Callable[..., object]) -> None:
    assert inspect.signature(one).parameters == inspect.signature(other).parameters
