"""What ``collection snapshot`` and ``collection listen`` print."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

import slate_async
from slate_async.cli.encoding import Encoding, json_field, show
from slate_async.cli.exit_codes import OK
from slate_async.cli.output import Output, counted
from slate_async.cli.session import Session
from slate_async.collections.core.times import TIME_END, TimeKind
from slate_async.collections.core.updates import UpdateSchema
from slate_async.collections.info import schema_of
from slate_async.errors import InvalidError

EMPTY = "''"
"""How a condition says that a text is empty."""


async def last_definite(collection: slate_async.Collection, kind: TimeKind) -> tuple[int, ...]:
    """The last time at which the contents are known. Raises `InvalidError` if there is none, or none that is last."""
    reach = slate_async.Frontier.parse((await collection.inspect()).reach, kind)
    if reach.is_done:
        return (TIME_END - 1,) * kind.coordinates
    if kind is not TimeKind.U64:
        raise InvalidError(f"the collection is definite before {reach}: say which time, --as-of TIME")
    if reach.elements[0] == kind.minimum:
        raise InvalidError("nothing is definite yet: nobody has appended; say which time to wait for, --as-of TIME")
    return (reach.elements[0][0] - 1,)


async def snapshot(
    session: Session, name: str, as_of: str | None, where: list[str], limit: int | None, encoding: Encoding
) -> int:
    """Print the contents."""
    async with session.lake() as lake:
        collection = lake.collection(name)
        schema = await schema_of_collection(collection)
        conditions = [parse_condition(text, schema) for text in where]
        async with collection.reader("slate collection snapshot") as reader:
            time = await _time(collection, schema.kind, as_of)
            rows = 0
            async with await reader.snapshot(time, conditions) as found:
                async for batch in found.batches():
                    kept = batch if limit is None else batch.slice(0, min(limit - rows, batch.num_rows))
                    rows += kept.num_rows
                    _print_rows(session.output, kept.drop_columns(list(schema.kind.columns)), encoding)
                    if limit is not None and rows >= limit:
                        break
    shown = str(time[0]) if len(time) == 1 else str(time).replace(" ", "")
    session.output.note(f"{counted(rows, 'row')} as of {shown}")
    return OK


async def _time(collection: slate_async.Collection, kind: TimeKind, as_of: str | None) -> tuple[int, ...]:
    return await last_definite(collection, kind) if as_of is None else parse_time(as_of, kind, "--as-of")


def parse_condition(text: str, schema: UpdateSchema) -> tuple[str, str] | tuple[str, str, Any]:
    """A condition as people write it. Raises `InvalidError`."""
    said = text.strip()
    names = schema.data.names
    column = max((name for name in names if said.startswith(f"{name} ")), key=len, default="")
    operator, _, value = said[len(column) :].strip().partition(" ")
    if column and f"{operator} {value.strip()}" in ("is null", "is not null"):
        return column, f"{operator} {value.strip()}"
    if not column or operator not in ("==", "!=", "<", "<=", ">", ">="):
        raise InvalidError(
            f'--where: {text!r} is no condition, such as "{names[0]} == x"; columns are {", ".join(names)}'
        )
    if not value.strip():
        raise InvalidError(f"--where: {text!r} says no value behind {operator}; an empty text is {EMPTY}")
    kind = schema.data.field(column).type
    wanted = "" if value.strip() == EMPTY else value.strip()
    try:
        return column, operator, pa.scalar(wanted).cast(kind).as_py()
    except pa.ArrowException as error:
        raise InvalidError(f"--where: {value.strip()!r} is no {kind}") from error


async def listen(
    session: Session, name: str, as_of: str | None, until: str | None, encoding: Encoding, *, with_snapshot: bool
) -> int:
    """Print deltas."""
    async with session.lake() as lake:
        collection = lake.collection(name)
        kind = (await schema_of_collection(collection)).kind
        end = None if until is None else parse_frontier(until, kind, "--until")
        async with collection.reader("slate collection listen") as reader:
            time = await _time(collection, kind, as_of)
            if end is not None and not with_snapshot and end <= _behind(time):
                return OK  # nothing lies between
            listener = reader.subscribe(time) if with_snapshot else reader.listen(as_of=time)
            async with listener:
                async for delta in listener:
                    _print_delta(session.output, delta, encoding)
                    await reader.downgrade_since(delta.upper)
                    if end is not None and end <= delta.upper:
                        break
    return OK


def _behind(time: tuple[int, ...]) -> slate_async.Frontier:
    """A frontier up to which all that is not at or before ``time`` is nothing."""
    return slate_async.Frontier([tuple(number + 1 for number in time)] if len(time) == 1 else [time])


def _print_delta(output: Output, delta: slate_async.collections.Delta, encoding: Encoding) -> None:
    if output.as_json:
        updates = [row for batch in delta.updates.to_batches() for row in _json_rows(batch, encoding)]
        output.json({"lower": str(delta.lower), "upper": str(delta.upper), "updates": updates})
    else:
        for batch in delta.updates.to_batches():
            _print_rows(output, batch, encoding)
        output.line(f"-- {delta.upper}")
    output.flush()


def _print_rows(output: Output, rows: pa.RecordBatch, encoding: Encoding) -> None:
    if output.as_json:
        for row in _json_rows(rows, encoding):
            output.json(row)
        return
    columns = [column.to_pylist() for column in rows.columns]
    for values in zip(*columns, strict=True):
        output.line("\t".join(_shown(value, encoding, output.charset) for value in values))


def _shown(value: Any, encoding: Encoding, charset: str) -> str:
    if value is None:
        return "-"
    return show(
        value if isinstance(value, bytes) else str(value).encode(),
        encoding if isinstance(value, bytes) else Encoding.TEXT,
        charset,
    )


def _json_rows(rows: pa.RecordBatch, encoding: Encoding) -> Iterator[dict[str, Any]]:
    for row in rows.to_pylist():
        yield dict(
            json_field(name, value, encoding) if isinstance(value, bytes) else (name, _json_value(value))
            for name, value in row.items()
        )


def _json_value(value: Any) -> Any:
    """JSON has no numbers that are not finite; `append` reads these texts again."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


async def schema_of_collection(collection: slate_async.Collection) -> UpdateSchema:
    """The columns of its updates."""
    info = await collection.info()
    return schema_of(info.data, info.time)


def parse_frontier(text: str, kind: TimeKind, what: str) -> slate_async.Frontier:
    """A frontier as it is printed. Raises `InvalidError`, naming ``what``."""
    try:
        return slate_async.Frontier.parse(text, kind)
    except InvalidError as error:
        raise InvalidError(f"{what}: {error}") from error


def parse_time(text: str, kind: TimeKind, what: str) -> tuple[int, ...]:
    """A time as it is printed: ``7``, ``(3,0)``. Raises `InvalidError`, naming ``what``."""
    frontier = parse_frontier(text, kind, what)
    if len(frontier.elements) != 1:
        raise InvalidError(f"{what}: {text!r} is no time")
    return frontier.elements[0]
