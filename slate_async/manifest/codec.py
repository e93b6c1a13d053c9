"""Manifest versions as bytes: an envelope around MessagePack maps. Specified in ``docs/format/manifest.md``.

A *full* version holds every field. A *delta* names a full version as its base and holds only what differs from
it, so a commit costs what it changes and opening reads at most two objects. Fields this version does not know are
carried along; a required feature it does not know is refused.

Layout: magic 8 | format version u16 | kind u8 | reserved u8 | crc32c of the payload u32 | payload
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import crc32c
import msgspec

from metastores.protocol import VersionRef
from slate_async.errors import CorruptionError, InvalidError
from slate_async.manifest.state import NO_FIELDS, ManifestState, SortedRun, SstRef

MAGIC = b"SLATEMAN"
FORMAT_VERSION = 1
FULL = 1
DELTA = 2
ENVELOPE = struct.Struct("<8sHBBI")
KNOWN_FEATURES: frozenset[str] = frozenset()

_STATE_FIELDS = tuple(f.name for f in fields(ManifestState) if f.name not in ("ref", "unknown"))
_SST_FIELDS = tuple(f.name for f in fields(SstRef) if f.name != "unknown")
_RUN_FIELDS = ("id", "ssts")
_encoder = msgspec.msgpack.Encoder(order="deterministic")


class Delta(NamedTuple):
    """A decoded delta: the base it names and the differences."""

    base: VersionRef
    changed: Mapping[str, Any]


def _pack_sst(sst: SstRef) -> dict[str, Any]:
    packed = {name: value for name in _SST_FIELDS if (value := getattr(sst, name)) is not None}
    return {**sst.unknown, **packed}


def _pack_run(run: SortedRun) -> dict[str, Any]:
    return {**run.unknown, "id": run.id, "ssts": [_pack_sst(sst) for sst in run.ssts]}


def _pack_field(name: str, value: Any) -> Any:
    if name == "l0":
        return [_pack_sst(sst) for sst in value]
    if name == "runs":
        return [_pack_run(run) for run in value]
    if name == "database_id":
        return value.bytes
    if name == "properties":
        return dict(value)
    return value


def _unpack_sst(packed: Mapping[str, Any]) -> SstRef:
    known = {name: packed[name] for name in _SST_FIELDS if name in packed}
    unknown = {name: value for name, value in packed.items() if name not in _SST_FIELDS}
    return SstRef(**known, unknown=MappingProxyType(unknown) if unknown else NO_FIELDS)


def _unpack_run(packed: Mapping[str, Any]) -> SortedRun:
    unknown = {name: value for name, value in packed.items() if name not in _RUN_FIELDS}
    ssts = tuple(_unpack_sst(sst) for sst in packed["ssts"])
    return SortedRun(packed["id"], ssts, MappingProxyType(unknown) if unknown else NO_FIELDS)


def _unpack_field(name: str, value: Any) -> Any:
    if name == "l0":
        return tuple(_unpack_sst(sst) for sst in value)
    if name == "runs":
        return tuple(_unpack_run(run) for run in value)
    if name == "database_id":
        return UUID(bytes=value)
    if name == "properties":
        return MappingProxyType(dict(value))
    if name in ("required_features", "optional_features"):
        return tuple(value)
    return value


def _seal(kind: int, body: Mapping[str, Any]) -> bytes:
    payload = _encoder.encode(body)
    return ENVELOPE.pack(MAGIC, FORMAT_VERSION, kind, 0, crc32c.crc32c(payload)) + payload


def encode_full(state: ManifestState) -> bytes:
    """Every field of ``state`` but its own ``ref``, which the metastore keeps."""
    body: dict[str, Any] = dict(state.unknown)
    for name in _STATE_FIELDS:
        value = getattr(state, name)
        if value is not None:
            body[name] = _pack_field(name, value)
    return _seal(FULL, body)


def _list_delta(old: tuple[Any, ...], new: tuple[Any, ...], key: str, pack: Callable[[Any], Any]) -> dict[str, Any]:
    """``new`` as: which of ``old`` go (by key), and which are added at which index of the result."""
    before = {getattr(item, key): item for item in old}
    after = {getattr(item, key): item for item in new}
    same = {name for name, item in after.items() if before.get(name) is item or before.get(name) == item}
    return {
        "remove": [name for name in before if name not in same],
        "add": [[i, pack(item)] for i, item in enumerate(new) if getattr(item, key) not in same],
    }


def encode_delta(base: ManifestState, state: ManifestState) -> bytes:
    """What differs between ``state`` and the full version ``base``."""
    changed: dict[str, Any] = {}
    for name in _STATE_FIELDS:
        old, new = getattr(base, name), getattr(state, name)
        if old is new or old == new:
            continue
        if name == "l0":
            changed[name] = _list_delta(old, new, "object_id", _pack_sst)
        elif name == "runs":
            changed[name] = _list_delta(old, new, "id", _pack_run)
        else:
            changed[name] = None if new is None else _pack_field(name, new)
    body = {"base": [base.version, base.ref.token], "changed": changed}
    if state.unknown != base.unknown:
        body["unknown"] = dict(state.unknown)
    return _seal(DELTA, body)


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
    if version != FORMAT_VERSION:
        raise InvalidError(f"{object_name} has manifest format {version}; this release reads {FORMAT_VERSION}")
    try:
        body = msgspec.msgpack.decode(payload)
        if kind == FULL:
            return _decode_full(body)
        if kind == DELTA:
            unknown = {"unknown": body["unknown"]} if "unknown" in body else {}
            return Delta(VersionRef(*body["base"]), {**body["changed"], **unknown})
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, InvalidError):
            raise
        raise CorruptionError(f"the manifest does not decode: {error}", object_name=object_name) from error
    raise CorruptionError(f"unknown manifest kind {kind}", object_name=object_name, offset=10)


def _decode_full(body: Mapping[str, Any]) -> ManifestState:
    known = {name: _unpack_field(name, body[name]) for name in _STATE_FIELDS if name in body}
    unknown = {name: value for name, value in body.items() if name not in _STATE_FIELDS}
    state = ManifestState(**known, unknown=MappingProxyType(unknown) if unknown else NO_FIELDS)
    return _check_features(state)


def _check_features(state: ManifestState) -> ManifestState:
    missing = sorted(set(state.required_features) - KNOWN_FEATURES)
    if missing:
        raise InvalidError(f"the database needs features this release does not have: {', '.join(missing)}")
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
            if name == "l0":
                values[name] = _apply_list(base.l0, change, "object_id", _unpack_sst)
            elif name == "runs":
                values[name] = _apply_list(base.runs, change, "id", _unpack_run)
            elif name == "unknown":
                values[name] = MappingProxyType(dict(change))
            elif name in _STATE_FIELDS:
                values[name] = None if change is None else _unpack_field(name, change)
            else:
                values["unknown"] = MappingProxyType({**values.get("unknown", base.unknown), name: change})
        return _check_features(replace(base, **values))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        if isinstance(error, InvalidError):
            raise
        raise CorruptionError(f"the delta does not apply: {error}", object_name=object_name) from error


def _apply_list(
    old: tuple[Any, ...], change: Mapping[str, Any], key: str, unpack: Callable[[Mapping[str, Any]], Any]
) -> tuple[Any, ...]:
    gone = set(change["remove"])
    kept = [item for item in old if getattr(item, key) not in gone]
    for index, packed in change["add"]:
        if not 0 <= index <= len(kept):
            raise IndexError(f"added entry {index} lies outside of the list")
        kept.insert(index, unpack(packed))
    return tuple(kept)
