"""Counters that every handle has: manifest, metadata, block cache, store, event loop."""

from __future__ import annotations

from dataclasses import fields

from metastores.protocol import Register
from metastores.stats import Counted, MetaStats
from slate_async.engine.context import DatabaseContext
from slate_async.storage.manifest.driver import ManifestDriver


def shared_counters(
    context: DatabaseContext, driver: ManifestDriver, register: Register | None
) -> dict[str, int | float]:
    """By dotted name. ``cache.*`` and ``store.*`` count for all who share the `Environment` and the bucket, ``loop.*``
    for all of the `Environment`."""
    commits, manifest, cache, store = driver.commits.stats, driver.stats, context.cache.stats(), context.store_stats
    return {
        "manifest.commits": commits.commits,
        "manifest.conflicts": commits.conflicts,
        "manifest.unknowns": commits.unknowns,
        "manifest.loads": manifest.loads,
        "manifest.probes": manifest.probes,
        "manifest.written_bytes": manifest.bytes_written,
        **_metadata_counters(driver, register),
        "cache.hits": cache.hits,
        "cache.misses": cache.misses,
        "cache.evictions": cache.evictions,
        "cache.index_bytes": cache.index_bytes,
        "cache.index_evictions": cache.index_evictions,
        "store.retries": store.retries,
        "store.errors": store.errors,
        "store.conflicts": store.conflicts,
        "store.read_bytes": store.bytes_in,
        "store.written_bytes": store.bytes_out,
        **{f"store.requests.{operation}": count for operation, count in store.requests.items()},
        **context.loop_lag.metrics(),
    }


def _metadata_counters(driver: ManifestDriver, register: Register | None) -> dict[str, int]:
    """What the manifest's metastore and the writer's register counted, together."""
    parts: tuple[object, ...] = (driver.metastore, register)
    counted = [part.stats for part in parts if isinstance(part, Counted)]
    names = [field.name for field in fields(MetaStats)]
    return {f"metadata.{name}": sum(getattr(stats, name) for stats in counted) for name in names}
