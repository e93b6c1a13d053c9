"""`CollectionSettings`: every knob of persistent collections.

Sources, strongest first: keyword, ``SLATE_COLLECTIONS_*`` environment variable, TOML file (``[slate.collections]``),
default.
"""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import model_validator

from slate_async.settings.fields import DAY_MS, GIB, KIB, MIB, MINUTE_MS, FileMode, setting, share
from slate_async.settings.sourced import SourcedSettings, check_at_most
from slate_async.settings.sources import COLLECTIONS_PREFIX, COLLECTIONS_TABLE


class CollectionSettings(SourcedSettings, env_prefix=COLLECTIONS_PREFIX):
    """The knobs of persistent collections. Raises `ConfigError` naming the setting that is unknown, malformed or
    contradictory."""

    _prefix: ClassVar[str] = COLLECTIONS_PREFIX
    _table: ClassVar[tuple[str, ...]] = ("slate", COLLECTIONS_TABLE)

    flush_parallelism: int = setting(
        16,
        unit="appends",
        what="Appends of one writer of a definite collection that are in flight at once. They are acknowledged in"
        " order. A compare collection takes one at a time.",
        why="At 50 ms for a PUT that is 320 appends a second, and 16 batches in memory.",
        ge=1,
        le=1_024,
    )
    part_bytes: int = setting(
        16 * MIB,
        unit="bytes, before compression",
        what="Size of one object of a large batch. A batch of more is put in parts, three of which are in memory at"
        " once, and has at most 10,000 of them.",
        why="A part passes in retry_deadline_ms at 1 MB/s, and 160 GB are one batch.",
        ge=64 * KIB,
        le=48 * MIB,
    )
    max_pending: int = setting(
        10_000,
        unit="batches",
        what="Batches that a writer appends before the controller has taken them in; more appends wait for it until"
        " retry_deadline_ms.",
        why="Readers and the controller list what is pending: ten requests for 10,000. More says that no controller"
        " runs.",
        ge=1,
        le=1_000_000,
    )
    lease_ms: int = setting(
        60_000,
        unit="milliseconds",
        what="A read handle that has not renewed its hold for this long may be revoked; it then raises LeaseLostError."
        " More than twice poll_interval_ms.",
        why="A dead reader holds back garbage for a minute; a living one may stand still for half of that.",
        ge=10,
        le=365 * DAY_MS,
    )
    poll_interval_ms: int = setting(
        500,
        unit="milliseconds",
        what="How often readers and the controller look for something new. Writers in the same Environment wake them"
        " sooner.",
        why="Two cheap reads a second for each collection; a change of another process is seen half of this late.",
        ge=1,
        le=DAY_MS,
    )
    downgrade_interval_ms: int = setting(
        1_000,
        unit="milliseconds",
        what="A reader writes a since that it was given at most this often, the last one.",
        why="A listener gives times up with each delta; each write is a PUT.",
        ge=0,
        le=DAY_MS,
    )
    shard_patience_ms: int = setting(
        2_000,
        unit="milliseconds",
        what="A reader of a definite collection lists the batches of all writers when the followed one has shown"
        " nothing new for this long. It may follow another one then.",
        why="A standby takes over for its readers two seconds after a writer stopped; an idle collection costs a"
        " listing as often.",
        ge=0,
        le=DAY_MS,
    )
    shard_lag: int = setting(
        16,
        unit="batches",
        what="A followed writer may be this far behind another one before its readers switch.",
        why="Switching costs a listing; 16 batches are a second or two of a writer that appends ten times a second.",
        ge=1,
        le=100_000,
    )
    pending_memory_bytes: int = setting(
        256 * MIB,
        unit="bytes",
        what="Memory for pending updates that one snapshot or listener holds at once.",
        why="Sixteen parts as they lie in memory; more is read in passes.",
        ge=1 * MIB,
        le=1024 * GIB,
    )
    controller_takeover_ms: int = setting(
        10_000,
        unit="milliseconds",
        what="A process that has a writer open becomes the controller when work has waited for this long, by its own"
        " monotonic clock.",
        why="Twenty polls: a controller that lives has done its round by then, so two processes do not take the role"
        " from each other.",
        ge=1,
        le=DAY_MS,
    )
    exert_interval_ms: int = setting(
        10_000,
        unit="milliseconds",
        what="How often the controller of a collection to which nothing is appended gives its merges more fuel, until"
        " it is one batch.",
        why="Ten million updates take five minutes to settle and cost a few merges; then an idle collection costs"
        " nothing but polls.",
        ge=1,
        le=DAY_MS,
    )
    merge_memory_bytes: int = setting(
        256 * MIB,
        unit="bytes",
        what="Memory for one merge: what it has read, its parts and its output together. Two sources are merged however"
        " little is given, which takes some 50 MiB of rows of 80 bytes.",
        why="Two sources of row groups of a few megabytes and a part of 32 MiB, with room for the widest rows.",
        ge=8 * MIB,
        le=1024 * GIB,
    )
    parallel_merges: int = setting(
        2,
        unit="merges",
        what="Merges of one collection that a controller runs at once.",
        why="A long merge does not keep a short one waiting; each has merge_memory_bytes and a worker thread.",
        ge=1,
        le=64,
    )
    gc_interval_ms: int = setting(
        MINUTE_MS,
        unit="milliseconds",
        what="Pause between two rounds in which the controller deletes what nothing needs any more, and between its"
        " visits of the tombstones of deleted collections.",
        why="A round lists the collection, which is paid for; garbage costs little in a minute.",
        ge=1,
        le=365 * DAY_MS,
    )
    gc_max_deletes_per_round: int = setting(
        10_000,
        unit="objects",
        what="Objects, and as many versions, that one round of garbage collection deletes.",
        why="A round stays a matter of seconds; the next one follows.",
        ge=1,
        le=10_000_000,
    )
    retained_versions: int = setting(
        10_000,
        unit="versions",
        what="Versions that leased holds may retain; a reader that pins more is revoked.",
        why="Ten thousand versions of 15 KB are 150 MB; a reader that moves on with its polls pins a few.",
        ge=16,
        le=1_000_000,
    )
    max_holds: int = setting(
        1_000,
        unit="holds",
        what="Holds that a collection may have; another reader, clone or critical hold is refused, by an InvalidError.",
        why="The controller reads each of them every round.",
        ge=1,
        le=100_000,
    )
    version_keep_ms: int = setting(
        600_000,
        unit="milliseconds",
        what="How long collectors leave a version alone, however soon another one follows it. For a quarter of this"
        " after a listing, polls read the next version instead of listing. The same for all processes.",
        why="A read costs a twelfth of a listing. Ten minutes of versions are a few thousand small objects at most."
        " 0: every poll lists.",
        ge=0,
        le=DAY_MS,
    )
    retry_deadline_ms: int = setting(
        30_000,
        unit="milliseconds",
        what="Time for one operation with all its retries; then UnavailableError, whose outcome says whether it may"
        " be in.",
        why="Rides out throttling and a failover of the store; longer only hides an outage from the caller.",
        ge=1,
        le=DAY_MS,
    )
    request_timeout_ms: int = setting(
        unit="milliseconds",
        what="Longest wait for one request to a store or metastore, its body included.",
        why="A part passes in it at 2 MB/s; a dead connection is given up while a retry still fits the deadline.",
        scaled=share(10_000, "retry_deadline_ms", 1),
        default_text="10000 (retry_deadline_ms where that is less)",
        ge=1,
        le=DAY_MS,
    )
    file_mode: FileMode = setting(
        "0600",
        unit="octal digits (read and write only; the owner may do both), or umask",
        what="Permissions of the files in a local folder, as the setting of databases of that name.",
        why="Collections are for their owner alone unless you say otherwise.",
    )

    @model_validator(mode="after")
    def _free_of_contradictions(self) -> Self:
        check_at_most(self, (("request_timeout_ms", "retry_deadline_ms"),))
        if self.lease_ms <= 2 * self.poll_interval_ms:
            raise ValueError(
                f"lease_ms ({self.lease_ms}) must exceed twice poll_interval_ms ({self.poll_interval_ms}), or a"
                " reader's hold may be revoked between two polls"
            )
        return self
