"""`Index`: by what else than their keys rows of a map are found."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from slate_async.codec.tuple_key import pack, unpack
from slate_async.database.maps.layout import MapLayout
from slate_async.errors import InvalidError, Outcome, SlateError

V = TypeVar("V")
MAX_NAME_BYTES = 255


@dataclass(frozen=True)
class Index(Generic[V]):
    """An index of a map, for ``indexes`` of `Db.map`.

    name: 1 to 255 bytes of UTF-8 without NUL
    by: makes of a value what its row is found by: a part of a key, or a tuple of parts (`slate_async.keys.KeyPart`);
    ``None`` leaves the row out. It depends on the value alone. Or the name of an attribute, or of an item of dicts;
    without it that is ``name``
    unique: no two rows have the same; else `UniqueError`. A row that has expired by the clock of a process that writes
    holds nothing there: where the clock of another one is behind, it may see that row beside the next that has the same
    version: to be raised when ``by`` makes something else, so that the index is built anew

    Raises `InvalidError` for anything else."""

    name: str
    by: str | Callable[[V], Any] | None = None
    unique: bool = False
    version: int = 1

    def __post_init__(self) -> None:
        name_bytes(self.name)
        if not (self.by is None or isinstance(self.by, str) or callable(self.by)):
            raise InvalidError(f"by is a function or the name of an attribute, not {self.by!r}")
        if type(self.unique) is not bool:
            raise InvalidError(f"unique is True or False, not {self.unique!r}")
        if type(self.version) is not int or self.version < 0:
            raise InvalidError(f"version is a number from 0 on, not {self.version!r}")


def name_bytes(name: str) -> bytes:
    """The name of an index as it is stored. Raises `InvalidError` for what is none."""
    try:
        encoded = name.encode() if isinstance(name, str) else b""
    except UnicodeEncodeError:
        encoded = b""
    if not 0 < len(encoded) <= MAX_NAME_BYTES or b"\0" in encoded:
        raise InvalidError(
            f"an index has a name of 1 to {MAX_NAME_BYTES} bytes of UTF-8 without NUL, not {name!r}",
            outcome="not_applied",
        )
    return encoded


class IndexEntries(Generic[V]):
    """The entries of an index: keys in the database, whose values are the packed keys of rows.

    prefix: what stands before them; progress: the key of where its building stands"""

    def __init__(self, index: Index[V], map_name: str, layout: MapLayout, kind: object) -> None:
        self.name, self.unique, self.version = index.name, index.unique, index.version
        stored_name = name_bytes(index.name)
        self.prefix = layout.entries(stored_name)
        self.progress = layout.progress(stored_name)
        self._map_name = map_name
        self._by = index.by if callable(index.by) else _getter(index.by or index.name, kind, map_name, index.name)

    def entry_of(self, value: V, row: bytes, outcome: Outcome | None = "not_applied") -> bytes | None:
        """The entry of the row whose packed key is ``row``; ``None``: it has none. Raises `InvalidError` for a value
        of which nothing can be made that sorts; reads give ``None`` for its ``outcome``."""
        try:
            made = self._by(value)
            if made is None:
                return None
            packed = pack(*made) if isinstance(made, tuple) else pack(made)
        except Exception as error:
            reason = str(error) if isinstance(error, SlateError) else repr(error)
            raise InvalidError(
                f"index {self.name!r} of map {self._map_name!r} makes no key of the value: {reason}",
                outcome=outcome,
            ) from error
        if not packed:
            raise InvalidError(
                f"index {self.name!r} of map {self._map_name!r} makes a key without parts of the value",
                outcome=outcome,
            )
        return self.prefix + packed if self.unique else self.prefix + packed + row

    def parts_of(self, entry: bytes) -> tuple[Any, ...]:
        """What a row is found by, of its entry in a unique index."""
        return unpack(entry[len(self.prefix) :])


def entries_of(
    indexes: Iterable[Index[V]], map_name: str, layout: MapLayout, kind: object
) -> dict[str, IndexEntries[V]]:
    """By name. Raises `InvalidError` for what is no index, and for two of one name."""
    found: dict[str, IndexEntries[V]] = {}
    for index in indexes:
        if not isinstance(index, Index):
            raise InvalidError(f"indexes are of slate_async.Index, not {type(index).__name__}")
        if index.name in found:
            raise InvalidError(f"map {map_name!r} has two indexes that are called {index.name!r}")
        found[index.name] = IndexEntries(index, map_name, layout, kind)
    return found


def _getter(field: str, kind: object, map_name: str, index: str) -> Callable[[Any], Any]:
    known = _fields(kind)
    if known is not None and field not in known:
        raise InvalidError(f"index {index!r} of map {map_name!r} is by {field!r}, which its values do not have")

    def get(value: Any) -> Any:
        return value.get(field) if isinstance(value, Mapping) else getattr(value, field)

    return get


def _fields(kind: object) -> set[str] | None:
    """What values of the type ``kind`` have; ``None``: that is not known."""
    if not isinstance(kind, type):
        return None
    for names in ("model_fields", "__struct_fields__"):
        if hasattr(kind, names):
            return {*getattr(kind, names), *dir(kind)}
    if dataclasses.is_dataclass(kind):
        return {*(field.name for field in dataclasses.fields(kind)), *dir(kind)}
    return None
