"""Counters by dotted name: those of each role, and those that every handle has."""

from __future__ import annotations

from dataclasses import fields

from metastores.protocol import Register
from metastores.stats import Counted, MetaStats
from slate_async.engine.context import DatabaseContext
from slate_async.engine.follow.follower import Follower
from slate_async.engine.follow.source import ReaderSource
from slate_async.engine.write.open_transactions import OpenTransactions
from slate_async.engine.write.writer import Writer
from slate_async.storage.manifest.driver import ManifestDriver


def shared_counters(
    context: DatabaseContext, driver: ManifestDriver, register: Register | None
) -> dict[str, int | float]:
    """By dotted name. ``cache.*`` and ``store.*`` count for all databases that share the `Environment` and the bucket,
    ``loop.*`` for the whole `Environment`."""
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
        **store.metrics(),
        **context.loop_lag.metrics(),
    }


def _metadata_counters(driver: ManifestDriver, register: Register | None) -> dict[str, int]:
    """What the manifest's metastore and the writer's register counted, together."""
    parts: tuple[object, ...] = (driver.metastore, register)
    counted = [part.stats for part in parts if isinstance(part, Counted)]
    names = [field.name for field in fields(MetaStats)]
    return {f"metadata.{name}": sum(getattr(stats, name) for stats in counted) for name in names}


def writer_counters(writer: Writer, reads: int) -> dict[str, int | float]:
    """By dotted name: what a writer did since the database was opened; ``reads``: begun on it."""
    return {
        "db.writes": writer.sequencer.writes,
        "db.batches": writer.sequencer.batches,
        "db.reads": reads,
        "db.range_deletes": writer.state.range_deletes,
        "log.flushes": writer.flusher.stats.flushes,
        "log.rows": writer.flusher.stats.rows,
        "log.written_bytes": writer.flusher.stats.bytes,
        "log.window_waits": writer.flusher.stats.window_waits,
        "l0.ssts": writer.l0.stats.ssts,
        "l0.rows": writer.l0.stats.rows,
        "l0.written_bytes": writer.l0.stats.bytes,
        "l0.stalls": writer.pressure.stalls,
        "l0.stalled_seconds": writer.pressure.stalled_seconds,
        "ingest.applied": writer.ingests.stats.applied,
        "ingest.expired": writer.ingests.stats.expired,
        "ingest.rows": writer.ingests.stats.rows,
        "ingest.paused_seconds": writer.ingests.stats.paused_seconds,
        "backpressure.stalls": writer.admission.stalls,
        **_transaction_counters(writer.transactions),
    }


def _transaction_counters(transactions: OpenTransactions) -> dict[str, int | float]:
    stats = transactions.stats
    return {
        "transactions.open": len(transactions),
        "transactions.tracked_bytes": transactions.nbytes,
        **{f"transactions.{field.name}": getattr(stats, field.name) for field in fields(stats)},
    }


def reader_counters(source: ReaderSource) -> dict[str, int | float]:
    """By dotted name: what a reader did since it was opened."""
    follower, replayed = source if isinstance(source, Follower) else None, source.reader_state.stats
    pins = None if follower is None else follower.pins
    return {
        "db.range_deletes": source.reader_state.range_deletes,
        "reader.rounds": 0 if follower is None else follower.rounds,
        "reader.dropped_rounds": 0 if follower is None else follower.dropped,
        "reader.checkpoints_made": 0 if pins is None else pins.made,
        "reader.checkpoints_refreshed": 0 if pins is None else pins.refreshed,
        "reader.checkpoints_lost": 0 if pins is None else pins.lost,
        "log.objects": replayed.objects,
        "log.rows": replayed.rows,
        "log.read_bytes": replayed.nbytes,
    }
