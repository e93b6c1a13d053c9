"""`Overview`: layers, shards, frontiers, who holds what, and garbage of a collection, as plain values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LayerBatch:
    """A batch of the merged area, see `slate_async.collections.core.area.MergedBatch`. ``nbytes``: of all its objects;
    ``fuel``: rows granted to the merge of it and the batches after it."""

    lower: str
    upper: str
    since: str
    level: int
    rows: int
    keys: int
    times: int
    nbytes: int
    parts: int
    fuel: int


@dataclass(frozen=True, slots=True)
class Shard:
    """What a writer has pending beyond the merged area. ``reach``: how far it alone takes a reader from there;
    ``ahead``: batches that begin beyond that."""

    writer: str
    batches: int
    nbytes: int
    reach: str
    ahead: int


@dataclass(frozen=True, slots=True)
class HoldView:
    """Who reads. ``idle_ms``: since it was written last, by this machine's clock and the store's.

    holds_since, holds_floor: whether it is one of those that keep compaction, or versions, from going further
    damage: what is wrong with its bytes, and what to do; then nobody knows what it holds, and all is kept"""

    reader: str
    note: str
    version: int | None
    since: str
    lease_ms: int | None
    idle_ms: int
    revoked: bool
    holds_since: bool
    holds_floor: bool
    damage: str = ""


@dataclass(frozen=True, slots=True)
class GarbageView:
    """What a controller would delete now. ``flying``: merged objects of the present epoch that no version names: of a
    merge that goes on, or of one that was given up; ``foreign``: objects that are none of a collection's.

    known: false if a version that readers need is missing or damaged, or a hold is damaged: then nothing is said"""

    known: bool
    merged: int = 0
    pending: int = 0
    nbytes: int = 0
    flying: int = 0
    versions: int = 0
    foreign: int = 0


@dataclass(frozen=True, slots=True)
class Overview:
    """A collection now.

    epoch: of the controller that claimed last; 0 if none ever did
    lower, upper, since, bound: frontiers of the head, see `slate_async.collections.core.area.Area`
    reach: how far readers can read, with what is pending
    floor: versions from it on are kept; ``retained``: how many there are besides the head
    created_ms: as in `slate_async.CollectionInfo`
    """

    name: str
    life: int
    time: str
    appends: str
    version: int
    epoch: int
    deleted: bool
    lower: str
    upper: str
    reach: str
    since: str
    bound: str
    floor: int
    retained: int
    rows: int
    nbytes: int
    layers: tuple[LayerBatch, ...]
    shards: tuple[Shard, ...]
    holds: tuple[HoldView, ...]
    garbage: GarbageView
    created_ms: int | None = None
