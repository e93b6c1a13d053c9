"""`Settings`: every knob of a database, in one frozen, checked, serialisable value.

Purpose: say once, for every knob, its unit, default and the reason for the default. Sources, strongest first:
keyword, ``SLATE_*`` environment variable, TOML file, default.

Invariant: a `Settings` that exists is free of contradictions among the values it holds. ``None`` for
``log_protocol``, ``wal_enabled``, ``compaction`` and ``retention_ms`` means "as the database has it"; what depends on
the database is checked when it is opened. Secrets never belong here: credentials come from the environment and
profiles of the store.

Ordering rule: a default that depends on another setting reads one declared above it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from slate_async.errors import InvalidError
from slate_async.setting_sources import ENV_PREFIX, explain, read_toml, refuse_unknown_variables

LogProtocol: TypeAlias = Literal["contiguous", "epoch_prefixed"]
Ack: TypeAlias = Literal["committed", "flushed"]
Compression: TypeAlias = Literal["none", "zstd", "lz4"]
CompactionStyle: TypeAlias = Literal["size_tiered", "leveled"]

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
MINUTE_MS = 60_000
DAY_MS = 86_400_000


def _setting(
    default: Any = None,
    *,
    unit: str,
    what: str,
    why: str,
    scaled: Callable[[dict[str, Any]], int] | None = None,
    default_text: str | None = None,
    **bounds: Any,
) -> Any:
    """A documented field. ``scaled`` computes the default from the fields declared above."""
    documented: dict[str, Any] = {"unit": unit, "what": what, "why": why}
    if default_text is not None:
        documented["default_text"] = default_text
    description = f"{what} Unit: {unit}. Default: {default_text or default}. {why}"
    if scaled is not None:
        return Field(default_factory=scaled, description=description, json_schema_extra=documented, **bounds)
    return Field(default, description=description, json_schema_extra=documented, **bounds)


def _share(limit: int, of: str, divisor: int) -> Callable[[dict[str, Any]], int]:
    """The default ``limit``, or that share of the setting ``of`` where it is less, at least 1."""
    return lambda values: max(1, min(limit, values.get(of, limit * divisor) // divisor))


class Settings(BaseSettings):
    """The knobs of a database. Raises `InvalidError` naming the setting that is unknown, malformed or contradictory."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_ignore_empty=True, extra="forbid", frozen=True, allow_inf_nan=False
    )

    log_protocol: LogProtocol | None = _setting(
        unit="name, contiguous or epoch_prefixed",
        what="How log objects are named and fenced. Fixed when a database is created.",
        why="Unset follows the database; a new one is contiguous, which needs no second request per flush."
        " epoch_prefixed is for stores without conditional puts.",
        default_text="unset (follow the database; contiguous for a new one)",
    )
    wal_enabled: bool | None = _setting(
        unit="true or false",
        what="Whether the log holds rows in write order and memtables are flushed to L0 SSTs of their own."
        " Fixed when a database is created.",
        why="Unset follows the database; a new one has the log, because sorting and indexing every small flush"
        " costs more than one larger SST. Off saves the second upload of every row.",
        default_text="unset (follow the database; true for a new one)",
    )
    compaction: CompactionStyle | None = _setting(
        unit="name, size_tiered or leveled",
        what="How compactors arrange SSTs. Kept with the database: a writer that sets it changes it.",
        why="Unset follows the database; a new one is size_tiered, which rewrites a row least often. leveled reads"
        " and stores less where rows are overwritten a lot.",
        default_text="unset (follow the database; size_tiered for a new one)",
    )
    retention_ms: int | None = _setting(
        unit="milliseconds",
        what="How long overwritten and deleted versions are kept for reads of the past. Kept with the database: a"
        " writer that sets it changes it.",
        why="Unset follows the database; a new one keeps none, because history costs space. Checkpoints keep single"
        " moments without it.",
        default_text="unset (follow the database; 0 for a new one)",
        ge=0,
        le=3_660 * DAY_MS,
    )
    ack: Ack = _setting(
        "committed",
        unit="name, committed or flushed",
        what="What a durable write waits for: committed (nothing acknowledged is ever lost) or flushed (uploaded;"
        " a take-over may lose it; epoch_prefixed only).",
        why="Losing an acknowledged write must be asked for, never met by accident.",
    )
    max_unflushed_bytes: int = _setting(
        256 * MIB,
        unit="bytes",
        what="Memory that rows not yet stored may take; at the limit, writes wait in order.",
        why="Four L0 SSTs in memory or on their way: the store may stall for seconds before writers notice.",
        ge=1,
        le=64 * GIB,
    )
    flush_interval_ms: int = _setting(
        100,
        unit="milliseconds",
        what="Longest wait between the starts of two flushes while one is in flight; with nothing in flight a flush"
        " starts at once.",
        why="About the latency of one upload: waiting less splits writes into more paid requests, more adds latency.",
        ge=0,
        le=DAY_MS,
    )
    flush_bytes: int = _setting(
        unit="bytes",
        what="Unflushed bytes that start a flush before the interval has passed.",
        why="Large enough that a request's fixed cost is small, small enough to upload in well under a second.",
        scaled=_share(4 * MIB, "max_unflushed_bytes", 64),
        default_text="4 MiB (a 64th of max_unflushed_bytes where that is less)",
        ge=1,
        le=GIB,
    )
    flush_parallelism: int = _setting(
        4,
        unit="flushes",
        what="Log objects in flight at once. A later take-over writes as many fence objects as the largest value"
        " a database was ever opened with.",
        why="Four hide the latency of one store; each more makes every later take-over longer.",
        ge=1,
        le=64,
    )
    max_flushes_per_second: float | None = _setting(
        unit="flushes per second",
        what="Cap on flushes started, to bound the cost of requests; latency grows to match.",
        why="No cap: latency first. Ten a second of S3 PUTs cost about 130 USD a month.",
        default_text="unset (no cap)",
        gt=0,
        le=100_000,
    )
    skip_memtable_bytes: int = _setting(
        unit="bytes",
        what="A value larger than this becomes a memtable, and a flush, of its own.",
        why="One huge value does not make its neighbours wait, nor an L0 SST many times its planned size.",
        scaled=_share(16 * MIB, "max_unflushed_bytes", 16),
        default_text="16 MiB (a 16th of max_unflushed_bytes where that is less)",
        ge=1,
        le=2 * GIB,
    )
    l0_sst_bytes: int = _setting(
        unit="bytes",
        what="Size at which the memtable is frozen and written as an L0 SST (with wal_enabled).",
        why="Few SSTs to read and few manifest commits; a crash replays at most a few times this from the log.",
        scaled=_share(64 * MIB, "max_unflushed_bytes", 4),
        default_text="64 MiB (a quarter of max_unflushed_bytes where that is less)",
        ge=1,
        le=GIB,
    )
    sst_bytes: int = _setting(
        64 * MIB,
        unit="bytes",
        what="Size at which compaction ends an SST and begins the next. The versions of one key stay together.",
        why="As an L0 SST: one upload within the request timeout; a compaction holds about two in memory a key range.",
        ge=1,
        le=GIB,
    )
    compaction_width: int = _setting(
        4,
        unit="sorted runs",
        what="Size-tiered compaction merges so many runs of about one size.",
        why="More of them write less and read more: a row is rewritten once for each power of this the database holds.",
        ge=2,
        le=64,
    )
    level_base_bytes: int = _setting(
        256 * MIB,
        unit="bytes",
        what="Leveled compaction: size of level 1.",
        why="As much as a compaction of four full L0 SSTs brings, so the two together are rewritten at equal cost.",
        ge=1,
        le=1024 * GIB,
    )
    level_ratio: int = _setting(
        10,
        unit="times",
        what="Leveled compaction: each level below level 1 is this much larger than the one above it.",
        why="A tenth of the data at most is stored twice, for about ten rewrites of a row per level.",
        ge=2,
        le=100,
    )
    compaction_parallelism: int = _setting(
        2,
        unit="key ranges",
        what="Key ranges compacted at once, and compactions under way at once.",
        why="One reads and writes while the other computes; each holds its own memory (docs/compaction.md).",
        ge=1,
        le=64,
    )
    block_bytes: int = _setting(
        unit="bytes",
        what="Size of a block before compression: the least a point read fetches and decodes.",
        why="A request's latency hides 32 KiB; larger blocks scan faster but waste cache on point reads.",
        scaled=_share(32 * KIB, "l0_sst_bytes", 1),
        default_text="32 KiB (l0_sst_bytes where that is less)",
        ge=1,
        le=64 * MIB,
    )
    compression: Compression = _setting(
        "zstd",
        unit="name, none, zstd or lz4",
        what="Compression of blocks written from now on; any kind is read. lz4 needs the extra slate-async[lz4].",
        why="Store and network are slower than zstd, which runs on worker threads and comes with the package.",
    )
    filter_bits_per_key: int = _setting(
        10,
        unit="bits per key; 0 writes no filter",
        what="Size of an SST's filter, which spares most reads of keys an SST does not hold.",
        why="About 1 % false positives; each further 5 bits divide them by ten.",
        ge=0,
        le=64,
    )
    block_cache_bytes: int = _setting(
        64 * MIB,
        unit="bytes; 0 turns the cache off",
        what="Memory for decoded blocks, and what is made of them to find rows, of a private Environment; a shared one"
        " has its own. Indexes and filters of open SSTs come on top.",
        why="Holds the hot blocks of some gigabytes while fitting a small container.",
        ge=0,
        le=1024 * GIB,
    )
    manifest_poll_interval_ms: int = _setting(
        1_000,
        unit="milliseconds",
        what="How often the manifest is read for what others changed and for a newer writer, and how long a take-over"
        " that keeps losing log ids to a busy writer waits for it to notice.",
        why="One cheap read a second. A fenced writer may answer stale reads for this long; it never acknowledges,"
        " whatever the value.",
        ge=1,
        le=DAY_MS,
    )
    checkpoint_lifetime_ms: int = _setting(
        unit="milliseconds",
        what="How long the checkpoint of a following reader lives after it was made or refreshed; it is refreshed at"
        " half of that. More than twice manifest_poll_interval_ms.",
        why="A reader that died holds what it read for ten minutes; one that lives may be cut off for five.",
        scaled=lambda values: max(10 * MINUTE_MS, 4 * values.get("manifest_poll_interval_ms", 0)),
        default_text="600000 (four times manifest_poll_interval_ms where that is more)",
        ge=1,
        le=365 * DAY_MS,
    )
    max_memtable_bytes: int = _setting(
        64 * MIB,
        unit="bytes",
        what="Size at which a following reader ends a table of replayed log rows and begins the next. A table goes"
        " when all of its rows are in SSTs.",
        why="A table goes about when a writer's goes; smaller ones go sooner, but a read asks each.",
        ge=1,
        le=64 * GIB,
    )
    log_gap_wait_ms: int = _setting(
        0,
        unit="milliseconds",
        what="How long a take-over of an epoch-prefixed log waits for missing objects above the last committed one.",
        why="Nothing acknowledged as committed is up there; wait only if flushed writes are worth a slower opening.",
        ge=0,
        le=DAY_MS,
    )
    retry_deadline_ms: int = _setting(
        30_000,
        unit="milliseconds",
        what="Time for one operation with all its retries; then UnavailableError, and for a log write, closing.",
        why="Rides out throttling and a failover of the store; longer only hides an outage from the caller.",
        ge=1,
        le=DAY_MS,
    )
    request_timeout_ms: int = _setting(
        unit="milliseconds",
        what="Longest wait for one request to a store or metastore, its body included.",
        why="An L0 SST passes in it at 7 MB/s; a dead connection is given up while a retry still fits the deadline.",
        scaled=_share(10_000, "retry_deadline_ms", 1),
        default_text="10000 (retry_deadline_ms where that is less)",
        ge=1,
        le=DAY_MS,
    )
    manifest_full_every: int = _setting(
        32,
        unit="versions",
        what="Every so many manifest versions one is stored in full, the others as changes to it; one of more than"
        " 256 KiB only once the changes have cost as much.",
        why="Opening reads the head and at most one full version; a commit costs what changed since it.",
        ge=1,
        le=1_024,
    )
    takeover_deadline_ms: int = _setting(
        60_000,
        unit="milliseconds",
        what="Time for opening to claim the database and fence the log against a writer that still runs.",
        why="Twice the retry deadline: one operation may use its own up and opening still succeeds.",
        ge=1,
        le=DAY_MS,
    )

    compactor: bool = _setting(
        True,
        unit="true or false",
        what="Whether a writer compacts, in tasks of its own, unless another process does.",
        why="A database that nobody compacts gets slow and then refuses writes. Off where `slate compactor` or"
        " open_compactor runs beside the writer.",
        default_text="true",
    )
    l0_max_ssts: int = _setting(
        32,
        unit="SSTs",
        what="L0 SSTs (without a WAL: SSTs in the log, too) at which the writer waits for compaction: with a WAL no"
        " memtable is flushed to L0 until one is compacted, without one flushes are slowed.",
        why="A read of a key that is nowhere asks every one of them; 32 filters let a read through wrongly one time in"
        " three. Planners begin far below.",
        ge=2,
        le=100_000,
    )
    l0_compact_ssts: int = _setting(
        unit="SSTs",
        what="L0 SSTs (without a WAL: SSTs in the log, too) that start a compaction.",
        why="Merging four costs little and keeps the sources few that a read asks.",
        scaled=_share(4, "l0_max_ssts", 2),
        default_text="4 (half of l0_max_ssts where that is less)",
        ge=1,
        le=100_000,
    )

    gc_interval_ms: int = _setting(
        300_000,
        unit="milliseconds",
        what="Pause between two rounds of a garbage collector.",
        why="A round lists the whole database, which is paid for; garbage costs little in five minutes.",
        ge=1,
        le=365 * DAY_MS,
    )
    gc_min_age_ms: int = _setting(
        600_000,
        unit="milliseconds",
        what="Work begun less than this ago is not refused by a garbage collector; so garbage is at least this old, up"
        " to twice that, when it goes.",
        why="Several times a slow L0 flush with all its retries; refused, it is uploaded again. Compactions are"
        " registered and never refused for their age. Safety does not depend on it: 0 is allowed.",
        ge=0,
        le=365 * DAY_MS,
    )
    gc_clock_skew_ms: int = _setting(
        60_000,
        unit="milliseconds",
        what="How far the clocks of machines that use one database may be apart: a checkpoint goes this long after"
        " it expired.",
        why="Synchronised clocks are within a second of each other, one that lost its server is not; a minute more"
        " of a checkpoint costs nothing.",
        ge=0,
        le=DAY_MS,
    )
    gc_destroy_grace_ms: int = _setting(
        DAY_MS,
        unit="milliseconds",
        what="How long after a soft destroy a garbage collector removes the database, if no checkpoint holds it then;"
        " and how long after it was begun a clone that was never finished.",
        why="Readers and clones of what was destroyed have a working day to be noticed, and cloners that died to be"
        " started again.",
        ge=0,
        le=365 * DAY_MS,
    )
    gc_max_deletes_per_round: int = _setting(
        10_000,
        unit="objects",
        what="Objects, and as many manifest versions, that a garbage collector deletes before it looks again.",
        why="A round stays a matter of seconds and of a few megabytes of names, however much has gathered; the next"
        " one follows at once.",
        ge=1,
        le=10_000_000,
    )

    if not TYPE_CHECKING:  # type checkers see the keyword arguments the fields imply

        def __init__(self, **values: Any) -> None:
            refuse_unknown_variables(os.environ, type(self).model_fields)
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise InvalidError(explain(error)) from error

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Keywords, then variables; looking every field up where no variable is ours takes longer than all the rest."""
        ours = any(name.upper().startswith(ENV_PREFIX) for name in os.environ)
        return (init_settings, env_settings) if ours else (init_settings,)

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str], **overrides: Any) -> Self:
        """Settings from a TOML file: its ``[slate]`` table if it has one (other tables then belong to others),
        else its top level. ``overrides`` and ``SLATE_*`` variables win over the file.

        Raises `InvalidError` if the file is missing, is not TOML, or holds an unknown or bad setting."""
        values = read_toml(path, cls.model_fields)
        in_environment = {name.upper() for name, value in os.environ.items() if value}
        kept = {name: value for name, value in values.items() if ENV_PREFIX + name.upper() not in in_environment}
        return cls(**{**kept, **overrides})

    def replace(self, **changes: Any) -> Self:
        """These settings with some changed, checked again; the environment plays no part. Raises `InvalidError`."""
        return type(self)(**{**self.model_dump(), **changes})

    @field_validator("*", mode="before")
    @classmethod
    def _numbers_are_not_truth_values(cls, value: object, info: Any) -> object:
        if isinstance(value, bool) and info.field_name not in ("wal_enabled", "compactor"):
            raise ValueError("must not be true or false")
        return value

    @model_validator(mode="after")
    def _free_of_contradictions(self) -> Self:
        for smaller, larger in _AT_MOST:
            if getattr(self, smaller) > getattr(self, larger):
                raise ValueError(
                    f"{smaller} ({getattr(self, smaller)}) must not exceed {larger} ({getattr(self, larger)})"
                )
        if self.log_protocol == "contiguous" and self.ack == "flushed":
            raise ValueError("ack 'flushed' exists only with log_protocol 'epoch_prefixed'")
        if self.log_protocol == "contiguous" and self.log_gap_wait_ms:
            raise ValueError("log_gap_wait_ms has a meaning only with log_protocol 'epoch_prefixed'")
        if self.checkpoint_lifetime_ms <= 2 * self.manifest_poll_interval_ms:
            raise ValueError(
                f"checkpoint_lifetime_ms ({self.checkpoint_lifetime_ms}) must exceed twice manifest_poll_interval_ms"
                f" ({self.manifest_poll_interval_ms}), or a reader's checkpoint may expire between two polls"
            )
        if 0 < self.block_cache_bytes < self.block_bytes:
            raise ValueError(
                f"block_cache_bytes ({self.block_cache_bytes}) cannot hold one block of block_bytes"
                f" ({self.block_bytes}); 0 turns the cache off"
            )
        return self


_AT_MOST = (
    ("flush_bytes", "max_unflushed_bytes"),
    ("skip_memtable_bytes", "max_unflushed_bytes"),
    ("l0_sst_bytes", "max_unflushed_bytes"),
    ("block_bytes", "l0_sst_bytes"),
    ("l0_compact_ssts", "l0_max_ssts"),
    ("request_timeout_ms", "retry_deadline_ms"),
    ("log_gap_wait_ms", "takeover_deadline_ms"),
    ("manifest_poll_interval_ms", "takeover_deadline_ms"),
)
"""Pairs of settings of which the first must not exceed the second."""
