"""Settings of what is stored: blocks, SSTs, the block cache, compaction."""

from __future__ import annotations

from pydantic_settings import BaseSettings

from slate_async.settings.fields import GIB, KIB, MIB, CompactionStyle, Compression, setting, share


class StorageSettings(BaseSettings):
    """A part of `Settings`; see there."""

    block_bytes: int = setting(
        unit="bytes",
        what="Size of a block before compression: the least a point read fetches and decodes.",
        why="A request's latency hides 32 KiB. 8 KiB make a fifth more point reads beyond the cache, a third fewer"
        " scans of 50 rows, and three times as large indexes (docs/operations/benchmarks.md).",
        scaled=share(32 * KIB, "l0_sst_bytes", 1),
        default_text="32 KiB (l0_sst_bytes where that is less)",
        ge=1,
        le=64 * MIB,
    )
    compression: Compression = setting(
        "zstd",
        unit="name, none, zstd or lz4",
        what="Compression of blocks written from now on; any kind is read. lz4 needs the extra slate-async[lz4].",
        why="Store and network are slower than zstd, which runs on worker threads and comes with the package.",
    )
    filter_bits_per_key: int = setting(
        10,
        unit="bits per key; 0 writes no filter",
        what="Size of an SST's filter, which spares most reads of keys an SST does not hold.",
        why="About 1 % false positives; each further 5 bits divide them by ten.",
        ge=0,
        le=64,
    )
    block_cache_bytes: int = setting(
        64 * MIB,
        unit="bytes; 0 turns the cache off",
        what="Memory for decoded blocks, and what is made of them to find rows, of a private Environment; a shared one"
        " has its own. Indexes and filters of SSTs count, too, and may fill three quarters of it; with 0 they are kept"
        " beside it, all of them.",
        why="Holds the hot blocks of some gigabytes while fitting a small container.",
        ge=0,
        le=1024 * GIB,
    )
    decode_memory_bytes: int = setting(
        unit="bytes",
        what="Memory for blocks and log objects while they are decompressed, of all databases of an Environment"
        " together. A block that needs more by itself has all of it, with nothing beside; a log object that does is"
        " refused. Scans read the less at once the more of them are under way:"
        " what they have decoded stays within it, too. Stored bytes of blocks of more than 4 MiB have as much again,"
        " for each open database. The largest that was asked for counts.",
        why="Compressed bytes may become ten thousand times as many. Room for a few of the largest values at once. A"
        " writer needs twice max_value_bytes and four times flush_bytes, and takes no batch that is larger.",
        scaled=lambda values: max(256 * MIB, 4 * values.get("max_value_bytes", 0)),
        default_text="256 MiB (four times max_value_bytes where that is more)",
        ge=MIB,
        le=1024 * GIB,
    )
    sst_bytes: int = setting(
        64 * MIB,
        unit="bytes",
        what="Size at which compaction ends an SST and begins the next. The versions of one key stay together.",
        why="As an L0 SST: one upload within the request timeout; a compaction holds about two in memory a key range.",
        ge=1,
        le=GIB,
    )
    compaction_style: CompactionStyle | None = setting(
        unit="name, size_tiered or leveled",
        what="How compactors arrange SSTs. Kept with the database: a writer that sets it changes it.",
        why="Unset follows the database. A new one is size_tiered, which rewrites a row least often; leveled"
        " reads and stores less where rows are overwritten a lot.",
        default_text="unset (follow the database; size_tiered for a new one)",
    )
    auto_compaction: bool = setting(
        True,
        unit="true or false",
        what="Whether a writer compacts, in tasks of its own, unless another process does.",
        why="A database without a compactor gets slow and then refuses writes. Off where `slate compactor` or"
        " open_compactor runs beside the writer.",
        default_text="true",
    )
    min_merge_width: int = setting(
        4,
        unit="sorted runs",
        what="Size-tiered compaction merges so many runs of about one size.",
        why="More of them write less and read more: a row is rewritten once for each power of this the database holds.",
        ge=2,
        le=64,
    )
    level_base_bytes: int = setting(
        256 * MIB,
        unit="bytes",
        what="Leveled compaction: size of level 1.",
        why="As much as a compaction of four full L0 SSTs brings, so the two together are rewritten at equal cost.",
        ge=1,
        le=1024 * GIB,
    )
    level_size_multiplier: int = setting(
        10,
        unit="times",
        what="Leveled compaction: each level below level 1 is this much larger than the one above it.",
        why="A tenth of the data at most is stored twice, for about ten rewrites of a row per level.",
        ge=2,
        le=100,
    )
    compaction_parallelism: int = setting(
        2,
        unit="key ranges",
        what="Key ranges compacted at once, and compactions under way at once.",
        why="One reads and writes while the other computes; each holds its own memory (docs/design/compaction.md).",
        ge=1,
        le=64,
    )
    l0_max_ssts: int = setting(
        32,
        unit="SSTs",
        what="L0 SSTs (without a WAL: SSTs in the log, too) at which the writer waits for compaction. With a WAL"
        " it flushes no memtable to L0 until one is compacted. Without one it slows flushes.",
        why="A read of a key that is nowhere asks every one of them; 32 filters let a read through wrongly one time in"
        " three. Planners begin far below.",
        ge=2,
        le=100_000,
    )
    l0_compact_ssts: int = setting(
        unit="SSTs",
        what="L0 SSTs (without a WAL: SSTs in the log, too) that start a compaction.",
        why="Merging four costs little and keeps the sources few that a read asks.",
        scaled=share(4, "l0_max_ssts", 2),
        default_text="4 (half of l0_max_ssts where that is less)",
        ge=1,
        le=100_000,
    )
