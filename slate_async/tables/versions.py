"""Versions of a table by number, by time and by tag; and what is done with them: tags, pins, a restore.

A version that was read by its number counts only if the newest head, read afterwards, keeps it: a late head may lie at
a number that was deleted (rule T12). What is kept is said by commits, each of which judges the head that it extends
(rules T17 and T18).

Rules T12, T17 and T18.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from metastores.protocol import VersionRef
from slate_async.errors import CorruptionError, InvalidError, NotFoundError
from slate_async.tables.context import TableContext
from slate_async.tables.core.catalog import check_name, meant
from slate_async.tables.core.edits import Keep, Release, Restore
from slate_async.tables.core.errors import SnapshotExpiredError
from slate_async.tables.core.head import Head, Kept


class TablePin(NamedTuple):
    """A version that somebody reads: it is kept until ``until``, and longer while the lease is renewed."""

    version: int
    until: datetime


async def at_version(context: TableContext, version: Any) -> Head:
    """The head of this version. Raises `NotFoundError` for one that is still to come, `SnapshotExpiredError` for one
    that is not kept."""
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise InvalidError(f"versions are numbered from 1, and {version!r} is none")
    newest = await context.newest()
    if version == newest.version:
        return newest
    if version > newest.version:
        raise NotFoundError(f"{context.name} has no version {version} yet; the newest is {newest.version}")
    head = await _read(context, newest, version)
    return await still_kept(context, version, head)


async def find_version(context: TableContext, version: Any, at: Any, tag: Any) -> Head:
    """The head of the one that is given, or the newest one. Raises as `at_version`, `at_time` and `at_tag`."""
    if version is not None:
        return await at_version(context, version)
    if at is not None:
        return await at_time(context, at)
    return await context.newest() if tag is None else await at_tag(context, tag)


async def still_kept(context: TableContext, version: int, head: Head | None) -> Head:
    """``head``, which was read as version ``version``, if that counts (rule T12). Raises as `at_version`."""
    newest = await context.newest()
    if not newest.keeps(version):
        raise SnapshotExpiredError(
            f"version {version} of {context.name} is not kept any more; those from {newest.oldest} to {newest.version}"
            " are, and those that tags and pins name"
        )
    if head is None:
        raise CorruptionError(
            f"version {version} is kept, and its head is missing; restore it", object_name=f"heads of {context.name}"
        )
    return head


async def at_tag(context: TableContext, tag: Any) -> Head:
    """The head that ``tag`` names. Raises `NotFoundError`, with the nearest names."""
    check_name(tag, "tag")
    newest = await context.newest()
    kept = newest.tags.get(tag)
    if kept is None:
        raise NotFoundError(f"{context.name} has no tag {tag!r}{meant(tag, newest.tags)}")
    return await at_version(context, kept.version)


async def at_time(context: TableContext, at: Any) -> Head:
    """The head that was the newest at ``at``, of those that are kept all the way to now.

    Raises `SnapshotExpiredError` for a time before them, `InvalidError`."""
    at_ms = time_ms(at)
    newest = await context.newest()
    if newest.time_ms <= at_ms:
        return newest
    refs = [ref for ref in await context.heads.stored() if newest.oldest <= ref.version < newest.version]
    low, high = 0, len(refs)  # those before `low` are at `at` or before, those from `high` on after it
    found: Head | None = None
    while low < high:
        middle = (low + high) // 2
        head = await context.heads.read(refs[middle])
        if head is None:  # it was deleted since
            low = middle + 1
        elif head.time_ms <= at_ms:
            low, found = middle + 1, head
        else:
            high = middle
    if found is None:
        raise SnapshotExpiredError(f"no version of {context.name} is kept that was there at {utc_time(at_ms)}")
    return await still_kept(context, found.version, found)


async def tag(context: TableContext, name: Any, version: int | None) -> int:
    """Let the tag ``name`` keep a version, the newest one for ``None``; returns it (rule T17)."""
    check_name(name, "tag")
    head = await context.newest() if version is None else await at_version(context, version)
    await context.committer.commit(Keep(name, Kept(head.version, head.token)))
    return head.version


async def untag(context: TableContext, name: Any) -> None:
    """Remove a tag. Raises `NotFoundError`."""
    check_name(name, "tag")
    newest = await context.newest()
    if name not in newest.tags:
        raise NotFoundError(f"{context.name} has no tag {name!r}{meant(name, newest.tags)}", outcome="not_applied")
    await context.committer.commit(Release(name, pin=False))


async def tags(context: TableContext) -> Mapping[str, int]:
    """Versions by tag."""
    return {name: kept.version for name, kept in sorted((await context.newest()).tags.items())}


async def pins(context: TableContext) -> Mapping[str, TablePin]:
    """Leases by name, those that ended among them until a vacuum removes them."""
    kept = sorted((await context.newest()).pins.items())
    return {name: TablePin(pin.version, utc_time(pin.until_ms or 0)) for name, pin in kept}


async def restore(context: TableContext, version: int) -> int:
    """Make the rows what they were at ``version``; returns the version that does (rule T18)."""
    head = await at_version(context, version)
    done = await context.committer.commit(Restore(head.version, await context.contents(head)))
    return done.version or done.head.version


def utc_time(at_ms: int) -> datetime:
    """As users see it."""
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def time_ms(at: Any) -> int:
    """In ms since the epoch. Raises `InvalidError` unless it is a datetime with a zone, or seconds since the epoch."""
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise InvalidError(f"{at} has no time zone; give it one, as with tzinfo=UTC")
        return int(at.timestamp() * 1000)
    if not isinstance(at, int | float) or isinstance(at, bool) or at != at or abs(at) > 1e11:
        raise InvalidError(f"at= is a datetime with a time zone, or seconds since the epoch, not {at!r}")
    return int(at * 1000)


async def _read(context: TableContext, newest: Head, version: int) -> Head | None:
    """The head at that number, if there is one."""
    for names in (newest.tags, newest.pins):
        for kept in names.values():
            if kept.version == version:
                return await context.heads.read(VersionRef(version, kept.token))
    for ref in await context.heads.stored():
        if ref.version == version:
            return await context.heads.read(ref)
    return None
