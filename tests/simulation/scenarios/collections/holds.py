"""Holds of read handles: written by compare-and-set, believed after a look."""

from __future__ import annotations

from dataclasses import dataclass, field

from slate_async.collections.core import holding, names
from slate_async.collections.core.area import Area
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.holding import Cover, Handle, Hold, Progress, StoredHold
from slate_async.collections.core.times import Time
from slate_async.errors import ClosedError
from tests.simulation.scenarios.collections.stage import (
    TAKEN,
    UNKNOWN,
    LeaseLost,
    Request,
    Role,
    Stage,
    Stored,
    Update,
)


@dataclass(slots=True)
class Listening:
    """A listener from ``as_of`` that has come to ``coverage``; ``seen``: all that it was given after the snapshot."""

    as_of: Time
    coverage: Frontier
    seen: list[Update]


@dataclass(slots=True)
class Reader:
    """A handle, the version that it reads, and its listener."""

    handle: Handle
    area: Area
    listening: Listening | None = field(default=None)

    @property
    def coverages(self) -> list[Frontier]:
        """Where its listeners are."""
        return [] if self.listening is None else [self.listening.coverage]


def stored_hold(found: Stored | None) -> StoredHold | None:
    """As the product knows it."""
    return None if found is None else StoredHold(found.value, found.etag)


def get_hold(stage: Stage, handle: Handle) -> Request:
    """Read the hold of ``handle``."""
    return stage.get(names.hold_name(handle.reader))


def send(stage: Stage, handle: Handle, hold: Hold) -> Request:
    """One attempt: C10."""
    name = names.hold_name(handle.reader)
    if handle.etag is None:
        return stage.create(name, hold, "hold")
    return stage.match(name, handle.etag, hold, "hold")


def write_hold(
    stage: Stage, reader: Reader, *, version: int | None = None, since: Frontier | None = None
) -> Role[None]:
    """Until an attempt is in. Raises `LeaseLost`."""
    while True:
        nonce = stage.token()
        reader.handle = handle = holding.attempt(reader.handle, nonce, version=version, since=since)
        answer = yield send(stage, handle, holding.to_write(handle, nonce))
        if answer is not UNKNOWN and answer != TAKEN:
            reader.handle = holding.written(handle, answer)
            return
        progress, reader.handle = holding.resolved(handle, stored_hold((yield get_hold(stage, handle))))
        if progress is Progress.LOST:
            raise LeaseLost
        if progress is Progress.CONFIRMED:
            return


def register(stage: Stage, reader: Reader) -> Role[None]:
    """C11: put, then look, and follow what was published."""
    yield from stage.nap("register", 120)
    yield from write_hold(stage, reader)
    while True:
        head: Area = yield stage.read_head()
        if holding.registered(reader.handle, head):
            return
        yield from follow(stage, reader, head, since=True)


def follow(stage: Stage, reader: Reader, head: Area, *, since: bool) -> Role[None]:
    """A hold that came too late goes to where the head is."""
    stage.stats["late hold"] += 1
    try:
        version, bound = holding.following_head(reader.handle, head, since=since)
    except ClosedError as error:
        raise LeaseLost from error
    reader.area = head
    yield from write_hold(stage, reader, version=version, since=bound)


def register_clone(stage: Stage, clone: Reader, source: Reader) -> Role[bool]:
    """C12: whether what the source holds covers the clone."""
    yield from stage.nap("clones", 150)
    yield from write_hold(stage, clone)
    while True:
        found = stored_hold((yield get_hold(stage, source.handle)))
        cover = holding.covered(clone.handle, source.handle, found)
        if cover is not Cover.SINCE:
            return cover is Cover.ALL
        head: Area = yield stage.read_head()
        if holding.has_version(clone.handle, head):
            return True
        yield from follow(stage, clone, head, since=False)
