"""Whether a clone's parents still hold for it what it names: a checkpoint in each direct parent, and in theirs.

Rule 13: a checkpoint that was missed is lost iff a head of its holder read afterwards still names it; a clone that is
detached meanwhile says so in its manifest before the checkpoint goes.

Rule 13: docs/design/protocol-rules.md
"""

from __future__ import annotations

from uuid import UUID

from slate_async.engine.stored_database import OpenStored, StoredDatabase
from slate_async.errors import CorruptionError, InvalidError
from slate_async.storage.manifest.state import ManifestState, Parent
from slate_async.types import Finding


def held_parents(state: ManifestState) -> list[Parent]:
    """The direct parents that hold something for ``state``'s database."""
    return [parent for parent in state.parents if not parent.detached and parent.checkpoint_id is not None]


async def lost_holds(database: StoredDatabase, open_stored: OpenStored) -> list[Finding]:
    """What is missing of what holds the SSTs that the clone ``database`` names; nothing if it has no parents.

    Raises `UnavailableError`."""
    return await _lost(database, await database.head(), open_stored, set())


async def _lost(
    database: StoredDatabase, state: ManifestState, open_stored: OpenStored, seen: set[UUID]
) -> list[Finding]:
    findings: list[Finding] = []
    for parent in held_parents(state):
        if parent.database_id in seen:
            continue
        seen.add(parent.database_id)
        try:
            async with open_stored(parent.path) as other:
                head = await other.driver.load()
                why = _why_lost(head, parent)
                if why is None and head is not None:
                    findings += await _lost(other, head, open_stored, seen)
        except (InvalidError, CorruptionError) as error:
            why = f"its manifest cannot be read: {error}"
        if why is not None and parent in held_parents(await database.head()):
            name = f"checkpoint {parent.checkpoint_id} of {parent.path}"
            findings.append(Finding(name, None, f"holds what {database.name}, a clone, names; {why}"))
    return findings


def _why_lost(head: ManifestState | None, parent: Parent) -> str | None:
    if head is None:
        return "there is no database any more"
    if head.database_id != parent.database_id:
        return "another database is there now"
    if parent.checkpoint_id is not None and head.checkpoint(parent.checkpoint_id) is None:
        return "it does not exist, so collectors of the parent delete what it held"
    return None
