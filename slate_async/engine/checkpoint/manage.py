"""Users' checkpoints: made, lengthened, deleted, listed. Each is one edit of the manifest; the rest checks arguments.

Those that writers, readers and clones made for themselves are theirs, and are left alone unless force is asked for. A
change feed's subscription with a name is a user's to lengthen and to delete.
"""

from __future__ import annotations

from typing import Literal, TypeAlias
from uuid import UUID

from slate_async.arguments import Duration, seconds
from slate_async.engine.checkpoint.info import CheckpointInfo
from slate_async.errors import InvalidError, NotFoundError
from slate_async.runtime.protocol import Runtime
from slate_async.storage.log.extent import LogExtent
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.checkpoints import (
    CreateCheckpoint,
    DeleteCheckpoints,
    RefreshCheckpoint,
    find_checkpoint,
)
from slate_async.storage.manifest.edits.protocol import check_usable
from slate_async.storage.manifest.state import Checkpoint, ManifestState

Scope: TypeAlias = Literal["all", "durable"]
"""``all``: what was written before the call; ``durable``: what was durable before it."""
MAX_NAME = 1_024
"""Characters of a name: it is read with every manifest version."""


def lifetime_ms(lifetime: Duration | None) -> int | None:
    """In whole milliseconds, at least one; ``None`` = for ever. Raises `InvalidError`."""
    return None if lifetime is None else max(1, round(seconds(lifetime, "lifetime") * 1000))


def check_wanted(checkpoint: UUID | str) -> None:
    """Raise `InvalidError` for what is neither an id nor a name."""
    if not isinstance(checkpoint, UUID | str):
        raise InvalidError(f"a checkpoint is given by its id or its name, not by {type(checkpoint).__name__}")


def check_request(scope: str, lifetime: Duration | None, source: UUID | str | None, name: str | None) -> None:
    """Raise `InvalidError` for arguments of `create` that no database could satisfy, before anything is done."""
    if scope not in ("all", "durable"):
        raise InvalidError(f"scope is 'all' or 'durable', not {scope!r}")
    lifetime_ms(lifetime)
    if source is not None and not isinstance(source, UUID | str):
        raise InvalidError(f"source is a checkpoint's id, its name or None, not {type(source).__name__}")
    if name is not None and (not isinstance(name, str) or not 0 < len(name) <= MAX_NAME):
        raise InvalidError(f"a checkpoint's name is a text of 1 to {MAX_NAME} characters, not {name!r}")


async def create(
    driver: ManifestDriver, runtime: Runtime, extent: LogExtent, *, lifetime: Duration | None, name: str | None
) -> CheckpointInfo:
    """A checkpoint of the head and of the log up to ``extent``."""
    now = runtime.clock.now_ms()
    edit = CreateCheckpoint(
        runtime.ids.uuid(),
        "user",
        now,
        _end(now, lifetime),
        name,
        log_end=extent.end,
        log_ranges=extent.ranges,
        of=extent.of,
    )
    return _made(await driver.commit(edit), edit.id)


async def copy(
    driver: ManifestDriver,
    runtime: Runtime,
    source: UUID | str,
    *,
    lifetime: Duration | None,
    name: str | None,
) -> CheckpointInfo:
    """A checkpoint of what checkpoint ``source``, an id or a name, keeps. Raises `InvalidError` if the source does not
    exist."""
    now = runtime.clock.now_ms()
    head = await driver.existing()
    check_usable(head)
    found = find_checkpoint(head, source, now)
    edit = CreateCheckpoint(runtime.ids.uuid(), "user", now, _end(now, lifetime), name, found.id)
    return _made(await driver.commit(edit), edit.id)


async def refresh(
    driver: ManifestDriver, runtime: Runtime, wanted: UUID | str, *, lifetime: Duration | None
) -> CheckpointInfo:
    """Let it live for ``lifetime`` from now. Raises `InvalidError` if it does not exist, or is neither a user's nor a
    subscription with a name."""
    check_wanted(wanted)
    lifetime_ms(lifetime)
    head = await driver.existing()
    check_usable(head)
    now = runtime.clock.now_ms()
    found = find_checkpoint(head, wanted, now)
    if not _is_named_subscription(found):
        _check_users(found, "lengthened")
    edit = RefreshCheckpoint(found.id, now, _end(now, lifetime))
    return _made(await driver.commit(edit), found.id)


async def delete(driver: ManifestDriver, wanted: UUID | str, *, force: bool = False) -> None:
    """Remove it. Raises `InvalidError` if it is not there, or, without ``force``, not a user's."""
    check_wanted(wanted)
    found = find_checkpoint(await driver.existing(), wanted, None)
    if not force and not _is_named_subscription(found):
        _check_users(found, "deleted")
    await driver.commit(DeleteCheckpoints(frozenset((found.id,))))


async def listed(driver: ManifestDriver) -> list[CheckpointInfo]:
    """The checkpoints of all owners, with expired ones that GC has not removed yet, in the order they were made."""
    return [CheckpointInfo.of(checkpoint) for checkpoint in (await driver.existing()).checkpoints]


def _end(now_ms: int, lifetime: Duration | None) -> int | None:
    life = lifetime_ms(lifetime)
    return None if life is None else now_ms + life


def _made(state: ManifestState, checkpoint_id: UUID) -> CheckpointInfo:
    found = state.checkpoint(checkpoint_id)
    if found is None:
        raise NotFoundError(f"checkpoint {checkpoint_id} was deleted as soon as it was committed; make another one")
    return CheckpointInfo.of(found)


_KEEPERS = {
    "writer": "the writer removes it when its reads are over, and so does the next writer",
    "reader": "its reader removes it when it closes, and it expires",
    "clone": "it goes when the clone is detached or destroyed",
    "feed": "it goes when the feed is closed, or expires",
    "ingest": "it goes when the ingest that replaces it is committed, or ends",
}


def _is_named_subscription(found: Checkpoint) -> bool:
    return found.owner == "feed" and found.name is not None


def _check_users(found: Checkpoint, what: str) -> None:
    if found.owner != "user":
        article = "an" if found.owner == "ingest" else "a"
        raise InvalidError(
            f"checkpoint {found.id} is not to be {what} by hand: {article} {found.owner} made it for itself;"
            f" {_KEEPERS[found.owner]}"
        )
