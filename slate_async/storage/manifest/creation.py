"""The first version of a database: committed only at a place that is empty, in a store that can do what the protocols
need."""

from __future__ import annotations

import re
from dataclasses import replace

from metastores.names import MANIFEST
from metastores.protocol import MetaStoreFactory
from slate_async.errors import ConfigError, InvalidError
from slate_async.objectstore.probe import probe
from slate_async.objectstore.protocol import ObjectStore
from slate_async.runtime.protocol import Ids
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.features import MARKER_FEATURE, MERGE_FEATURE
from slate_async.storage.manifest.marker import Ground, read_marker
from slate_async.storage.manifest.state import ManifestState

OURS = re.compile(r"(manifest|writer|log|sst|gc)/")
NESTED = re.compile(r"[^/]+/(.*/)?(manifest/|writer/|gc/|store/marker$|log/[\d.]+\.sst$|sst/\d+\.[0-9a-z]+\.sst$)")
"""Keys of a database nested below. Its manifest may be elsewhere, so any of its objects will do."""
FOREIGN_LOOK = 1_000
"""How many objects under a new database's path are looked at for things that are not ours."""


def kept_elsewhere(metadata: MetaStoreFactory) -> bool:
    """Whether the manifest lies elsewhere than in the database's store: one in it relies on its conditional puts."""
    return not (metadata.needs.create or metadata.needs.replace)


def features_of(metadata: MetaStoreFactory, merge_operator: str | None = None) -> tuple[str, ...]:
    """The required features that a new database begins with."""
    features = (MARKER_FEATURE,) if kept_elsewhere(metadata) else ()
    return features if merge_operator is None else (*features, MERGE_FEATURE)


async def create_first(
    first: ManifestState, driver: ManifestDriver, store: ObjectStore, metadata: MetaStoreFactory, name: str, ids: Ids
) -> ManifestState:
    """Commit ``first`` as version 1 of the database in ``store``, unless one was made meanwhile; the head either way.
    With metadata elsewhere its place has no marker yet.

    Raises `InvalidError` if the place holds something else, or the store cannot do what is needed."""
    try:
        await refuse_foreign(Ground(store, name, kept_elsewhere(metadata)))
    except InvalidError:
        raced = await driver.load()
        if raced is None:
            raise
        return raced  # made meanwhile, by the process that put there what was found
    needs = metadata.needs
    register = first.log_protocol == "epoch_prefixed" and needs.register
    need_create = needs.create or first.log_protocol == "contiguous" or register
    need_replace = needs.replace or register
    if need_create or need_replace:
        await probe(store, need_create=need_create, need_replace=need_replace, ids=ids)
    return await driver.create(replace(first, required_features=features_of(metadata, first.merge_operator)))


async def refuse_foreign(ground: Ground) -> None:
    """Raise `InvalidError` if the path holds anything but other databases, which may nest below, and what a creation
    leaves that was not finished: the first manifest's body, or the note of where its head was to be. A marker says that
    the place is a database's already."""
    found = await read_marker(ground.store)
    if found is not None:
        raise ground.unknown(found)
    name, looked = ground.name, 0
    async for info in ground.store.list(""):
        leftover = (
            info.key == MANIFEST.elsewhere or MANIFEST.body_ref(info.key) is not None or info.key.startswith("gc/")
        )
        if OURS.match(info.key) and not leftover:
            raise ConfigError(
                f"{name} holds {info.key!r} but its manifest is not there: name its metastore (metastore=...), or"
                " choose an empty path"
            )
        if not OURS.match(info.key) and not NESTED.match(info.key):
            raise InvalidError(f"{name} holds {info.key!r}, which is not a database's; choose an empty path")
        looked += 1
        if looked >= FOREIGN_LOOK:
            return
