"""What stands in for a rule of collections that a role of the product keeps, and that is switched off."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from metastores.protocol import Committed
from slate_async.collections.codec.hold import encode_hold
from slate_async.collections.codec.life import Life
from slate_async.collections.controller import collect
from slate_async.collections.controller.context import ControllerContext
from slate_async.collections.controller.flights import Flights
from slate_async.collections.core import names
from slate_async.collections.core.garbage import Listed, Picture
from slate_async.collections.core.holding import Hold
from slate_async.collections.store.conditional import Written, put_if
from slate_async.collections.store.holds import HoldStore
from slate_async.collections.store.lives import BeginLife


async def write_over(self: HoldStore, reader: str, hold: Hold, etag: str | None) -> Written:
    """C10: over whatever is there."""
    store: Any = self._store
    if etag is None:
        return await put_if(store, names.hold_name(reader), encode_hold(hold), etag)
    return Committed(await store.put(names.hold_name(reader), encode_hold(hold)))


async def look_late(context: ControllerContext, lowest: int, flights: Flights) -> Picture | None:
    """C24: files are listed after the versions were read."""
    head = await context.versions.load()
    wanted = Listed(lowest, (), frozenset()).at(head)
    versions = await context.versions.read_range(min(wanted.versions, default=head.version), head)
    picture = Picture.of(wanted, versions)
    if picture is None:
        return None
    files = tuple(await collect.list_merged(context.store, context.schema))
    return replace(picture, listed=Listed(lowest, files, flights.names))


def in_one_folder(self: BeginLife, life: Life) -> Life | None:
    """C28: the next life has the folder of the one before it."""
    began = _begin(self, life)
    return None if began is None else replace(began, number=life.number)


_begin = BeginLife.apply
