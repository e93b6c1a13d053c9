"""The database at a place, found or created, and the settings that are fixed by its creation."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from slate_async.engine.context import DatabaseContext
from slate_async.errors import InvalidError, NotFoundError
from slate_async.merge_operators.guarded import merging
from slate_async.settings import Settings
from slate_async.storage.manifest.creation import create_first, features_of
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.lifecycle import Recreate
from slate_async.storage.manifest.marker import FoundMarker
from slate_async.storage.manifest.ownership import head_and_marker
from slate_async.storage.manifest.state import ManifestState

FIXED_SETTINGS = ("log_protocol", "wal_enabled", "merge_operator")
"""Those of which the database has the value it was created with."""


async def find_or_create(
    context: DatabaseContext, driver: ManifestDriver, *, create: bool, properties: Mapping[str, str] | None = None
) -> tuple[ManifestState, FoundMarker | None]:
    """The head of the database of ``context``, made if it is missing and ``create``, and the marker read beside
    it. Claims nothing, and proves nothing yet: see `settle_place`.

    Raises `InvalidError` (missing, foreign, contradictory settings, unfit store), `UnavailableError`."""
    ground = context.ground
    state, found = await head_and_marker(ground, driver)
    if state is None and not create:
        if found is not None:
            raise context.ground.unknown(found)
        raise NotFoundError(f"there is no database at {context.name}; open it with create=True to make one")
    if state is None or (state.removed and create):
        if state is not None:
            await ground.check(state, driver.load, found)
        return await _create(context, driver, state, properties), await ground.look()
    return state, found


async def _create(
    context: DatabaseContext,
    driver: ManifestDriver,
    removed: ManifestState | None,
    properties: Mapping[str, str] | None,
) -> ManifestState:
    """A database where there is none, or only ``removed``, what is left of a destroyed one."""
    settings = context.settings
    if removed is not None:
        settings = settings.replace(log_protocol=settings.log_protocol or removed.log_protocol)
    first = ManifestState(
        database_id=context.runtime.ids.uuid(),
        log_protocol=settings.log_protocol or "contiguous",
        wal_enabled=settings.wal_enabled is not False,
        created_ms=context.runtime.clock.now_ms(),
        properties=MappingProxyType(dict(properties or {})),
        merge_operator=settings.merge_operator,
        required_features=features_of(context.metadata, settings.merge_operator),
    )
    merging(first.merge_operator, of=context.name)
    if settings.ack == "flushed" and first.log_protocol == "contiguous":
        raise InvalidError("ack 'flushed' exists only with log_protocol 'epoch_prefixed'")
    if removed is not None:
        return await driver.commit(Recreate(first))
    return await create_first(first, driver, context.store, context.metadata, context.name, context.runtime.ids)


def follow_database(settings: Settings, state: ManifestState) -> Settings:
    """``settings`` with what was fixed at creation filled in. Raises `InvalidError` on a contradiction, `ConfigError`
    if this process lacks the database's merge operator."""
    for name in FIXED_SETTINGS:
        wanted, fixed = getattr(settings, name), getattr(state, name)
        if wanted is not None and wanted != fixed:
            raise InvalidError(f"{name} is fixed when a database is created: this one has {fixed!r}, not {wanted!r}")
    merging(state.merge_operator)
    fixed = {name: getattr(state, name) for name in FIXED_SETTINGS if getattr(settings, name) is None}
    return settings.replace(**fixed) if any(value is not None for value in fixed.values()) else settings
