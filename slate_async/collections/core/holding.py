"""A read handle as a state machine: what it may believe and use, and what it writes next. Performs nothing.

A hold is one object, changed by compare-and-set only (C10). Every attempt to write it is sent once, with a nonce of its
own; an outcome that is unknown is resolved by reading. The hold *stands* for its owner iff it carries the etag that the
owner confirmed last: a registration that lands late can make a hold of that name again after it was revoked.

Ordering rules:
* a new hold is put, THEN the head is read, or for a clone the source's hold, and only then it is believed (C11, C12)
* what a move gives up is given up when it is SENT, whatever is answered; scans under way end first (C13)
* a newer version may be used as soon as it is read, under the older hold

Rules C10 to C15 of collections.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from slate_async.codec.records import no_fields
from slate_async.collections.core.area import Area
from slate_async.collections.core.frontier import Frontier
from slate_async.errors import ClosedError, InternalError


@dataclass(frozen=True, slots=True)
class Hold:
    """What a handle stores. ``nonce``: of the attempt that wrote it.

    version: merged area versions from it on, and what they name, stay; ``None`` for a critical hold
    since: compaction stays at or below it
    lease_ms: the hold may be revoked when it was not written for so long; ``None`` for a critical hold
    beat: how often it was written
    note: the owner's, to say who it is
    token: of a critical hold: the owner's word for how far it is; ``None`` until it is registered
    """

    version: int | None
    since: Frontier
    lease_ms: int | None
    nonce: str
    beat: int = 0
    note: str = ""
    revoked: bool = False
    token: str | None = None
    unknown: Mapping[str, Any] = field(default_factory=no_fields)

    @property
    def is_critical(self) -> bool:
        """Whether it has no lease and holds since only."""
        return self.version is None


@dataclass(frozen=True, slots=True)
class StoredHold:
    """A hold as it was read. ``damage``: what is wrong with its bytes, see `unreadable`; empty if nothing is."""

    hold: Hold
    etag: str
    damage: str = ""


def unreadable(minimum: Frontier, etag: str, damage: str) -> StoredHold:
    """A hold whose bytes are damaged. Nobody knows what it keeps, so it counts as one that keeps every version and
    every time, and that has no lease which could end: until a user expires it."""
    return StoredHold(Hold(0, minimum, None, ""), etag, damage)


class Progress(Enum):
    """What a look at the own hold says of the attempts before it."""

    CONFIRMED = "confirmed"
    AGAIN = "again"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Handle:
    """What a handle knows of itself.

    reader: its name
    version: it uses no version below this one; ``None`` if it is critical
    since: it asks for nothing that is not beyond it
    etag: of the hold as it was confirmed last; ``None`` before the first time
    attempts: nonces of what was sent since then
    """

    reader: str
    version: int | None
    since: Frontier
    lease_ms: int | None
    note: str = ""
    etag: str | None = None
    attempts: frozenset[str] = frozenset()
    beat: int = 0
    unknown: Mapping[str, Any] = field(default_factory=no_fields)

    @property
    def is_critical(self) -> bool:
        """Whether its hold has no lease and holds since only."""
        return self.version is None


# ---- making one


def registering(reader: str, head: Area, lease_ms: int | None, note: str = "") -> Handle:
    """A new handle at the bound of ``head``; one without a lease is critical."""
    return Handle(reader, None if lease_ms is None else head.version, head.bound, lease_ms, note)


def cloning(reader: str, source: Handle, head: Area, lease_ms: int | None, note: str = "") -> Handle:
    """A new handle with what ``source`` holds: of a critical one the since, and the version of ``head``."""
    version = head.version if source.version is None else source.version
    return Handle(reader, None if lease_ms is None else version, source.since, lease_ms, note)


# ---- writing the hold


def attempt(handle: Handle, nonce: str, *, version: int | None = None, since: Frontier | None = None) -> Handle:
    """``handle`` about to write its hold once: what it gives up it gives up now (C13). `to_write` is what to send, with
    `Handle.etag` as its condition.

    version, since: where to move to; ``None`` leaves it. Neither goes back"""
    if version is not None and (handle.version is None or version < handle.version):
        raise InternalError(f"the hold of {handle.reader} would go from version {handle.version} to {version}")
    return replace(
        handle,
        version=handle.version if version is None else version,
        since=handle.since if since is None else handle.since.join(since),
        attempts=handle.attempts | {nonce},
        beat=handle.beat + 1,
    )


def to_write(handle: Handle, nonce: str) -> Hold:
    """The hold of an `attempt`."""
    return Hold(handle.version, handle.since, handle.lease_ms, nonce, handle.beat, handle.note, unknown=handle.unknown)


def written(handle: Handle, etag: str) -> Handle:
    """``handle`` after an attempt was answered yes."""
    return replace(handle, etag=etag, attempts=frozenset())


def resolved(handle: Handle, stored: StoredHold | None) -> tuple[Progress, Handle]:
    """What became of the attempts that were not answered yes, from the hold as it was read after them (C10).

    An attempt is in if the hold carries its nonce; then the etag is that of its hold, and any other attempt is void,
    because its condition can never hold again. A first attempt that has not landed is sent again with another nonce."""
    if stored is None:
        return (Progress.AGAIN if handle.etag is None else Progress.LOST), handle
    if stored.hold.revoked:
        return Progress.LOST, handle
    if stored.hold.nonce in handle.attempts:
        return Progress.CONFIRMED, written(handle, stored.etag)
    if handle.etag is not None and stored.etag == handle.etag:
        return Progress.AGAIN, handle
    return Progress.LOST, handle


def stands(handle: Handle, stored: StoredHold | None) -> bool:
    """C10: whether ``stored`` is the hold that ``handle`` confirmed last, and not merely one of its name."""
    return stored is not None and not stored.hold.revoked and stored.etag == handle.etag


def is_own(handle: Handle, stored: StoredHold | None) -> bool:
    """`stands`, or a move of ``handle`` whose answer it has not taken yet."""
    return stands(handle, stored) or (
        stored is not None and not stored.hold.revoked and stored.hold.nonce in handle.attempts
    )


# ---- believing it


def registered(handle: Handle, head: Area) -> bool:
    """C11: whether a hold is believed, by a head that was read after it was confirmed: neither its version nor its
    since had been given up by then. If not, it follows the head (`following_head`) and asks again."""
    return has_version(handle, head) and head.bound <= handle.since


def has_version(handle: Handle, head: Area) -> bool:
    """C11: whether what the version of ``handle`` names is kept by what ``head``, read after its hold was confirmed,
    says."""
    return not head.deleted and (handle.version is None or head.floor <= handle.version)


def following_head(handle: Handle, head: Area, *, since: bool = True) -> tuple[int | None, Frontier | None]:
    """Version and since for the next `attempt` of one that is not believed. ``since``: off if its source covers it.

    Raises `ClosedError` if the collection was deleted: then nothing is held for anybody."""
    if head.deleted:
        raise ClosedError("the collection was deleted")
    version = None if handle.version is None else max(handle.version, head.version)
    return version, (head.bound if since else None)


class Cover(Enum):
    """What the source of a clone covers of it."""

    NOTHING = "nothing"
    SINCE = "since"
    ALL = "all"


def covered(handle: Handle, source: Handle, stored: StoredHold | None) -> Cover:
    """C12: what of a clone is believed by the hold of its ``source``, ``stored``, as it was read after the clone's was
    confirmed: it must stand and not be past the clone. The published floor and bound may be past it.

    With ``SINCE`` (the source is critical) the version needs `has_version`; with ``NOTHING`` the clone is refused."""
    if stored is None or not stands(source, stored) or not stored.hold.since <= handle.since:
        return Cover.NOTHING
    if handle.version is None:
        return Cover.ALL
    if stored.hold.version is None:
        return Cover.SINCE
    return Cover.ALL if stored.hold.version <= handle.version else Cover.NOTHING


# ---- when something is not as it promised


class Verdict(Enum):
    """What it means that something is not as the hold promised."""

    CORRUPTED = "corrupted"
    LOST = "lost"
    DELETED = "deleted"


def judge_missing(handle: Handle, stored: StoredHold | None, head: Area) -> Verdict:
    """C15: why an object is missing that a version in use names, or a since is past the own one.

    stored, head: the own hold and the head, read afterwards. A deletion takes all that holds name"""
    if head.deleted:
        return Verdict.DELETED
    return Verdict.CORRUPTED if is_own(handle, stored) else Verdict.LOST


def counts(handle: Handle, stored: StoredHold | None) -> bool:
    """C14: whether what was read from the pending area of a ``compare`` collection counts; ``stored`` is the own hold,
    read afterwards. While it stands, no name that was looked up can have been deleted and put again."""
    return stands(handle, stored)
