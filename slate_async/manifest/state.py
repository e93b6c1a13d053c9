"""`ManifestState`: one frozen value that says what the database is.

Invariants (checked by `check_successor` before every commit): identity fields never change; epochs, ``log_start``,
``log_floor``, ``last_seq``, ``last_tick_ms``, ``fence_width`` and ``sst_floor`` never go back; L0 SSTs are listed
newest first with disjoint, falling sequence ranges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Literal
from uuid import UUID

from metastores.protocol import VersionRef
from slate_async.errors import InternalError

LogProtocol = Literal["contiguous", "epoch_prefixed"]
NO_VERSION = VersionRef(0, "")
NO_FIELDS: Mapping[str, Any] = MappingProxyType({})


def no_fields() -> Mapping[str, Any]:
    """The shared empty map."""
    return NO_FIELDS


@dataclass(frozen=True, slots=True)
class SstRef:
    """A finished SST: where it is and what it spans, never its block metadata.

    location: key relative to the database's path
    object_id: the 16 bytes its header and footer carry
    size: bytes of the object
    rows, tombstones: counts, all versions included
    first_key, last_key: smallest and largest key, inclusive
    visible_first, visible_end: the part of it that counts, ``[first, end)``; ``None`` is unbounded
    min_seq, max_seq: sequence numbers of its rows
    global_seq: overrides every row's sequence number when set
    min_expire_ms, max_expire_ms: expiry times present, ``None`` when no row expires
    writer_epoch: the highest epoch that produced any of its rows
    unknown: fields of newer versions, kept as they are
    """

    location: str
    object_id: bytes
    size: int
    rows: int
    tombstones: int
    first_key: bytes
    last_key: bytes
    min_seq: int
    max_seq: int
    writer_epoch: int
    min_expire_ms: int | None = None
    max_expire_ms: int | None = None
    visible_first: bytes | None = None
    visible_end: bytes | None = None
    global_seq: int | None = None
    unknown: Mapping[str, Any] = field(default_factory=no_fields)


@dataclass(frozen=True, slots=True)
class SortedRun:
    """SSTs with disjoint key ranges in key order; together one sorted sequence."""

    id: int
    ssts: tuple[SstRef, ...]
    unknown: Mapping[str, Any] = field(default_factory=no_fields)


@dataclass(frozen=True, slots=True)
class ManifestState:
    """See the module docstring. ``ref`` is ``(0, "")`` until the first commit."""

    # fixed at creation
    database_id: UUID
    log_protocol: LogProtocol
    wal_enabled: bool
    created_ms: int
    properties: Mapping[str, str] = field(default_factory=no_fields)
    # the version this state is
    ref: VersionRef = NO_VERSION
    # ownership
    initialized: bool = True
    destroyed_at_ms: int | None = None
    writer_epoch: int = 0
    writer_token: str = ""
    compactor_epoch: int = 0
    compactor_token: str = ""
    fence_width: int = 1
    # positions
    log_start: int = 1
    log_last_seen: int = 0
    log_floor: int = 0
    last_seq: int = 0
    last_tick_ms: int = 0
    sst_floor: int = 0
    # contents, newest first
    l0: tuple[SstRef, ...] = ()
    runs: tuple[SortedRun, ...] = ()
    # compatibility
    required_features: tuple[str, ...] = ()
    optional_features: tuple[str, ...] = ()
    unknown: Mapping[str, Any] = field(default_factory=no_fields)

    @property
    def version(self) -> int:
        """The manifest version this state was committed as."""
        return self.ref.version


FIXED = ("database_id", "log_protocol", "wal_enabled", "created_ms", "properties")
MONOTONE = (
    "writer_epoch",
    "compactor_epoch",
    "fence_width",
    "log_start",
    "log_last_seen",
    "log_floor",
    "last_seq",
    "last_tick_ms",
    "sst_floor",
)


def check_successor(old: ManifestState, new: ManifestState) -> None:
    """Raise `InternalError` if ``new`` breaks an invariant that every edit of ``old`` must keep."""
    for name in FIXED:
        if getattr(old, name) != getattr(new, name):
            raise InternalError(f"a manifest edit changed the fixed field {name}")
    for name in MONOTONE:
        if getattr(new, name) < getattr(old, name):
            raise InternalError(f"a manifest edit took {name} back from {getattr(old, name)} to {getattr(new, name)}")
    for newer, older in pairwise(new.l0):
        if newer is not older and newer.min_seq <= older.max_seq:
            raise InternalError(f"L0 is out of order: {newer.location} is not newer than {older.location}")
