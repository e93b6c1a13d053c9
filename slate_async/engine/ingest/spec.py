"""What tasks are given, and the results they report: plain values that survive JSON and pickle."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar
from uuid import UUID

from slate_async.errors import InvalidError
from slate_async.settings import Compression
from slate_async.storage.manifest.state import SstRef
from slate_async.storage.sst.names import parse_sst_key

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class IngestSpec:
    """A job, as its tasks must know it.

    job_id: the caller's name for it
    database_id, base_version, writer_epoch: whose SSTs they make, and for which manifest version
    begun_ms: wall clock, the write time that is stored in rows; what counts is when they are applied
    sst_bytes: where SSTs are cut; block_bytes, compression, filter_bits_per_key: as in `Settings`
    replaces: the checkpoint of what the job replaces, if it does
    """

    job_id: str
    database_id: UUID
    base_version: int
    writer_epoch: int
    begun_ms: int
    sst_bytes: int
    block_bytes: int
    compression: Compression
    filter_bits_per_key: int
    replaces: UUID | None = None

    def to_json(self) -> str:
        """As a JSON object."""
        return json.dumps({name: _plain(value) for name, value in asdict(self).items()})

    @classmethod
    def from_json(cls, text: str | bytes) -> IngestSpec:
        """Back from `to_json`. Raises `InvalidError`."""
        return _from_json(text, cls, "an ingest's specification", {"database_id": UUID, "replaces": _optional_id})


@dataclass(frozen=True, slots=True)
class IngestedSst:
    """An SST that a task has uploaded. Keys are inclusive; times are milliseconds since the Unix epoch.

    part: names the call that wrote it, which answers for all keys from its first to its last
    digest: of all rows that this call was given, if it was asked for (`slate_async.engine.ingest.digest`)"""

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
    part: str = ""
    digest: int | None = None

    def to_json(self) -> str:
        """As a JSON object; bytes in hexadecimal."""
        return json.dumps({name: _plain(value) for name, value in asdict(self).items()})

    @classmethod
    def from_json(cls, text: str | bytes) -> IngestedSst:
        """Back from `to_json`. Raises `InvalidError`."""
        return _from_json(text, cls, "an ingested SST", dict.fromkeys(_BYTES, bytes.fromhex))

    @classmethod
    def of(cls, sst: SstRef, part: str, digest: int | None) -> IngestedSst:
        """What a task says of ``sst``."""
        return cls(**{name: getattr(sst, name) for name in _STORED}, part=part, digest=digest)


_BYTES = ("object_id", "first_key", "last_key")
_STORED = [field.name for field in fields(IngestedSst) if field.name not in ("part", "digest")]
"""What the manifest has of it."""


def references(spec: IngestSpec, ssts: Sequence[IngestedSst]) -> tuple[SstRef, ...]:
    """``ssts`` of all tasks of a job, for the manifest, in key order. Raises `InvalidError` for another job's."""
    for sst in ssts:
        name = parse_sst_key(sst.location)
        if name is None or name.base_version != spec.base_version or name.object_id != sst.object_id:
            raise InvalidError(
                f"{sst.location} was not made by a task of ingest {spec.job_id!r}", outcome="not_applied"
            )
    by_id = {sst.object_id: sst for sst in ssts}  # a task's message may come twice
    ordered = sorted(by_id.values(), key=lambda sst: sst.first_key)
    return tuple(SstRef(**{name: getattr(sst, name) for name in _STORED}) for sst in ordered)


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if isinstance(value, UUID) else value


def _optional_id(text: str | None) -> UUID | None:
    return None if text is None else UUID(text)


def _from_json(text: str | bytes, cls: type[T], what: str, special: Mapping[str, Callable[[Any], object]]) -> T:
    """``special``: fields that JSON has no type for, and how they are read."""
    known = {field.name for field in fields(cls)}  # type: ignore[arg-type]
    try:
        values = json.loads(text)
        if not isinstance(values, dict) or values.keys() != known:
            raise InvalidError(f"{what} has the fields {', '.join(sorted(known))}")
        return cls(**{name: special[name](value) if name in special else value for name, value in values.items()})
    except (ValueError, TypeError, AttributeError) as error:
        if isinstance(error, InvalidError):
            raise
        raise InvalidError(f"{what} cannot be read: {error}") from error
