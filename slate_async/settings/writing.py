"""Settings of writes: the log, its flushes, memtables and L0."""

from __future__ import annotations

from pydantic_settings import BaseSettings

from slate_async.settings.fields import DAY_MS, GIB, MIB, MINUTE_MS, Ack, LogProtocol, setting, share
from slate_async.types import MAX_KEY_BYTES, MAX_VALUE_BYTES


class WriteSettings(BaseSettings):
    """A part of `Settings`; see there."""

    log_protocol: LogProtocol | None = setting(
        unit="name, contiguous or epoch_prefixed",
        what="How log objects are named and fenced. Fixed when a database is created.",
        why="Unset follows the database; a new one is contiguous, which needs no second request per flush."
        " epoch_prefixed is for stores without conditional puts.",
        default_text="unset (follow the database; contiguous for a new one)",
    )
    wal_enabled: bool | None = setting(
        unit="true or false",
        what="Whether the log holds rows in write order and memtables are flushed to L0 SSTs of their own."
        " Fixed when a database is created.",
        why="Unset follows the database; a new one has the log, because sorting and indexing every small flush"
        " costs more than one larger SST. Off saves the second upload of every row.",
        default_text="unset (follow the database; true for a new one)",
    )
    merge_operator: str | None = setting(
        unit="name of a merge operator",
        what="What makes one value of a key's operands: add_i64, max, min, append, set_union, json_merge_patch, or one"
        " that every process registers. Fixed when a database is created.",
        why="Unset follows the database; a new one has none, so that scans of one source need not merge.",
        default_text="unset (follow the database; none for a new one)",
    )
    ack: Ack = setting(
        "committed",
        unit="name, committed or flushed",
        what="What a durable write waits for: committed (nothing acknowledged is ever lost) or flushed (uploaded;"
        " a takeover may lose it; epoch_prefixed only).",
        why="Losing an acknowledged write must be asked for, never met by accident.",
    )
    max_unflushed_bytes: int = setting(
        128 * MIB,
        unit="bytes",
        what="Memory for rows that no SST holds yet, durable or not; at the limit, writes wait in order.",
        why="Four L0 SSTs in memory or in flight: one that is written, one in flight, two for a store that"
        " stalls. A load that does not end takes three to four times as much in all. Twice the limit saves"
        " some 5 % of its processor time (docs/operations/benchmarks.md).",
        ge=1,
        le=64 * GIB,
    )
    max_key_bytes: int = setting(
        MAX_KEY_BYTES,
        unit="bytes",
        what="Longest key that may be written. Longer ones that are there already are read and deleted as ever.",
        why="As long as the formats hold; indexes and filters hold whole keys, so short ones are better.",
        ge=1,
        le=MAX_KEY_BYTES,
    )
    max_value_bytes: int = setting(
        64 * MIB,
        unit="bytes",
        what="Largest value that may be written. Larger ones that are there already are read and deleted as ever.",
        why="A value is in memory as a whole wherever it is read, merged or replayed, some times over; more must be"
        " asked for.",
        ge=1,
        le=MAX_VALUE_BYTES,
    )
    flush_interval_ms: int = setting(
        100,
        unit="milliseconds",
        what="Time between the starts of two flushes, unless flush_bytes have gathered, a caller flushes, or"
        " flush_at_once lets one start earlier. The first write after a pause starts a flush at once.",
        why="About the latency of one upload: waiting less splits writes into more paid requests, more adds latency.",
        ge=0,
        le=DAY_MS,
    )
    flush_at_once: bool = setting(
        True,
        unit="true or false",
        what="Whether a flush also starts whenever none is in flight, and when 256 writes wait. Then flush_interval_ms"
        " is the longest wait while one is in flight.",
        why="On a store of 30 ms a durable put takes 35 ms at 20 writes a second, and 80 ms without. A task that"
        " waits for each of its writes is three times as fast. Without, 20 writes a second need half of the"
        " PUTs. Most applications miss latency first; docs/operations/cost.md says when to turn it off.",
    )
    flush_bytes: int = setting(
        unit="bytes",
        what="Unflushed bytes that start a flush before the interval has passed.",
        why="Large enough that a request's fixed cost is small, small enough to upload in well under a second.",
        scaled=share(4 * MIB, "max_unflushed_bytes", 32),
        default_text="4 MiB (a 32nd of max_unflushed_bytes where that is less)",
        ge=1,
        le=GIB,
    )
    flush_parallelism: int = setting(
        4,
        unit="flushes",
        what="Log objects in flight at once. A later takeover writes as many fence objects as the largest value"
        " a database was ever opened with.",
        why="Four hide the latency of one store; each more makes every later takeover longer.",
        ge=1,
        le=64,
    )
    max_flushes_per_second: float | None = setting(
        unit="flushes per second",
        what="Cap on flushes started, to bound the cost of requests; latency grows to match.",
        why="No cap: latency first. Ten a second of S3 PUTs cost about 130 USD a month.",
        default_text="unset (no cap)",
        gt=0,
        le=100_000,
    )
    skip_memtable_bytes: int = setting(
        unit="bytes",
        what="A value larger than this becomes a memtable, and a flush, of its own.",
        why="One huge value does not make its neighbours wait, nor an L0 SST many times its planned size.",
        scaled=share(16 * MIB, "max_unflushed_bytes", 8),
        default_text="16 MiB (an eighth of max_unflushed_bytes where that is less)",
        ge=1,
        le=2 * GIB,
    )
    l0_sst_bytes: int = setting(
        unit="bytes",
        what="Size at which the memtable is frozen and written as an L0 SST (with wal_enabled).",
        why="Few SSTs to read and few manifest commits; a crash replays at most a few times this from the log.",
        scaled=share(64 * MIB, "max_unflushed_bytes", 4),
        default_text="32 MiB (a quarter of max_unflushed_bytes, 64 MiB at most)",
        ge=1,
        le=GIB,
    )
    l0_flush_objects: int = setting(
        4_096,
        unit="log objects",
        what="Most log objects whose rows are not in L0 yet (with wal_enabled). At three quarters of them the"
        " writer writes the memtable as an L0 SST, however small it is. At all of them writes wait until it is"
        " there.",
        why="The next opening reads each of them: with 64 requests of 30 ms at a time these take two seconds.",
        ge=1,
        le=1_000_000,
    )
    l0_flush_interval_ms: int = setting(
        5 * MINUTE_MS,
        unit="milliseconds",
        what="How long rows stay in the log alone (with wal_enabled) before the memtable is written as an L0 SST,"
        " however small it is. 0: for ever.",
        why="A slow writer leaves the next opening five minutes of objects at most, for twelve small SSTs an hour.",
        ge=0,
        le=DAY_MS,
    )
    retention_ms: int | None = setting(
        unit="milliseconds",
        what="How long overwritten and deleted versions are kept for time travel. Kept with the database: a"
        " writer that sets it changes it.",
        why="Unset follows the database; a new one keeps none, because history costs space. Checkpoints keep"
        " single states without it.",
        default_text="unset (follow the database; 0 for a new one)",
        ge=0,
        le=3_660 * DAY_MS,
    )
    default_ttl_ms: int | None = setting(
        unit="milliseconds",
        what="How long a row lives that is put without ttl. ttl=math.inf makes one that never expires. Bulk ingests set"
        " their own.",
        why="Unset: a row that vanishes must be asked for. It is not kept with the database.",
        default_text="unset (for ever)",
        ge=1,
        le=36_600 * DAY_MS,
    )
    transaction_lifetime_ms: int = setting(
        MINUTE_MS,
        unit="milliseconds",
        what='How long a transaction may be open. An older one gets ConflictError with reason="too_old".',
        why="A transaction that nobody ends keeps SSTs and the keys of recent writes; a minute is many times what a"
        " request takes.",
        ge=1,
        le=DAY_MS,
    )
    transaction_memory_bytes: int = setting(
        64 * MIB,
        unit="bytes",
        what="Memory for what open transactions have read, as keys and ranges, and for the keys of rows written since"
        " the oldest began. At the limit the oldest, or the one that has read most, gets ConflictError.",
        why="Some 350,000 keys in all. Nothing is kept while no transaction is open.",
        ge=MIB,
        le=64 * GIB,
    )
    watch_buffer_rows: int = setting(
        4_096,
        unit="changes",
        what="How many changes may wait for one watcher. One that is slower goes on from the shared change feed, or"
        " ends (on_lag). As many of the newest are kept for watchers that come or come back.",
        why="A watcher that sends each change to a client over a slow line has seconds for a burst of a few thousand.",
        ge=1,
        le=10_000_000,
    )
    watch_buffer_bytes: int = setting(
        8 * MIB,
        unit="bytes",
        what="How many bytes of changes may wait for one watcher, and as watch_buffer_rows.",
        why="Watchers of one prefix share what waits, so a thousand of them seldom take more than one.",
        ge=1,
        le=64 * GIB,
    )
