"""Everything that calls itself readable has the methods of `Readable`, with the same parameters."""

from __future__ import annotations

import inspect

import pytest

import slate_async as slate
from slate_async.snapshot import Snapshot


@pytest.mark.parametrize("kind", [slate.Db, Snapshot])
@pytest.mark.parametrize("name", ["get", "get_many", "get_row", "scan"])
def test_same_parameters(kind: type, name: str) -> None:
    wanted = inspect.signature(getattr(slate.Readable, name)).parameters
    offered = inspect.signature(getattr(kind, name)).parameters
    for parameter, what in wanted.items():
        assert parameter in offered, parameter
        assert (offered[parameter].kind, offered[parameter].default) == (what.kind, what.default)
