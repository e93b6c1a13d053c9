"""The first version of a database: committed only at a place that is empty, in a store that can do what the protocols
need."""

from __future__ import annotations

import re

from metastores.names import ELSEWHERE, body_ref
from metastores.protocol import MetaStoreFactory
from slate_async.errors import InvalidError
from slate_async.manifest.driver import ManifestDriver
from slate_async.manifest.state import ManifestState
from slate_async.objectstore.probe import probe
from slate_async.objectstore.protocol import ObjectStore
from slate_async.runtime.protocol import Ids

OURS = re.compile(r"(manifest|writer|log|sst|gc)/")
NESTED = re.compile(r"[^/]+/(.*/)?(manifest/|writer/|gc/|log/[\d.]+\.sst$|sst/\d+\.[0-9a-z]+\.sst$)")
"""Keys of a database nested below. Its manifest may be elsewhere, so any of its objects will do."""
FOREIGN_LOOK = 1_000
"""How many objects under a new database's path are looked at for things that are not ours."""


async def create_first(
    first: ManifestState, driver: ManifestDriver, store: ObjectStore, metadata: MetaStoreFactory, name: str, ids: Ids
) -> ManifestState:
    """Commit ``first`` as version 1 of the database in ``store``, unless one was made meanwhile; the head either way.

    Raises `InvalidError` if the place holds something else, or the store cannot do what is needed."""
    try:
        await _refuse_foreign(store, name)
    except InvalidError:
        raced = await driver.load()
        if raced is None:
            raise
        return raced  # made meanwhile, by whoever put there what was found
    needs = metadata.needs
    register = first.log_protocol == "epoch_prefixed" and needs.register
    need_create = needs.create or first.log_protocol == "contiguous" or register
    need_replace = needs.replace or register
    if need_create or need_replace:
        await probe(store, need_create=need_create, need_replace=need_replace, ids=ids)
    return await driver.create(first)


async def _refuse_foreign(store: ObjectStore, name: str) -> None:
    """Raise `InvalidError` if the path holds anything but other databases, which may nest below, and what a creation
    leaves that did not come to its end: the first manifest's body, or the note of where its head was to be."""
    looked = 0
    async for info in store.list(""):
        leftover = info.key == ELSEWHERE or body_ref(info.key) is not None or info.key.startswith("gc/")
        if OURS.match(info.key) and not leftover:
            raise InvalidError(
                f"{name} holds {info.key!r} but its manifest is not there: name the metastore it was made with"
                " (metastore=...), or choose an empty path"
            )
        if not OURS.match(info.key) and not NESTED.match(info.key):
            raise InvalidError(f"{name} holds {info.key!r}, which is not a database's; choose an empty path")
        looked += 1
        if looked >= FOREIGN_LOOK:
            return
