"""What a database must be once nobody works on it any more."""

from __future__ import annotations

import slate_async as slate
from metastores.factories import parse_metastore
from slate_async.objectstore.prefixed import PrefixedStore
from slate_async.objectstore.url import open_store, parse_url
from slate_async.runtime.system import system_runtime
from tests.integration.places import Place
from tests.live_set import live_set

ROUNDS = 5
"""Of collection: what one round's own commit makes garbage goes with the next."""


async def check_exact(place: Place) -> None:
    """Once no compaction is left half-way: after a few rounds nothing is missing, and nothing left."""
    settings = slate.Settings(**{**place.settings, "auto_compaction": False})
    async with slate.open_compactor(place.path, metastore=place.metastore, settings=settings) as compactor:
        await compactor.compact()
        assert compactor.status().registered == 0
    collecting = slate.Settings(
        **{name: value for name, value in place.settings.items() if name.startswith(("gc_", "version_"))}
    )
    async with slate.open_gc(place.path, metastore=place.metastore, settings=collecting, periodic=False) as collector:
        for _ in range(ROUNDS):
            await collector.collect()
    runtime = system_runtime(2)
    store, prefix = open_store(place.path, runtime)
    metadata = parse_metastore(place.metastore)
    try:
        found = await live_set(PrefixedStore(store, prefix), metadata, parse_url(place.path).display, runtime)
        assert (found.missing, found.left) == ([], [])
    finally:
        await metadata.close()
        await store.close()
