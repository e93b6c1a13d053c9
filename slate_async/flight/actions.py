"""DoAction: what is not rows, as JSON. A body is an object, an answer a line for each thing found or done.

`ACTIONS` is the closed list: what each takes, what role it asks for, and what it does. `ListActions` tells the schemas.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Generic, Literal, TypeVar

import grpc
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slate_async.errors import InvalidError
from slate_async.flight.auth import ANY, Caller
from slate_async.rpc.statuses import StatusError
from slate_async.tables.catalog import Catalog
from slate_async.tables.core.predicate import from_json
from slate_async.tables.core.wire import append_id_of, json_object, schema_of, schema_text
from slate_async.tables.parts import outcome_of

Lines = Iterable[Mapping[str, Any]]
MAX_ERRORS: Final = 3


class Body(BaseModel):
    """What an action takes."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class NoBody(Body):
    """Nothing."""


class OneDatabase(Body):
    """A database."""

    database: str


class NewDatabase(OneDatabase):
    """A database to create."""

    if_not_exists: bool = False


class OneTable(OneDatabase):
    """A table."""

    table: str


class NewTable(OneTable):
    """A table to create. ``arrow_schema``: an Arrow IPC message in Base64."""

    arrow_schema: str
    key: list[str] = Field(default_factory=list)
    sort_by: list[str] = Field(default_factory=list)
    properties: dict[str, str] = Field(default_factory=dict)
    if_not_exists: bool = False


class Undrop(OneTable):
    """A table to bring back."""

    new_name: str | None = None


class Rename(OneTable):
    """Another name, or another database, for a table."""

    new_name: str
    new_database: str | None = None


class Delete(OneTable):
    """Rows to delete. ``where``: a predicate as JSON."""

    where: dict[str, Any]
    strict: bool = False
    append_id: str | list[str | int] | None = None


class Outcome(OneTable):
    """The ``append_id`` of a write that was not answered."""

    append_id: str | list[str | int]


B = TypeVar("B", bound=Body)


@dataclass(frozen=True, slots=True)
class Action(Generic[B]):
    """One action.

    role: that its caller needs, in the database of its body if it has one
    """

    description: str
    body: type[B]
    role: Literal["read", "write", "admin"]
    run: Callable[[Catalog, B, Caller], Awaitable[Lines]]

    @property
    def described(self) -> str:
        """For `ListActions`: the text, and what it takes as a JSON schema."""
        return json.dumps({"description": self.description, "body": self.body.model_json_schema()})


async def act(catalog: Catalog, name: str, body: bytes, caller: Caller) -> list[bytes]:
    """Do the action ``name``, as ``caller``. Raises errors of `slate_async.errors`."""
    action = ACTIONS.get(name)
    if action is None:
        known = ", ".join(sorted(ACTIONS))
        raise StatusError(grpc.StatusCode.UNIMPLEMENTED, f"there is no action {name!r:.100}; those are {known}")
    given = _checked(action, name, body)
    caller.require(action.role, given.database if isinstance(given, OneDatabase) else ANY)
    if isinstance(given, Rename) and given.new_database is not None:
        caller.require(action.role, given.new_database)
    return [json.dumps(line, default=_plain).encode() for line in await action.run(catalog, given, caller)]


def _checked(action: Action[Any], name: str, body: bytes) -> Body:
    given = json_object(body, f"the body of {name}")
    try:
        checked: Body = action.body.model_validate(given)
    except ValidationError as error:
        said = "; ".join(
            f"{'.'.join(map(str, found['loc'])) or 'it'}: {found['msg']}"
            for found in error.errors(include_url=False, include_input=False)[:MAX_ERRORS]
        )
        raise InvalidError(f"the body of {name} is wrong: {said}", outcome="not_applied") from None
    return checked


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else str(value)


async def _create_database(catalog: Catalog, body: NewDatabase, caller: Caller) -> Lines:
    await catalog.create_database(body.database, if_not_exists=body.if_not_exists)
    return [{}]


async def _drop_database(catalog: Catalog, body: OneDatabase, caller: Caller) -> Lines:
    await catalog.drop_database(body.database)
    return [{}]


async def _list_databases(catalog: Catalog, body: NoBody, caller: Caller) -> Lines:
    return [{"database": name} for name in await catalog.list_databases() if caller.may("read", name)]


async def _create_table(catalog: Catalog, body: NewTable, caller: Caller) -> Lines:
    table = await catalog.create_table(
        body.database,
        body.table,
        schema_of(body.arrow_schema),
        key=body.key,
        sort_by=body.sort_by,
        properties=body.properties,
        if_not_exists=body.if_not_exists,
    )
    return [{"version": await table.version()}]


async def _drop_table(catalog: Catalog, body: OneTable, caller: Caller) -> Lines:
    await catalog.drop_table(body.database, body.table)
    return [{}]


async def _undrop_table(catalog: Catalog, body: Undrop, caller: Caller) -> Lines:
    table = await catalog.undrop_table(body.database, body.table, new_name=body.new_name)
    return [{"version": await table.version()}]


async def _rename_table(catalog: Catalog, body: Rename, caller: Caller) -> Lines:
    await catalog.rename_table(body.database, body.table, body.new_name, new_database=body.new_database)
    return [{}]


async def _describe_table(catalog: Catalog, body: OneTable, caller: Caller) -> Lines:
    table = await catalog.table(body.database, body.table)
    schema = await table.schema()
    columns = [{"name": field.name, "type": str(field.type), "nullable": field.nullable} for field in schema]
    return [{"version": await table.version(), "columns": columns, "arrow_schema": schema_text(schema)}]


async def _list_tables(catalog: Catalog, body: OneDatabase, caller: Caller) -> Lines:
    return [{"table": name} for name in await catalog.list_tables(body.database)]


async def _list_dropped(catalog: Catalog, body: OneDatabase, caller: Caller) -> Lines:
    return [{"table": name} for name in await catalog.list_dropped(body.database)]


async def _delete(catalog: Catalog, body: Delete, caller: Caller) -> Lines:
    table = await catalog.table(body.database, body.table)
    named = append_id_of(body.append_id)
    return [dataclasses.asdict(await table.delete(from_json(body.where), strict=body.strict, append_id=named))]


async def _outcome(catalog: Catalog, body: Outcome, caller: Caller) -> Lines:
    named = append_id_of(body.append_id)
    assert named is not None
    return [await outcome_of(await catalog.table(body.database, body.table), named)]


ACTIONS: Final[Mapping[str, Action[Any]]] = {
    "create-database": Action("Create a database.", NewDatabase, "admin", _create_database),
    "drop-database": Action("Remove an empty database.", OneDatabase, "admin", _drop_database),
    "list-databases": Action("Databases that the caller may read.", NoBody, "read", _list_databases),
    "create-table": Action("Create a table.", NewTable, "write", _create_table),
    "drop-table": Action("Drop a table; undrop-table brings it back.", OneTable, "write", _drop_table),
    "undrop-table": Action("Bring back the table of this name that was dropped last.", Undrop, "write", _undrop_table),
    "rename-table": Action("Give a table another name or database.", Rename, "write", _rename_table),
    "describe-table": Action("Version and columns of a table.", OneTable, "read", _describe_table),
    "list-tables": Action("Tables of a database.", OneDatabase, "read", _list_tables),
    "list-dropped": Action(
        "Dropped tables of a database that can be brought back.", OneDatabase, "read", _list_dropped
    ),
    "delete": Action("Delete rows.", Delete, "write", _delete),
    "outcome": Action("What became of a write, by its append_id.", Outcome, "read", _outcome),
}
