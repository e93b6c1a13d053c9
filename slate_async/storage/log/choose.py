"""The log of a database by its protocol, as the database's settings want it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from metastores.protocol import Register
from slate_async.objectstore.protocol import ObjectStore
from slate_async.runtime.protocol import Runtime
from slate_async.settings import Settings
from slate_async.storage.log.contiguous import ContiguousLog
from slate_async.storage.log.epoch_prefixed import EpochPrefixedLog
from slate_async.storage.log.protocol import CheckPlace, Log
from slate_async.storage.log.reader import LogReader
from slate_async.storage.manifest.state import ManifestState


def log_of(
    state: ManifestState,
    store: ObjectStore,
    register: Register | None,
    load_head: Callable[[], Awaitable[ManifestState | None]],
    runtime: Runtime,
    settings: Settings,
    *,
    whole: bool,
    check_place: CheckPlace,
) -> Log:
    """``register``: the writer's, for an epoch-prefixed log. ``whole``: a takeover reads log objects whole, not only
    their headers. ``check_place``: see `slate_async.storage.log.protocol.CheckPlace`."""
    reader = LogReader(store, state.database_id, whole=whole)
    if register is None:
        return ContiguousLog(
            store,
            reader,
            load_head,
            runtime,
            deadline_ms=settings.retry_deadline_ms,
            takeover_deadline_ms=settings.takeover_deadline_ms,
            poll_interval_ms=settings.manifest_poll_interval_ms,
            check_place=check_place,
        )
    return EpochPrefixedLog(
        store,
        reader,
        register,
        load_head,
        runtime,
        deadline_ms=settings.retry_deadline_ms,
        takeover_deadline_ms=settings.takeover_deadline_ms,
        gap_wait_ms=settings.log_gap_wait_ms,
        check_place=check_place,
    )
