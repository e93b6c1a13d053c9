"""What a vacuum of a table keeps and what it deletes, from what it has read.

Kept are, of every version that is kept, the links from its own down to the nearest whole one that was read, and the
blocks and delete files that are live in it. Everything else may go whose base is below the floor.

Rules T5, T6, T8 and T10.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from slate_async.tables.core.chain import Link
from slate_async.tables.core.head import Head
from slate_async.tables.core.names import parsed_base

DAY_MS: Final = 86_400_000
RETAIN_MS: Final = 7 * DAY_MS
RETAIN_VERSIONS: Final = 10
MIN_AGE_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class Step:
    """One link as a walk down a chain has read it.

    name: of the object that was read: the link's, or that of the whole one beside it
    added, removed: keys of blocks and delete files
    before: the key of the link before it; ``None`` where the walk ends
    """

    name: str
    added: tuple[str, ...]
    removed: tuple[str, ...]
    before: str | None

    @classmethod
    def of(cls, name: str, link: Link, before: str | None) -> Step:
        """The step that ``link``, stored as ``name``, makes."""
        added = (*link.added.column("key").to_pylist(), *link.delete_files.column("key").to_pylist())
        return cls(name, added, tuple(link.removed.to_pylist()), None if link.whole else before)


def reachable(steps: Mapping[str, Step], newest: Collection[str]) -> set[str]:
    """Names of all that versions need whose newest links are ``newest``, by the steps of walks from there (T10)."""
    found: set[str] = set()
    walked: set[str] = set()
    kept = set(newest)
    for key in kept:
        step = steps[key]
        if step.before is not None and step.before in kept:  # it has no more than that one has, and what it adds
            found.update(step.added)
        else:
            found |= _live(steps, key)
        at: str | None = key
        while at is not None and steps[at].name not in walked:
            walked.add(steps[at].name)
            at = steps[at].before
    return found | walked


def _live(steps: Mapping[str, Step], key: str) -> set[str]:
    """What is live at the link ``key``."""
    below = []
    at: str | None = key
    while at is not None:
        below.append(steps[at])
        at = steps[at].before
    live: set[str] = set()
    for step in reversed(below):
        live.difference_update(step.removed)
        live.update(step.added)
    return live


def garbage(listed: Collection[str], kept: Collection[str], floor: int) -> list[str]:
    """Of the objects ``listed``, which was done before the walk (T8), those that may be deleted, in order (T5)."""
    found = []
    for key in listed:
        base = parsed_base(key)
        if base is not None and base < floor and key not in kept:
            found.append(key)
    return sorted(found)


def kept_versions(state: Head) -> dict[int, str | None]:
    """Versions that ``state`` keeps, and the tokens of those that it names: pins and tags (T6)."""
    versions: dict[int, str | None] = dict.fromkeys(range(state.oldest, state.version + 1))
    for names in (state.pins, state.tags):
        versions.update((kept.version, kept.token) for kept in names.values())
    versions[state.version] = state.token
    return versions


def gave_up(state: Head, newest: Head) -> bool:
    """Whether ``newest`` gave up a version that ``state`` keeps."""
    return any(not newest.keeps(version) for version in kept_versions(state))
