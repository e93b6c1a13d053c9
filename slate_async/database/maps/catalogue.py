"""The catalogue of a map: which indexes it has, and what state each is in. It is one row, in JSON.

| state | rows that are written | reads by the index | next |
|---|---|---|---|
| `building` | have their entries | are refused | `ready`, once the rows from before have theirs |
| `ready` | have their entries | are answered | `dropping` |
| `dropping` | have none | are refused | out of the catalogue, once no entry is left |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from slate_async.errors import InvalidError, Outcome

if TYPE_CHECKING:
    from slate_async.database.maps.index import IndexEntries

VERSION = 1
State: TypeAlias = Literal["building", "ready", "dropping"]


class StoredIndex(msgspec.Struct, frozen=True):
    """An index as it is stored."""

    unique: bool
    version: int
    state: State


class Stored(msgspec.Struct, frozen=True):
    """The whole catalogue."""

    version: int
    indexes: dict[str, StoredIndex]


Catalogue: TypeAlias = dict[str, StoredIndex]
_decoder = msgspec.json.Decoder(Stored)


def encoded(catalogue: Catalogue) -> bytes:
    """As it is stored."""
    return msgspec.json.encode(Stored(VERSION, dict(sorted(catalogue.items()))))


def decoded(data: bytes | None, name: str, outcome: Outcome | None = "not_applied") -> Catalogue:
    """The catalogue of the map ``name``. Raises `InvalidError` for bytes that are none; reads give ``None`` for its
    ``outcome``."""
    if data is None:
        return {}
    try:
        stored = _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise InvalidError(f"the catalogue of map {name!r} cannot be read: {error}", outcome=outcome) from error
    if stored.version != VERSION:
        raise InvalidError(
            f"the catalogue of map {name!r} has version {stored.version}; this release reads {VERSION}",
            outcome=outcome,
        )
    return stored.indexes


def check(name: str, declared: Mapping[str, IndexEntries[Any]], stored: Catalogue) -> None:
    """Raise `InvalidError` unless who declares these indexes may write the map ``name``."""
    for index, found in stored.items():
        if found.state == "dropping":
            if index in declared:
                raise InvalidError(
                    f"index {index!r} of map {name!r} is being dropped; finish that with drop_index({index!r})",
                    outcome="not_applied",
                )
        elif index not in declared:
            raise InvalidError(
                f"map {name!r} has an index {index!r}: give it in indexes=, or drop it with drop_index({index!r})",
                outcome="not_applied",
            )
        else:
            same_as_stored(name, declared[index], found)


def same_as_stored(
    name: str, index: IndexEntries[Any], found: StoredIndex, outcome: Outcome | None = "not_applied"
) -> None:
    """Raise `InvalidError`, with ``outcome``, unless the index is stored as it is declared."""
    if (found.unique, found.version) != (index.unique, index.version):
        raise InvalidError(
            f"index {index.name!r} of map {name!r} is stored with unique={found.unique} and version={found.version},"
            f" and declared with unique={index.unique} and version={index.version}:"
            f" drop it with drop_index({index.name!r}), then build it anew",
            outcome=outcome,
        )
