"""Whether a folder of a store is the place of a database: read from its marker.

A manifest that is kept elsewhere than the objects it names (in a table, say) is found by the database's name, and the
name is no proof: the same bucket name at another endpoint, an unmounted disk or another machine's folder is another,
perhaps empty, place. So such a database has a marker at one exact key of its place, and its manifest the store id that
the marker carries. Metadata that lies in the very store proves the place by itself, and needs none.

Ordering rule (R21, R10): head and marker -> whatever is done in the place. What was concluded from an object's absence
counts only if the marker, read afterwards, is the database's.

Rules R10 and R21: docs/design/protocol-rules.md
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from slate_async.errors import ConfigError, InvalidError, NotFoundError
from slate_async.objectstore.protocol import ObjectNotFoundError, ObjectStore
from slate_async.storage.format.marker import Marker, decode_marker
from slate_async.storage.manifest.state import ManifestState

MARKER = "store/marker"
"""The key. GC never lists it, destroying a database leaves it, and only `storage.manifest.marking`
writes it."""
LOOKS = 4
"""How often a database that is recreated, or adopted, meanwhile is looked at again."""
LoadHead: TypeAlias = Callable[[], Awaitable[ManifestState | None]]


class WrongPlaceError(ConfigError):
    """The marker that is there, or that none is, says that this is not the database's place."""


@dataclass(frozen=True, slots=True)
class FoundMarker:
    """A marker that was read, and what names that very object to the store."""

    marker: Marker
    etag: str


async def read_marker(store: ObjectStore) -> FoundMarker | None:
    """The marker in a database's folder, or ``None``. Raises `CorruptionError` if it is damaged."""
    try:
        result = await store.get(MARKER)
    except ObjectNotFoundError:
        return None
    return FoundMarker(decode_marker(result.data, object_name=MARKER), result.info.etag)


@dataclass(frozen=True, slots=True)
class Ground:
    """The folder that is to be a database's place. ``name``: the database's, for people. ``elsewhere``: its metadata
    is not kept there."""

    store: ObjectStore
    name: str
    elsewhere: bool

    async def look(self) -> FoundMarker | None:
        """The marker, where one is to be: one request. See `read_marker`."""
        return await read_marker(self.store) if self.elsewhere else None

    async def check(self, state: ManifestState, load_head: LoadHead, found: FoundMarker | None = None) -> ManifestState:
        """``state``, or the head that came after it, once the marker says that this is its place. ``found``: the
        marker as it was read beside it; read now if unset.

        Raises `ConfigError` if it is not, or that is not known, `NotFoundError` while the database is still being made;
        `CorruptionError`, `UnavailableError`."""
        if not self.must_be_proved(state):
            return state
        for look in range(LOOKS):
            if found is None or look:
                found = await read_marker(self.store)
            if is_of(found, state):
                return state
            newest = await load_head()
            if newest is None or (_names_same(newest, state) and look):
                raise self.wrong_place(state, found)
            state = newest
        raise self.wrong_place(state, found)

    async def check_again(self, state: ManifestState, load_head: LoadHead) -> None:
        """As `check`, in a place that was proved once; without a marker there is nothing to look at again."""
        if state.has_marker:
            await self.check(state, load_head)

    def must_be_proved(self, state: ManifestState) -> bool:
        """Whether a marker is to prove the place of ``state``."""
        return self.elsewhere or state.has_marker

    def refuse_other(self, state: ManifestState, found: FoundMarker | None) -> None:
        """Raise `ConfigError` if what was found is another database's marker."""
        if found is not None and found.marker.database_id != state.database_id:
            raise self.wrong_place(state, found)

    def unknown(self, found: FoundMarker) -> ConfigError:
        """The error when a database's marker is here, and no manifest has this name."""
        there = f"{self.name} is the place of database {found.marker.database_id}, whose manifest is kept elsewhere"
        if not self.elsewhere:
            return ConfigError(
                f"{there}: name its metastore (metastore=...) and open it by its own URL, or choose an empty path"
            )
        return ConfigError(
            f"{there}, and the metastore that is named has no database of this URL. Such a database is found by the URL"
            " it was made under: open it by that, in the metastore it was made in. Its objects, moved or copied to"
            " another URL, are no database there: `slate mirror` (Admin.mirror) makes one",
            outcome="not_applied",
        )

    def wrong_place(self, state: ManifestState, found: FoundMarker | None) -> InvalidError:
        """The error of work that was to begin in a place that is not that of ``state``."""
        there = (
            "there is none"
            if found is None
            else f"the one there is of database {found.marker.database_id}, store {found.marker.store_id}"
        )
        if not state.has_marker:
            return ConfigError(
                f"{self.name}: nothing proves that this is the place of database {state.database_id}, which was made"
                f" before places had markers ({there}). If its objects are here, run `slate adopt-place --yes` once",
                outcome="not_applied",
            )
        if not state.marked and state.store_id is None:
            return NotFoundError(
                f"{self.name}: the creation of database {state.database_id} was not finished; open it to write"
                f" first (its place is to have a marker: {there})",
                outcome="not_applied",
            )
        return WrongPlaceError(
            f"{self.name} is not the place of database {state.database_id}: its manifest asks for the marker of store"
            f" {state.store_id}, and {there}. Check the URL, its endpoint, and that the disk is mounted; if the"
            " database was moved here, run `slate adopt-place --yes`",
            outcome="not_applied",
        )


def is_of(found: FoundMarker | None, state: ManifestState) -> bool:
    """Whether that is the marker of ``state``."""
    if found is None or state.store_id is None or not state.marked:
        return False
    return found.marker == Marker(state.database_id, state.store_id)


def _names_same(one: ManifestState, other: ManifestState) -> bool:
    """Whether both ask for the same marker."""
    return (one.database_id, one.store_id, one.marked) == (other.database_id, other.store_id, other.marked)
