"""Adopting a place: an operator says that what lies here is the database, whatever its marker says.

For a database that was moved, or that was made before places had markers. Whatever can be told is told first: the place
must be nobody else's, an SST that the manifest names must be here, and the log as far as it is known.
"""

from __future__ import annotations

import logging

from slate_async.clone.site import Site
from slate_async.errors import ConfigError, InvalidError
from slate_async.log.extent import read_register
from slate_async.log.listing import has_log
from slate_async.log.missing import judge_missing, look_at_log
from slate_async.manifest.marking import adopt_place, settle_place
from slate_async.manifest.state import ManifestState

logger = logging.getLogger(__name__)


async def adopt(site: Site) -> ManifestState:
    """Mark the place at ``site`` as the database's; whoever writes or compacts, here or elsewhere, is fenced, and
    ingests that are not committed end. Nothing is changed if it is the database's already. Called again it goes on.

    Raises `InvalidError` (no database; metadata in the same store; another database's place), `CorruptionError` for an
    SST or a log object that is not here, `UnavailableError`."""
    ground, driver, new_id = site.ground, site.driver, site.runtime.ids.uuid
    state = await site.head()
    if not ground.must_be_proved(state):
        raise InvalidError(f"{site.name} keeps its metadata in the same store: that proves the place, without a marker")
    if state.has_marker and not state.marked:
        return await settle_place(ground, driver, state, await ground.look(), new_id)
    if not state.removed:
        await _check_log(site, state)
    adopted = await adopt_place(ground, driver, state, new_id, ended_ms=site.runtime.clock.now_ms())
    logger.warning("%s was adopted as the place of database %s", site.name, adopted.database_id)
    return adopted


async def _check_log(site: Site, state: ManifestState) -> None:
    """The log is here, as far as it is known to have gone on."""
    async with site.register(state.log_protocol) as register:
        held = None if register is None else await read_register(site.store, register, state.log_start)
    look = await look_at_log(site.store, state, held)
    if look.missing is not None:
        await judge_missing(look.missing, state, site.driver.load)
    if held is None and state.writer_token and not await has_log(site.store, 0):
        raise ConfigError(
            f"{site.name} is not the place of database {state.database_id}: nothing of its log is here, not even"
            " a fence, and those stay for ever",
            outcome="not_applied",
        )
