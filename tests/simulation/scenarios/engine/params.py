"""What one seed runs: every knob of an engine scenario, drawn from the seed."""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from slate_async.settings import Settings

Metadata = Literal["put-if-absent", "if-match", "server", "register"]
LogProtocol = Literal["contiguous", "epoch_prefixed"]
LEASE_SKEW_MS = 1_000
"""What writers allow for clocks that differ, where leases are tried."""
METADATA: tuple[Metadata, ...] = ("put-if-absent", "if-match", "server", "register")


@dataclass(frozen=True, slots=True)
class Params:
    """metadata: versions by put-if-absent; a pointer by If-Match; a database server's own sequence of versions; a
    register of such a server with bodies beside the data
    same_instant: the writers open at the same time instead of one after another
    lives: how often a writer that crashed is started again, plus one
    freezes: whether it stands still at a random step, to wake up later
    active_seconds: how long it all goes on before the world is calmed
    faults: factor on every fault's probability
    delayed: probability that a request or its answer takes long
    lag: how many log positions a follower reads at most in one round
    bite: how many log positions a compactor takes at most, where it takes the log
    ingesters: drivers of bulk ingests; only where a scenario says so
    early_flushes: whether some writers flush to L0 after few log objects or milliseconds; only where a scenario says so
    lease_ms: of ingests whose drivers renew them; only where a scenario says so
    """

    protocol: LogProtocol
    wal: bool
    metadata: Metadata
    ack: Literal["committed", "flushed"]
    create_by_writers: bool
    writers: int
    same_instant: bool
    lives: int
    crashes: float
    freezes: float
    tasks: int
    rounds: int
    active_seconds: float
    faults: float
    delayed: float
    lag: int
    bite: int
    followers: int
    compactors: int
    log_collectors: int
    manifest_collectors: int
    parallelism: int
    l0_rows: int
    l0_flushes: float
    ingesters: int = 0
    early_flushes: bool = False
    lease_ms: int | None = None

    @classmethod
    def draw(cls, rng: random.Random, fixed: Mapping[str, Any]) -> Params:
        """Everything by chance but what is ``fixed``."""
        protocol: LogProtocol = rng.choice(("contiguous", "epoch_prefixed"))
        protocol = fixed.get("protocol", protocol)
        flushed = rng.random() < 0.3 and protocol == "epoch_prefixed"
        drawn = cls(
            protocol=protocol,
            wal=rng.random() < 0.6,
            metadata=rng.choice(METADATA),
            ack="flushed" if flushed else "committed",
            create_by_writers=rng.random() < 0.1,
            writers=rng.choice((2, 2, 3, 4)),
            same_instant=rng.random() < 0.25,
            lives=rng.choice((1, 1, 2)),
            crashes=rng.choice((0.0, 0.4, 0.7)),
            freezes=rng.choice((0.0, 0.4, 0.7)),
            tasks=rng.choice((1, 2, 3)),
            rounds=rng.choice((4, 8, 12)),
            active_seconds=rng.choice((1.0, 2.5, 5.0)),
            faults=rng.choice((0.0, 0.5, 1.0, 1.0, 1.5)),
            delayed=rng.choice((0.03, 0.03, 0.15)),
            lag=rng.choice((1, 3, 8)),
            bite=rng.choice((1, 3, 8)),
            followers=rng.choice((0, 0, 1, 2)),
            compactors=rng.choice((0, 0, 1, 2)),
            log_collectors=rng.choice((0, 1, 1)),
            manifest_collectors=rng.choice((0, 1)),
            parallelism=rng.choice((1, 2, 4, 4)),
            l0_rows=rng.choice((4, 12, 1000)),
            l0_flushes=rng.choice((0.05, 0.2)),
        )
        return replace(drawn, **fixed)

    def settings(self, rng: random.Random, poll_ms: int | None) -> Settings:
        """The settings one process opens the database with; small ones, so that everything happens often."""
        return small_settings(**self.chosen(rng, poll_ms))

    def chosen(self, rng: random.Random, poll_ms: int | None) -> dict[str, Any]:
        """Those of them that differ from process to process, or from seed to seed."""
        return {
            "log_protocol": self.protocol,
            "wal_enabled": self.wal,
            "ack": self.ack,
            "flush_parallelism": rng.randint(1, self.parallelism),
            "flush_interval_ms": rng.choice((1, 10)),
            "flush_bytes": rng.choice((1, 100_000)),
            "max_unflushed_bytes": rng.choice((2_000, 200_000)),
            "l0_sst_bytes": 150 * self.l0_rows,
            "skip_memtable_bytes": rng.choice((8, 1_000)),
            "manifest_full_every": rng.choice((1, 2, 3, 8)),
            "manifest_poll_interval_ms": rng.choice((400, 2_000)) if poll_ms is None else poll_ms,
            **({} if self.lease_ms is None else {"ingest_lease_ms": self.lease_ms, "gc_clock_skew_ms": LEASE_SKEW_MS}),
            **(_early_flushes(random.Random(rng.getstate()[1][0])) if self.early_flushes else {}),
        }


def _early_flushes(rng: random.Random) -> dict[str, Any]:
    """When some writers flush to L0 besides. Of a generator of its own: what else a seed draws stays as it is."""
    if rng.random() < 0.7:
        return {}
    return {"l0_flush_objects": rng.choice((3, 12)), "l0_flush_interval_ms": rng.choice((0, 300))}


@functools.cache
def small_settings(**chosen: Any) -> Settings:
    """Settings of a database for few and small rows; ``chosen`` go before those here."""
    limit = chosen["max_unflushed_bytes"]
    for name in ("flush_bytes", "l0_sst_bytes", "skip_memtable_bytes"):
        chosen[name] = min(chosen[name], limit)
    usual = {
        "block_bytes": min(256, chosen["l0_sst_bytes"]),
        "compression": "none",
        "block_cache_bytes": 1 << 20,
        "retry_deadline_ms": 10_000,
        "request_timeout_ms": 5_000,
        "takeover_deadline_ms": 60_000,
        "auto_compaction": False,
        "auto_gc": False,
        "l0_max_ssts": 100_000,
    }
    return Settings(**{**usual, **chosen})
