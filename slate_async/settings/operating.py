"""Settings of operation: polling, checkpoints, retries and deadlines, garbage collection."""

from __future__ import annotations

from pydantic_settings import BaseSettings

from slate_async.settings.fields import DAY_MS, GIB, MIB, MINUTE_MS, FileMode, OnOutage, setting, share


class OperationSettings(BaseSettings):
    """A part of `Settings`; see there."""

    manifest_poll_interval_ms: int = setting(
        1_000,
        unit="milliseconds",
        what="How often writers and readers read the manifest, for changes of other processes and for a newer"
        " writer. A takeover that keeps losing log ids to a busy writer waits this long for it to notice.",
        why="One cheap read a second. A fenced writer may answer stale reads for this long; it never acknowledges,"
        " whatever the value.",
        ge=1,
        le=DAY_MS,
    )
    heartbeat_interval_ms: int = setting(
        30_000,
        unit="milliseconds",
        what="How often a writer says that it lives, by overwriting one object; 0: never. A standby takes over when it"
        " has been silent for three times as long, and at once when it closed.",
        why="A dead writer is replaced within two minutes, for 0.43 dollars a month of PUTs on S3. It decides when a"
        " standby tries a takeover, never which writer may write.",
        ge=0,
        le=DAY_MS,
    )
    idle_poll_interval_ms: int | None = setting(
        unit="milliseconds",
        what="How often a writer that has nothing to write reads the manifest. The first write brings it back to"
        " manifest_poll_interval_ms.",
        why="Unset is manifest_poll_interval_ms: at list prices an idle writer's polls cost a dollar a month. Ten"
        " seconds cost a tenth, and the writer notices an ingest, a foreign compaction and a newer writer so"
        " much later.",
        default_text="unset (manifest_poll_interval_ms)",
        ge=1,
        le=10_000,
    )
    version_keep_ms: int = setting(
        600_000,
        unit="milliseconds",
        what="How long collectors leave a manifest version alone, however soon another one follows it. For a quarter of"
        " this after a listing, polls read the next version instead of listing. The same for all processes.",
        why="A read costs a twelfth of a listing. Ten minutes of versions are a few hundred small objects at most. A"
        " collector that keeps them for less makes readers late, never wrong. 0: every poll lists.",
        ge=0,
        le=DAY_MS,
    )
    checkpoint_lifetime_ms: int = setting(
        unit="milliseconds",
        what="How long the checkpoint of a following reader lives after it was made or refreshed; it is refreshed at"
        " half of that. More than twice manifest_poll_interval_ms.",
        why="A reader that died holds what it read for ten minutes; one that lives may be cut off for five.",
        scaled=lambda values: max(10 * MINUTE_MS, 4 * values.get("manifest_poll_interval_ms", 0)),
        default_text="600000 (four times manifest_poll_interval_ms where that is more)",
        ge=1,
        le=365 * DAY_MS,
    )
    reader_memtable_bytes: int = setting(
        64 * MIB,
        unit="bytes",
        what="Size at which a following reader ends a table of replayed log rows and begins the next; an eighth of"
        " replay_memory_bytes where that is less. A table goes when all of its rows are in SSTs.",
        why="A table goes about when a writer's goes; smaller ones go sooner, but a read asks each.",
        ge=1,
        le=64 * GIB,
    )
    replay_memory_bytes: int = setting(
        unit="bytes",
        what="Memory for rows of the log that no SST holds yet, in an opening that replays them and in a reader that"
        " follows. An opening that meets more is refused, and a reader closes; both name this setting.",
        why="Few stored bytes may be many rows. A writer with the same settings leaves a quarter of this at most, or"
        " one batch that takes half. A reader needs twice the max_unflushed_bytes of its writer: it holds rows that"
        " SSTs hold already, too.",
        scaled=lambda values: max(
            512 * MIB, 4 * values.get("max_unflushed_bytes", 0), 2 * values.get("decode_memory_bytes", 0)
        ),
        default_text="512 MiB (four times max_unflushed_bytes or twice decode_memory_bytes where that is more)",
        ge=1,
        le=1024 * GIB,
    )
    log_gap_wait_ms: int = setting(
        0,
        unit="milliseconds",
        what="How long a takeover of an epoch-prefixed log waits for missing objects above the last committed one.",
        why="Nothing acknowledged as committed is up there; wait only if flushed writes are worth a slower opening.",
        ge=0,
        le=DAY_MS,
    )
    retry_deadline_ms: int = setting(
        30_000,
        unit="milliseconds",
        what="Time for one operation with all its retries; then UnavailableError, and for a log write, what on_outage"
        " says.",
        why="Rides out throttling and a failover of the store; longer only hides an outage from the caller.",
        ge=1,
        le=DAY_MS,
    )
    on_outage: OnOutage = setting(
        "reopen",
        unit="name, reopen or close",
        what="What a writer does when the store has not taken its log for retry_deadline_ms. With close it closes"
        " the database. With reopen it refuses writes and serves reads, and continues once the store answers,"
        " unless another writer has taken over.",
        why="An outage that is over must not need a restart. close where a supervisor restarts the process anyway.",
    )
    request_timeout_ms: int = setting(
        unit="milliseconds",
        what="Longest wait for one request to a store or metastore, its body included.",
        why="An L0 SST passes in it at 7 MB/s; a dead connection is given up while a retry still fits the deadline.",
        scaled=share(10_000, "retry_deadline_ms", 1),
        default_text="10000 (retry_deadline_ms where that is less)",
        ge=1,
        le=DAY_MS,
    )
    file_mode: FileMode = setting(
        "0600",
        unit="octal digits (read and write only; the owner may do both), or umask",
        what="Permissions of the files in a local folder. Folders get them, too, and users who may read may enter"
        " them. umask: as the process's umask says. Existing files keep their own.",
        why="A database is for its owner alone unless you say otherwise. 0660 lets a group share it, 0640 read it.",
    )
    manifest_full_every: int = setting(
        32,
        unit="versions",
        what="One in so many manifest versions is stored in full, the others as changes to it. One of more than"
        " 256 KiB is stored in full only once the changes have cost as much.",
        why="Opening reads the head and at most one full version; a commit costs what changed since it.",
        ge=1,
        le=1_024,
    )
    ingest_lease_ms: int = setting(
        30_000,
        unit="milliseconds",
        what="How long a committed bulk ingest without a job id may be applied after its driver's last renewal. The"
        " driver renews it three times as often. No writer applies it gc_clock_skew_ms after that.",
        why="A load whose process was killed must not come in with whatever writes next; a driver may stand still for"
        " twenty seconds.",
        ge=10,
        le=DAY_MS,
    )
    takeover_deadline_ms: int = setting(
        60_000,
        unit="milliseconds",
        what="Time for all of an opening: to claim the database, to fence the log against a writer that still runs, to"
        " replay it.",
        why="Twice the retry deadline: one operation may use its own up and opening still succeeds.",
        ge=1,
        le=DAY_MS,
    )
    auto_gc: bool = setting(
        True,
        unit="true or false",
        what="Whether a writer collects garbage, in a task of its own; only when something was made garbage since its"
        " last round.",
        why="A database alone on its folder keeps many times what is in it otherwise. Off where `slate gc` or open_gc"
        " runs beside the writer.",
        default_text="true",
    )
    gc_interval_ms: int = setting(
        300_000,
        unit="milliseconds",
        what="Pause between two rounds of a garbage collector, also of a writer's own (auto_gc).",
        why="A round lists the whole database, which is paid for; garbage costs little in five minutes.",
        ge=1,
        le=365 * DAY_MS,
    )
    gc_min_age_ms: int = setting(
        600_000,
        unit="milliseconds",
        what="A garbage collector does not refuse work that began less than this ago. So garbage is at least this"
        " old, up to twice that, when it is deleted.",
        why="Several times a slow L0 flush with all its retries; refused, it is uploaded again. Compactions are"
        " registered and never refused for their age. Safety does not depend on it: 0 is allowed.",
        ge=0,
        le=365 * DAY_MS,
    )
    gc_stalled_compaction_ms: int = setting(
        120 * MINUTE_MS,
        unit="milliseconds",
        what="A compactor that finishes nothing of its registered compactions for this long loses them, and its"
        " role. One that released its role loses them after gc_min_age_ms.",
        why="A key range takes seconds, so no living compactor is this slow. Meanwhile the work of a dead one"
        " holds back all garbage made since. Safety does not depend on it: one that merely slept begins again.",
        ge=1,
        le=365 * DAY_MS,
    )
    gc_clock_skew_ms: int = setting(
        60_000,
        unit="milliseconds",
        what="How far the clocks of machines that use one database may be apart. Checkpoints and leases of ingests"
        " go this long after they expired.",
        why="Synchronised clocks are within a second of each other, one that lost its server is not; a minute more"
        " of either costs nothing.",
        ge=0,
        le=DAY_MS,
    )
    gc_destroy_grace_ms: int = setting(
        DAY_MS,
        unit="milliseconds",
        what="How long after a soft destroy a garbage collector removes the database, if no checkpoint holds it"
        " then. A clone that was never finished is removed as long after it was begun.",
        why="Readers and clones of a destroyed database have a working day to be noticed, and cloners that died"
        " to be started again.",
        ge=0,
        le=365 * DAY_MS,
    )
    gc_max_deletes_per_round: int = setting(
        10_000,
        unit="objects",
        what="Objects, and as many manifest versions, that a garbage collector deletes before it looks again.",
        why="A round stays a matter of seconds and of a few megabytes of names, however much has gathered; the next"
        " one follows at once.",
        ge=1,
        le=10_000_000,
    )
