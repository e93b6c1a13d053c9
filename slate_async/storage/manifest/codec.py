"""Manifest versions as bytes: an envelope around MessagePack maps. Specified in ``docs/format/manifest.md``.

A *full* version holds every field. A *delta* names a full version as its base and holds only what differs from
it, so a commit costs what it changes and opening reads at most two objects. Fields this version does not know are
carried along; a required feature it does not know is refused.

Layout: magic 8 | format version u16 | kind u8 | reserved u8 | crc32c of the payload u32 | payload
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import crc32c
import msgspec

from metastores.protocol import VersionRef
from slate_async.codec.records import Shape
from slate_async.errors import ConfigError, CorruptionError, InvalidError
from slate_async.storage.manifest.features import LEASE_FEATURE, MARKER_FEATURE, MERGE_FEATURE, RANGE_DELETES_FEATURE
from slate_async.storage.manifest.state import (
    AppBatch,
    Checkpoint,
    Compaction,
    Ingest,
    IngestRecord,
    ManifestState,
    Parent,
    SeqTime,
    SortedRun,
    SstRef,
)
from slate_async.types import RangeDelete

MAGIC = b"SLATEMAN"
FORMAT_VERSION = 1
NESTED_VERSION = 2
"""The format of a delta that holds differences of runs. A release that knows only format 1 refuses it."""
FULL = 1
DELTA = 2
ENVELOPE = struct.Struct("<8sHBBI")
KNOWN_FEATURES: frozenset[str] = frozenset(
    {"ingest", LEASE_FEATURE, "seq_gaps", MARKER_FEATURE, MERGE_FEATURE, RANGE_DELETES_FEATURE}
)
"""``ingest``: an SST may have a ``global_seq``, and L0 several SSTs of one. ``ingest_leases``: a pending ingest may be
``leased``. ``seq_gaps``: see ``skipped``. ``marker``: nothing is done in the database's place before its marker was
read there. ``merge``: rows may be operands. ``range_deletes``: a delete with a value deletes a range of keys."""

KEYED = {
    "l0": "object_id",
    "runs": "id",
    "checkpoints": "id",
    "compactions": "id",
    "parents": "database_id",
    "ingests": "id",
    "ingest_records": "id",
    "ingest_apps": "app_id",
    "seq_times": "seq",
    "range_deletes": "seq",
}
"""Fields that are lists, with the field of their entries by which a delta names them."""
NESTED = {"runs": "ssts"}
"""Of those: whose entries hold a list that differs by itself, keyed as ``l0`` is. A run may have 100,000 SSTs."""

_STATE = Shape[ManifestState](ManifestState, besides=("ref",))
_ENTRIES: dict[str, Shape[Any]] = {
    "l0": Shape(SstRef),
    "runs": Shape(SortedRun),
    "checkpoints": Shape(Checkpoint),
    "compactions": Shape(Compaction),
    "parents": Shape(Parent),
    "ingests": Shape(Ingest),
    "ingest_records": Shape(IngestRecord),
    "ingest_apps": Shape(AppBatch),
    "seq_times": Shape(SeqTime),
    "range_deletes": Shape(RangeDelete),
}
_encoder = msgspec.msgpack.Encoder(order="deterministic")


class NewerReleaseError(ConfigError):
    """A newer release wrote it, and this one cannot read it."""


class Delta(NamedTuple):
    """A decoded delta: the base it names and the differences."""

    base: VersionRef
    changed: Mapping[str, Any]


def _seal(kind: int, body: Mapping[str, Any], version: int = FORMAT_VERSION) -> bytes:
    payload = _encoder.encode(body)
    return ENVELOPE.pack(MAGIC, version, kind, 0, crc32c.crc32c(payload)) + payload


def encode_full(state: ManifestState) -> bytes:
    """Every field of ``state`` but its own ``ref``, which the metastore keeps."""
    return _seal(FULL, _STATE.pack(state))


def _list_delta(name: str, old: tuple[Any, ...], new: tuple[Any, ...]) -> dict[str, Any]:
    """``new`` as: which of ``old`` go (by key), and which are added at which index of the result."""
    key, shape = KEYED[name], _ENTRIES[name]
    before = {getattr(item, key): item for item in old}
    after = {getattr(item, key): item for item in new}
    same = {name for name, item in after.items() if before.get(name) is item or before.get(name) == item}
    if [name for name in before if name in same] != [name for name in after if name in same]:
        same = set()  # they changed places: all of them again
    return {
        "remove": [shape.pack_field(key, old) for old in before if old not in same],
        "add": [
            _addition(name, i, before.get(getattr(item, key)), item)
            for i, item in enumerate(new)
            if getattr(item, key) not in same
        ],
    }


def _addition(name: str, index: int, old: Any, new: Any) -> list[Any]:
    """An entry at its index; one that holds most of what ``old`` did, with the differences of its list beside it."""
    shape, inner = _ENTRIES[name], NESTED.get(name)
    if inner is not None and old is not None:
        before, after = getattr(old, inner), getattr(new, inner)
        differs = _list_delta("l0", before, after)
        if len(differs["remove"]) + len(differs["add"]) < len(after) and _has_own_keys(before) and _has_own_keys(after):
            return [index, shape.pack(replace(new, **{inner: ()})), differs]
    return [index, shape.pack(new)]


def _has_own_keys(ssts: tuple[SstRef, ...]) -> bool:
    return len({sst.object_id for sst in ssts}) == len(ssts)


def encode_delta(base: ManifestState, state: ManifestState) -> bytes:
    """What differs between ``state`` and the full version ``base``."""
    changed: dict[str, Any] = {}
    for name in _STATE.names:
        old, new = getattr(base, name), getattr(state, name)
        if old is new or old == new:
            continue
        changed[name] = _list_delta(name, old or (), new or ()) if name in KEYED else _STATE.pack_field(name, new)
    body = {"base": [base.version, base.ref.token], "changed": changed}
    if state.unknown != base.unknown:
        body["unknown"] = dict(state.unknown)
    nested = any(len(added) > 2 for name in NESTED if name in changed for added in changed[name]["add"])
    return _seal(DELTA, body, NESTED_VERSION if nested else FORMAT_VERSION)


def decode(data: bytes, *, object_name: str) -> ManifestState | Delta:
    """A full state (its ``ref`` unset) or a `Delta`. Raises `CorruptionError`, or `InvalidError` for a version
    or a required feature this release does not know."""
    if len(data) < ENVELOPE.size:
        raise CorruptionError(f"a manifest of {len(data)} bytes is too short", object_name=object_name)
    magic, version, kind, reserved, crc = ENVELOPE.unpack_from(data)
    if magic != MAGIC or reserved != 0:
        raise CorruptionError("not a manifest", object_name=object_name)
    payload = memoryview(data)[ENVELOPE.size :]
    if crc32c.crc32c(payload) != crc:
        raise CorruptionError("the manifest's checksum is wrong", object_name=object_name, offset=ENVELOPE.size)
    if version != FORMAT_VERSION and (version, kind) != (NESTED_VERSION, DELTA):
        raise NewerReleaseError(
            f"{object_name} has manifest format {version}; this release reads {FORMAT_VERSION},"
            f" and {NESTED_VERSION} for deltas"
        )
    try:
        body = msgspec.msgpack.decode(payload)
        if kind == FULL:
            return _check_features(_STATE.unpack(body))
        if kind == DELTA:
            unknown = {"unknown": body["unknown"]} if "unknown" in body else {}
            return Delta(VersionRef(*body["base"]), {**body["changed"], **unknown})
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, InvalidError):
            raise
        raise CorruptionError(f"the manifest does not decode: {error}", object_name=object_name) from error
    raise CorruptionError(f"unknown manifest kind {kind}", object_name=object_name, offset=10)


def _check_features(state: ManifestState) -> ManifestState:
    missing = sorted(set(state.required_features) - KNOWN_FEATURES)
    if missing:
        raise NewerReleaseError(f"the database needs features this release does not have: {', '.join(missing)}")
    return state


def apply_delta(base: ManifestState, delta: Delta, *, object_name: str) -> ManifestState:
    """The state a delta stands for. ``base`` must be the very version it names (`CorruptionError` otherwise)."""
    if base.ref != delta.base:
        raise CorruptionError(
            f"the delta's base is version {delta.base.version}, not {base.version}", object_name=object_name
        )
    values: dict[str, Any] = {}
    try:
        for name, change in delta.changed.items():
            if name in KEYED:
                values[name] = _apply_list(name, getattr(base, name) or (), change)
            elif name == "unknown":
                values[name] = MappingProxyType(dict(change))
            elif name in _STATE.names:
                values[name] = _STATE.unpack_field(name, change)
            else:
                values["unknown"] = MappingProxyType({**values.get("unknown", base.unknown), name: change})
        if "range_deletes" in values:
            values["range_deletes"] = values["range_deletes"] or None
        return _check_features(replace(base, **values))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        if isinstance(error, InvalidError):
            raise
        raise CorruptionError(f"the delta does not apply: {error}", object_name=object_name) from error


def _apply_list(name: str, old: tuple[Any, ...], change: Mapping[str, Any]) -> tuple[Any, ...]:
    key, shape = KEYED[name], _ENTRIES[name]
    removed = {shape.unpack_field(key, packed) for packed in change["remove"]}
    kept = [item for item in old if getattr(item, key) not in removed]
    result: list[Any] = []
    taken = 0
    for index, packed, *differs in change["add"]:
        upto = taken + index - len(result)
        if not taken <= upto <= len(kept):
            raise IndexError(f"added entry {index} lies outside of the list")
        result += kept[taken:upto]
        taken = upto
        item = shape.unpack(packed)
        if differs:
            [before] = (known for known in old if getattr(known, key) == getattr(item, key))
            inner = NESTED[name]
            item = replace(item, **{inner: _apply_list("l0", getattr(before, inner), *differs)})
        result.append(item)
    return (*result, *kept[taken:])
