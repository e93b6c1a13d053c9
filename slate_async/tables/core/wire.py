"""What travels between a server of tables and its clients, as JSON: commands, tickets, and how schemas are written.

Pure. Each field is checked, because senders are not trusted, and a reader looks up again what a ticket names.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from slate_async.errors import InvalidError
from slate_async.tables.core.predicate import Predicate, from_json, to_json

MODES: Final = ("append", "overwrite", "upsert")


@dataclass(frozen=True, slots=True)
class GetCommand:
    """Rows to get: of the newest version, or of ``version``."""

    database: str
    table: str
    version: int | None = None
    columns: tuple[str, ...] | None = None
    where: Predicate | None = None
    limit: int | None = None

    def encoded(self) -> bytes:
        """For a descriptor."""
        given = {
            "database": self.database,
            "table": self.table,
            "version": self.version,
            "columns": None if self.columns is None else list(self.columns),
            "where": None if self.where is None else to_json(self.where),
            "limit": self.limit,
        }
        return _dumped({name: value for name, value in given.items() if value is not None})

    @classmethod
    def decode(cls, raw: bytes) -> GetCommand:
        """Raises `InvalidError`."""
        said = _Fields(raw, "a command", ("database", "table", "version", "columns", "where", "limit"))
        where = said.given.get("where")
        return cls(
            said.text("database"),
            said.text("table"),
            said.number("version"),
            said.names("columns"),
            None if where is None else from_json(where),
            said.number("limit"),
        )


@dataclass(frozen=True, slots=True)
class PutCommand:
    """Rows to put. ``mode``: one of `MODES`."""

    database: str
    table: str
    mode: str = "append"
    append_id: str | tuple[str, int] | None = None
    key: tuple[str, ...] | None = None

    def encoded(self) -> bytes:
        """For a descriptor."""
        given = {
            "database": self.database,
            "table": self.table,
            "mode": self.mode,
            "append_id": self.append_id,
            "key": None if self.key is None else list(self.key),
        }
        return _dumped({name: value for name, value in given.items() if value is not None})

    @classmethod
    def decode(cls, raw: bytes) -> PutCommand:
        """Raises `InvalidError`."""
        said = _Fields(raw, "a command", ("database", "table", "mode", "append_id", "key"))
        mode = said.given.get("mode", "append")
        if mode not in MODES:
            raise InvalidError(f"mode is one of {', '.join(MODES)}, not {mode!r}")
        append_id = append_id_of(said.given.get("append_id"))
        return cls(said.text("database"), said.text("table"), mode, append_id, said.names("key"))


@dataclass(frozen=True, slots=True)
class Ticket:
    """Some blocks of one version of a table, as a client hands it back.

    token: by which the metastore knows the version"""

    database: str
    table: str
    uuid: UUID
    version: int
    token: str
    schema_id: int
    blocks: tuple[str, ...]
    columns: tuple[str, ...] | None = None
    where: Predicate | None = None
    limit: int | None = None

    def encoded(self) -> bytes:
        """As a client gets it."""
        given = {
            "database": self.database,
            "table": self.table,
            "uuid": self.uuid.hex,
            "version": self.version,
            "token": self.token,
            "schema_id": self.schema_id,
            "blocks": list(self.blocks),
            "columns": None if self.columns is None else list(self.columns),
            "where": None if self.where is None else to_json(self.where),
            "limit": self.limit,
        }
        return _dumped({name: value for name, value in given.items() if value is not None})

    @classmethod
    def decode(cls, raw: bytes) -> Ticket:
        """Raises `InvalidError`."""
        names = ("database", "table", "uuid", "version", "token", "schema_id", "blocks", "columns", "where", "limit")
        said = _Fields(raw, "a ticket", names)
        try:
            uuid = UUID(hex=said.text("uuid"))
        except ValueError:
            raise InvalidError("uuid in a ticket is no UUID") from None
        version, schema_id, blocks = said.number("version"), said.number("schema_id"), said.names("blocks")
        if version is None or schema_id is None or blocks is None:
            raise InvalidError("a ticket has a version, a schema_id and blocks")
        where = said.given.get("where")
        return cls(
            said.text("database"),
            said.text("table"),
            uuid,
            version,
            said.text("token"),
            schema_id,
            blocks,
            said.names("columns"),
            None if where is None else from_json(where),
            said.number("limit"),
        )


def schema_text(schema: pa.Schema) -> str:
    """``schema`` in JSON: an Arrow IPC message in Base64."""
    return base64.b64encode(schema.serialize()).decode()


def schema_of(text: object) -> pa.Schema:
    """Back. Raises `InvalidError`."""
    if not isinstance(text, str):
        raise InvalidError("a schema is an Arrow IPC message in Base64")
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
    except (binascii.Error, ValueError, pa.ArrowException, OSError) as error:
        raise InvalidError(f"a schema is an Arrow IPC message in Base64, and this is none: {error}") from error


def append_id_of(given: Any) -> str | tuple[str, int] | None:
    """A name, or a name and a number, as JSON has them. Raises `InvalidError`."""
    if given is None or isinstance(given, str):
        return given
    if isinstance(given, Sequence) and len(given) == 2 and isinstance(given[0], str) and _is_number(given[1]):
        return given[0], given[1]
    raise InvalidError(f"append_id is a name, or a list of a name and a number, not {given!r}", outcome="not_applied")


def json_object(raw: bytes | memoryview, what: str) -> Mapping[str, Any]:
    """An object. Raises `InvalidError` naming ``what``."""
    try:
        found: Any = json.loads(bytes(raw) or b"{}")
    except (ValueError, RecursionError) as error:
        raise InvalidError(f"{what} is a JSON object, and this is none") from error
    if not isinstance(found, dict):
        raise InvalidError(f"{what} is a JSON object, not {type(found).__name__}")
    return found


class _Fields:
    """An object's fields, each checked as it is asked for."""

    def __init__(self, raw: bytes, what: str, names: Sequence[str]) -> None:
        self.given = json_object(raw, what)
        self._what = what
        for name in self.given:
            if name not in names:
                raise InvalidError(f"{what} has no field {name!r}; those are {', '.join(names)}")

    def text(self, name: str) -> str:
        found = self.given.get(name)
        if not isinstance(found, str):
            raise InvalidError(f"{name} in {self._what} is a string, not {found!r:.100}")
        return found

    def number(self, name: str) -> int | None:
        found = self.given.get(name)
        if found is None:
            return None
        if not _is_number(found) or found < 0:
            raise InvalidError(f"{name} in {self._what} is a number from 0 on, not {found!r:.100}")
        return int(found)

    def names(self, name: str) -> tuple[str, ...] | None:
        found = self.given.get(name)
        if found is None:
            return None
        if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
            raise InvalidError(f"{name} in {self._what} is a list of strings, not {found!r:.100}")
        return tuple(found)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def _dumped(given: Mapping[str, Any]) -> bytes:
    return json.dumps(given, separators=(",", ":")).encode()
