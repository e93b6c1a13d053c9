"""``inspect manifest``, ``inspect log``, ``inspect sst`` and ``inspect runs``: what is stored, as it is.

Nothing is written, no role is claimed, and nothing but what is shown is verified."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from slate_async.cli.context import chosen_encoding, finish
from slate_async.cli.encoding import Encoding, show
from slate_async.cli.exit_codes import OK
from slate_async.cli.output import Output
from slate_async.cli.plain import plain, spans
from slate_async.cli.session import Session
from slate_async.engine.read.time_travel import iso_time
from slate_async.maintenance.inspection.log import LogEntry
from slate_async.maintenance.inspection.manifest import RunInspection
from slate_async.maintenance.inspection.range_deletes import RangeDeleteInspection, inspect_range_deletes
from slate_async.maintenance.inspection.sst import BlockInspection

commands = typer.Typer(
    help="Show what is stored: the manifest, the log, an SST, the runs. A writer that runs elsewhere is not disturbed.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Hex = Annotated[bool, typer.Option("--hex", help="Show keys in hexadecimal.")]
Base64 = Annotated[bool, typer.Option("--base64", help="Show keys in Base64.")]


@commands.command("manifest", help="Every field of the newest version, and which versions are stored.")
def manifest(context: typer.Context, hexadecimal: Hex = False, base64_: Base64 = False) -> None:
    """See ``help``."""
    finish(context, show_manifest(context.obj, chosen_encoding(context, hexadecimal, base64_)))


@commands.command("log", help="Every object of the log: position, epoch, kind, rows, bytes, and whether it counts.")
def log(context: typer.Context) -> None:
    """See ``help``."""
    finish(context, show_log(context.obj))


@commands.command("sst", help="One SST: header, footer, statistics, blocks. SST is a key, or an object id.")
def sst(
    context: typer.Context,
    wanted: Annotated[str, typer.Argument(metavar="SST")],
    hexadecimal: Hex = False,
    base64_: Base64 = False,
) -> None:
    """See ``help``."""
    finish(context, show_sst(context.obj, wanted, chosen_encoding(context, hexadecimal, base64_)))


@commands.command("runs", help="L0, SST by SST, and the sorted runs, newest first.")
def runs(context: typer.Context, hexadecimal: Hex = False, base64_: Base64 = False) -> None:
    """See ``help``."""
    finish(context, show_runs(context.obj, chosen_encoding(context, hexadecimal, base64_)))


# ---- the manifest


async def show_manifest(session: Session, encoding: Encoding) -> int:
    """The state whole as JSON; for people its fields, then a table for each list."""
    async with session.administering() as admin:
        found = await admin.inspect.manifest()
    output, state = session.output, plain(found.state, encoding)
    deletes = inspect_range_deletes(found.state)
    state["range_deletes"] = plain(deletes, encoding)
    stored = {name: plain(getattr(found, name), encoding) for name in ("base", "versions", "marker")}
    if output.as_json:
        output.json({**state, **stored})
        return OK
    lists = {name: value for name, value in state.items() if isinstance(value, list)}
    counts = {name: len(value) for name, value in lists.items()}
    base = "none: it is a full version" if found.base is None else found.base.version
    origin = {"base": base, "versions": spans(ref.version for ref in found.versions), "marker": stored["marker"]}
    output.fields("manifest", {**state, **counts, **origin})
    for name in ("checkpoints", "compactions", "parents"):
        _list(output, name, lists[name])
    if deletes:
        columns = ("sequence number", "first key", "end", "created", "L0 SSTs", "SSTs of runs")
        output.table("range deletes", columns, [_delete_row(delete, encoding, output) for delete in deletes])
    return OK


def _delete_row(delete: RangeDeleteInspection, encoding: Encoding, output: Output) -> tuple[str, ...]:
    end = "-" if delete.end is None else show(delete.end, encoding, output.charset)
    keys = (show(delete.start, encoding, output.charset), end)
    counts = (str(delete.l0_ssts), str(delete.run_ssts))
    return (str(delete.seq), *keys, iso_time(delete.create_ms / 1000), *counts)


def _list(output: Output, name: str, entries: list[dict[str, Any]]) -> None:
    for entry in entries:
        entry.update({key: iso_time(value / 1000) for key, value in entry.items() if key.endswith("_ms") and value})
        entry.update({key: len(value) for key, value in entry.items() if isinstance(value, list) and len(value) > 4})
        output.fields(f"{name}: {entry.get('id') or entry.get('database_id')}", {name: entry})


# ---- the log


async def show_log(session: Session) -> int:
    """A row for each object; the register first."""
    async with session.administering() as admin:
        found = await admin.inspect.log()
    shown = plain(found, Encoding.TEXT)
    if session.output.as_json:
        session.output.json(shown)
        return OK
    del shown["objects"]
    session.output.fields("log", shown)
    columns = ("position", "epoch", "kind", "rows", "range deletes", "sequence numbers", "bytes", "status", "object")
    session.output.table("objects", columns, [_log_row(logged) for logged in found.objects])
    return OK


def _log_row(entry: LogEntry) -> tuple[str, ...]:
    seqs = "-" if entry.min_seq is None else f"{entry.min_seq}-{entry.max_seq}"
    rows = (_or_dash(entry.rows), _or_dash(entry.range_deletes))
    return (
        str(entry.position),
        _or_dash(entry.epoch),
        entry.kind,
        *rows,
        seqs,
        str(entry.size),
        entry.status,
        entry.key,
    )


def _or_dash(number: int | None) -> str:
    return "-" if number is None else str(number)


# ---- SSTs


async def show_sst(session: Session, wanted: str, encoding: Encoding) -> int:
    """Header, footer, statistics; then a row for each block."""
    async with session.administering() as admin:
        found = await admin.inspect.sst(wanted)
    shown = plain(found, encoding)
    if session.output.as_json:
        session.output.json(shown)
        return OK
    del shown["blocks"]
    if shown["named"] is None:
        shown["named"] = "no: the newest manifest version does not name it"
    session.output.fields("sst", shown)
    columns = ("block", "first key", "rows", "offset", "stored bytes", "raw bytes", "codec")
    rows = [_block_row(number, block, encoding, session.output) for number, block in enumerate(found.blocks)]
    session.output.table("blocks", columns, rows)
    return OK


def _block_row(number: int, block: BlockInspection, encoding: Encoding, output: Output) -> tuple[str, ...]:
    key = show(block.first_key, encoding, output.charset)
    sizes = (str(block.rows), str(block.offset), str(block.stored_bytes), str(block.raw_bytes))
    return (str(number), key, *sizes, block.codec)


async def show_runs(session: Session, encoding: Encoding) -> int:
    """A row for each; as JSON with their SSTs."""
    async with session.administering() as admin:
        found = await admin.inspect.runs()
    if session.output.as_json:
        shown = [{**plain(run, encoding), "tombstone_share": round(run.tombstone_share, 4)} for run in found]
        session.output.json({"runs": shown})
        return OK
    numbers = ("SSTs", "bytes", "rows", "tombstones", "range deletes", "sequence numbers")
    columns = ("level", "run", *numbers, "first key", "last key")
    session.output.table("runs", columns, [_run_row(run, encoding, session.output) for run in found])
    return OK


def _run_row(run: RunInspection, encoding: Encoding, output: Output) -> tuple[str, ...]:
    name = run.ssts[0].object_id.hex() if run.run_id is None else str(run.run_id)
    sizes = (str(len(run.ssts)), str(run.size), str(run.rows), f"{run.tombstone_share:.1%}", str(run.range_deletes))
    keys = (show(key, encoding, output.charset) for key in (run.first_key, run.last_key))
    return ("L0" if run.run_id is None else str(run.level), name, *sizes, f"{run.min_seq}-{run.max_seq}", *keys)
