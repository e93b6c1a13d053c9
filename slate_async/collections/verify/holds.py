"""The holds of readers: each one's bytes, and whether what it holds was given up by a controller.

A hold of which a head had published a later floor or bound before it was read is one that is being registered, or a
ghost, whose owner does not believe it (C11); or one that came after the holds were listed and before that head was
committed, which the next listing shows before anything is done by that head (C16, C17). But if times are compacted past
its since, and its owner wrote it again afterwards, for the same version and since, then a controller went too far.

Rules C11, C16 and C17 of collections.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from slate_async.collections.core.area import Area
from slate_async.collections.core.holding import Hold, StoredHold
from slate_async.collections.core.names import hold_name
from slate_async.collections.reader.context import ReaderContext
from slate_async.collections.verify.report import found_in
from slate_async.errors import CorruptionError
from slate_async.runtime.concurrent import map_bounded
from slate_async.types import Finding

READS_AT_ONCE = 16


@dataclass(slots=True)
class CheckedHolds:
    """Holds as they were read at one time."""

    stored: dict[str, StoredHold] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


async def read_holds(context: ReaderContext) -> CheckedHolds:
    """All holds that are there, each of which is read."""
    checked = CheckedHolds()

    async def one(reader: str) -> None:
        try:
            stored = await context.answered(f"a read of the hold of {reader}", lambda: context.holds.read(reader))
        except CorruptionError as error:
            checked.findings.append(found_in(context.store, error))
        else:
            if stored is not None:
                checked.stored[reader] = stored

    try:
        listed = sorted(await context.answered("a listing of holds", context.holds.list))
    except CorruptionError as error:
        found = found_in(context.store, error)
        checked.findings.append(replace(found, what=f"{found.what}; holds cannot be listed, or checked"))
        return checked
    if listed:
        await map_bounded(one, listed, READS_AT_ONCE)
    return checked


def passed(head: Area, stored: Mapping[str, StoredHold]) -> list[Finding]:
    """Notes of what is held to no effect. ``head``: read before the holds."""
    notes = []
    for reader, found in sorted(stored.items()):
        hold = found.hold
        if hold.revoked:
            by = "its name may be used again" if hold.is_critical else "a controller removes it"
            notes.append(_about(reader, f"it was revoked; {by}"))
        elif why := given_up(head, hold):
            what = f"{why}: it is being registered, or a ghost that ends with its lease"
            notes.append(_about(reader, what if hold.lease_ms is not None else f"{why}: expire it if nobody owns it"))
    return notes


def broken(head: Area, before: Mapping[str, StoredHold], after: Mapping[str, StoredHold]) -> list[Finding]:
    """Holds past whose since times were compacted, although their owners go on with them. ``head`` was read first, then
    ``before``."""
    findings = []
    for reader, found in sorted(before.items()):
        now = after.get(reader)
        if now is None or found.hold.is_critical or now.hold.revoked or now.hold.beat <= found.hold.beat:
            continue
        since = found.hold.since
        if not head.since <= since and (now.hold.version, now.hold.since) == (found.hold.version, since):
            why = f"it holds since {since}, and version {head.version} is compacted to {head.since}"
            findings.append(_about(reader, f"{why}, and its owner goes on with it"))
    return findings


def given_up(head: Area, hold: Hold) -> str:
    """What of ``hold`` the ``head`` gave up before; empty if nothing."""
    if hold.version is not None and hold.version < head.floor:
        return f"it holds version {hold.version}, and version {head.version} gave up all below {head.floor}"
    if not head.bound <= hold.since:
        return f"it holds since {hold.since}, and version {head.version} may be compacted to {head.bound}"
    return ""


def _about(reader: str, what: str) -> Finding:
    return Finding(hold_name(reader), None, what)
