"""``collection create``, ``list``, ``append``, ``snapshot`` and ``listen``.

``--path`` names the folder of collections. Nobody else who uses a collection is disturbed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer

import slate_async
from slate_async.cli import collection_reading
from slate_async.cli.collection_reading import parse_frontier, schema_of_collection
from slate_async.cli.collection_rows import DIFF, UpdatesFile, rows_of
from slate_async.cli.context import chosen_encoding, finish
from slate_async.cli.exit_codes import OK
from slate_async.cli.output import utc
from slate_async.cli.session import Session
from slate_async.cli.sources import Format
from slate_async.collections.core.errors import SumError
from slate_async.collections.core.times import TIME_END, TimeKind
from slate_async.collections.writer.batches import bounds_of
from slate_async.errors import InvalidError

commands = typer.Typer(
    help="Persistent collections: durable sets of updates (data, time, diff). --path names their folder.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The collection.")]
Hex = Annotated[bool, typer.Option("--hex", help="Show bytes in hexadecimal.")]
Base64 = Annotated[bool, typer.Option("--base64", help="Show bytes in Base64.")]


class TimeOption(StrEnum):
    """As `slate_async.collections.core.times.TimeKind`."""

    U64 = "u64"
    U64X2 = "u64x2"


class AppendsOption(StrEnum):
    """As `slate_async.collections.codec.life.Appends`."""

    DEFINITE = "definite"
    COMPARE = "compare"


@commands.command("create", help="Create a collection; one that is there already must be of the same kind.")
def create_command(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="1 to 64 of a-z, 0-9 and -.")],
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME:TYPE",
            help="A data column, such as total:int64; with a ! behind it, it has no nulls. Repeat it. Default: bytes.",
        ),
    ] = None,
    time: Annotated[TimeOption, typer.Option(help="Times are numbers, or pairs of them.")] = TimeOption.U64,
    appends: Annotated[
        AppendsOption,
        typer.Option(help="definite: all writers write the same at a time. compare: one chain, the first one decides."),
    ] = AppendsOption.DEFINITE,
) -> None:
    """See ``help``."""
    finish(context, create(context.obj, name, column or [], time.value, appends.value))


@commands.command("list", help="Show all collections, also those that were deleted.")
def list_command(context: typer.Context) -> None:
    """See ``help``."""
    finish(context, show_list(context.obj))


@commands.command(
    "append",
    help="Append the rows of a CSV, TSV, JSON Lines or Parquet file, as one batch: all of them are in, or none. Columns"
    " are those of the data, _time (and _time2) and _diff; without _diff each row counts 1.",
)
def append_command(
    context: typer.Context,
    name: Name,
    file: Annotated[Path, typer.Argument(help="The file; - for standard input.")],
    writer: Annotated[str, typer.Option(help="Under which name; of a compare collection it says nothing.")] = "main",
    at: Annotated[int | None, typer.Option(min=0, metavar="TIME", help="The time of all rows.")] = None,
    lower: Annotated[
        str | None,
        typer.Option(metavar="FRONTIER", help="Where the batch begins; default: where the writer has come to."),
    ] = None,
    upper: Annotated[
        str | None,
        typer.Option(metavar="FRONTIER", help="Where it ends: nothing is written before that any more. done closes."),
    ] = None,
    form: Annotated[Format | None, typer.Option("--format", help="Default: by the file's extension.")] = None,
) -> None:
    """See ``help``."""
    finish(context, append(context.obj, name, file, form, writer=writer, at=at, bounds=(lower, upper)))


@commands.command("snapshot", help="Print the contents at a time, as soon as they are definite.")
def snapshot_command(
    context: typer.Context,
    name: Name,
    as_of: Annotated[
        str | None, typer.Option(metavar="TIME", help="Default: the last time at which they are definite.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION", help='On a column, such as "total > 5" or "note is null". Repeat it: all hold.'
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many rows.")] = None,
    hexadecimal: Hex = False,
    base64_: Base64 = False,
) -> None:
    """See ``help``."""
    encoding = chosen_encoding(context, hexadecimal, base64_)
    finish(context, collection_reading.snapshot(context.obj, name, as_of, where or [], limit, encoding))


@commands.command("listen", help="Print what is written from a time on, delta by delta, for ever or until a frontier.")
def listen_command(
    context: typer.Context,
    name: Name,
    as_of: Annotated[
        str | None, typer.Option(metavar="TIME", help="Begin after it; default: the last time that is definite.")
    ] = None,
    snapshot: Annotated[bool, typer.Option("--snapshot", help="Print the contents at that time first.")] = False,
    until: Annotated[str | None, typer.Option(metavar="FRONTIER", help="Stop when all before it was printed.")] = None,
    hexadecimal: Hex = False,
    base64_: Base64 = False,
) -> None:
    """See ``help``."""
    encoding = chosen_encoding(context, hexadecimal, base64_)
    finish(context, collection_reading.listen(context.obj, name, as_of, until, encoding, with_snapshot=snapshot))


# ---- create, list


async def create(session: Session, name: str, columns: list[str], time: str, appends: str) -> int:
    """Create it, and show what it is."""
    data = pa.schema([parse_column(column) for column in columns]) if columns else bytes
    async with session.lake() as lake:
        reader = await lake.create(name, data=data, time=time, appends=appends)  # type: ignore[arg-type]
        await reader.expire()
        info = await lake.collection(name).info()
    session.output.fields("collection", fields_of(info))
    return OK


def parse_column(text: str) -> pa.Field:
    """A column as people write it: ``total:int64``, ``name:string!``. Raises `InvalidError`."""
    name, colon, kind = text.partition(":")
    if not colon:
        raise InvalidError(f"--column: {text!r} says no type; write it like total:int64")
    required = kind.endswith("!")
    try:
        found = pa.type_for_alias(kind.removesuffix("!"))
    except ValueError:
        raise InvalidError(
            f"--column: {kind!r} is no type of a column; those are int64, float64, string, binary, bool, date32,"
            " timestamp[us] and the like"
        ) from None
    return pa.field(name, found, nullable=not required)


def fields_of(info: slate_async.CollectionInfo | slate_async.DamagedCollection) -> dict[str, Any]:
    """A collection in plain values."""
    if isinstance(info, slate_async.DamagedCollection):
        return {"name": info.name, "state": info.state, "what": info.what}
    return {
        "name": info.name,
        "state": info.state,
        "life": info.life,
        "time": info.time,
        "appends": info.appends,
        "data": "bytes" if isinstance(info.data, type) else {field.name: _type(field) for field in info.data},
        "created": None if info.created_ms is None else utc(info.created_ms),
    }


def _type(field: pa.Field) -> str:
    return str(field.type) if field.nullable else f"{field.type}!"


async def show_list(session: Session) -> int:
    """Show all."""
    async with session.lake() as lake:
        found = [fields_of(info) for info in await lake.list()]
    if session.output.as_json:
        for fields in found:
            session.output.json(fields)
        return OK
    if not found:
        session.output.note(f"there is no collection in {session.path}")
    columns = ("name", "state", "life", "time", "appends", "data", "created")
    rows = [[_cell(fields.get(column, "")) for column in columns] for fields in found]
    session.output.table("collections", columns, rows)
    for fields in found:
        if "what" in fields:
            session.output.note(f"{fields['name']}: {fields['what']}")
    return OK


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return ", ".join(f"{name}:{kind}" for name, kind in value.items()) if isinstance(value, Mapping) else str(value)


# ---- append


@contextmanager
def _naming(file: UpdatesFile) -> Iterator[None]:
    """Within, a `SumError` of rows that stand far from each other names the ``file``."""
    try:
        yield
    except SumError as error:
        if str(error).startswith(str(file)):
            raise
        raise SumError(f"{file}: {error}", outcome=error.outcome) from error


async def append(
    session: Session,
    name: str,
    file: Path,
    form: Format | None,
    *,
    writer: str,
    at: int | None,
    bounds: tuple[str | None, str | None],
) -> int:
    """Append a file, as one batch in bounded memory."""
    lower, upper = bounds
    given_file = UpdatesFile.named(file, form)
    async with session.lake() as lake:
        collection = lake.collection(name)
        schema = await schema_of_collection(collection)
        given = {DIFF: 1} if at is None else {DIFF: 1, **dict.fromkeys(schema.kind.columns, at)}
        if upper is None and (at is None or schema.kind is not TimeKind.U64):
            raise InvalidError("say where the batch ends: --upper FRONTIER; or one time for all rows: --at TIME")
        if at is not None and at >= TIME_END:
            raise InvalidError(f"--at: {at} is no time: those are below 2**63")
        end = parse_frontier(str((at or 0) + 1) if upper is None else upper, schema.kind, "--upper")
        rows = 0
        async with collection.writer(writer) as opened:
            begin = opened.upper if lower is None else parse_frontier(lower, schema.kind, "--lower")
            if lower is None and not begin <= end:
                raise InvalidError(
                    f"{name} is written up to {begin} already, and the batch would end at {end}; to repeat an append,"
                    " give the --lower it had"
                )
            within = bounds_of(begin, end, schema)
            with _naming(given_file):
                async with opened.batch(begin, upper=end) as batch:
                    async for found in rows_of(given_file, schema.arrow, given):
                        found.check(schema, within)
                        await batch.add(found.updates)
                        rows += found.updates.num_rows
            reached = opened.upper
    session.output.fields("appended", {"collection": name, "rows": rows, "lower": str(begin), "upper": str(reached)})
    return OK
