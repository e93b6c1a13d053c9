"""The commands of ``slate``: options in, one of the other modules' functions called, exit code out."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from slate_async.cli import (
    admin,
    changes,
    checkpoints,
    clone,
    collection_upkeep,
    collections,
    compaction,
    deletion,
    demo,
    export,
    ingests,
    inspection,
    keyvalue,
    maintenance,
    merges,
    serve,
    shell,
    transfer,
)
from slate_async.cli.arguments import CommonOptions, print_version
from slate_async.cli.context import chosen_encoding, finish
from slate_async.cli.executors import ExecutorName, ExecutorRequest
from slate_async.cli.exit_codes import exit_code
from slate_async.cli.gc import CollectRequest, collect
from slate_async.cli.log import show_log
from slate_async.cli.output import Output
from slate_async.cli.session import Session
from slate_async.cli.sources import Format

app = typer.Typer(
    name="slate",
    cls=CommonOptions,
    help="An asyncio-native storage engine that keeps everything in an object store. The options below may stand before"
    " or after the command.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
admin_app = typer.Typer(help="Set up what databases need.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(admin_app, name="admin")
app.add_typer(changes.commands)
app.add_typer(merges.commands)
app.add_typer(checkpoints.commands)
app.add_typer(clone.commands)
app.add_typer(maintenance.commands)
app.add_typer(ingests.commands)
app.add_typer(serve.commands)
app.add_typer(inspection.commands, name="inspect")
collections.commands.add_typer(collection_upkeep.commands)
app.add_typer(collections.commands, name="collection")

BESIDE = "A writer that runs elsewhere is not disturbed."
TAKES_OVER = "Opens the database as its writer: a writer that runs elsewhere is fenced and stops."

Hex = Annotated[bool, typer.Option("--hex", help="Keys and values are hexadecimal, in and out.")]
Base64 = Annotated[bool, typer.Option("--base64", help="Keys and values are Base64, in and out.")]
AtCheckpoint = Annotated[
    str | None, typer.Option("--checkpoint", metavar="ID", help="Read it as that checkpoint (id or name) kept it.")
]
Prefix = Annotated[str | None, typer.Option(help="Only keys that begin so; not with --start or --end.")]
Start = Annotated[str | None, typer.Option(help="First key, inclusive.")]
End = Annotated[str | None, typer.Option(help="End of the keys, exclusive.")]
Pin = Annotated[
    bool,
    typer.Option(
        "--pin/--no-pin", help="Keep what is read from being deleted, which writes a checkpoint; by default nothing is."
    ),
]
Raw = Annotated[bool, typer.Option("--raw", help="Print bytes as they are stored.")]


Where = Annotated[
    ExecutorName,
    typer.Option(
        "--executor",
        help="What merges key ranges, compaction_parallelism at a time: this process, or Spark.",
    ),
]
Master = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Spark's master, as of spark-submit. Default: what Spark's configuration says."),
]
SparkConf = Annotated[
    list[str] | None,
    typer.Option("--spark-conf", metavar="NAME=VALUE", help="A setting of Spark; repeat it. No credentials here."),
]


class Billing(StrEnum):
    """How a DynamoDB table is paid for."""

    ON_DEMAND = "on-demand"
    PROVISIONED = "provisioned"


def run() -> None:
    """Run the command line; exits the process."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    app()


@app.callback()
def options(
    context: typer.Context,
    path: Annotated[
        str | None,
        typer.Option(
            envvar="SLATE_PATH",
            help="The database: a folder, file:///…, s3://bucket/prefix, az://container/prefix, gs://bucket/prefix.",
        ),
    ] = None,
    metastore: Annotated[
        str | None,
        typer.Option(
            envvar="SLATE_METASTORE",
            help="Where its metadata lives: nothing for beside the data, if-match, dynamodb://table, or etcd://host:2379/prefix.",
        ),
    ] = None,
    settings: Annotated[
        str | None, typer.Option(envvar="SLATE_SETTINGS", help="TOML file of settings; SLATE_* variables win over it.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, one object a line; errors too.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show tracebacks and the engine's log.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Options of every command."""
    output = Output(json)
    show_log(output, verbose=verbose)
    context.obj = Session(path, metastore, settings, verbose, output)


@app.command(help=f"Set KEY to VALUE, once that is durable. A missing database is made. {TAKES_OVER}")
def put(
    context: typer.Context,
    key: Annotated[str, typer.Argument()],
    value: Annotated[str | None, typer.Argument(help="Or --file.")] = None,
    file: Annotated[Path | None, typer.Option(help="Take the value from this file's bytes.")] = None,
    ttl: Annotated[float | None, typer.Option(metavar="SECONDS", help="The key vanishes that long from now.")] = None,
    create: Annotated[bool, typer.Option("--create/--no-create", help="Make a missing database.")] = True,
    hexadecimal: Hex = False,
    base64_: Base64 = False,
) -> None:
    """See ``help``."""
    encoding = chosen_encoding(context, hexadecimal, base64_)
    finish(context, keyvalue.put(context.obj, key, value, file=file, ttl=ttl, create=create, encoding=encoding))


@app.command(help=f"Print the value of KEY; exit code 1 if there is none. {BESIDE}")
def get(
    context: typer.Context,
    key: Annotated[str, typer.Argument()],
    checkpoint: AtCheckpoint = None,
    number: Annotated[bool, typer.Option("--i64", help="The value is a number, as increment stores it.")] = False,
    hexadecimal: Hex = False,
    base64_: Base64 = False,
    raw: Raw = False,
) -> None:
    """See ``help``."""
    encoding = chosen_encoding(context, hexadecimal, base64_)
    finish(context, keyvalue.get(context.obj, key, checkpoint=checkpoint, encoding=encoding, raw=raw, number=number))


@app.command(help=f"Print yes or no; exit code 1 if there is no KEY. {BESIDE}")
def exists(
    context: typer.Context,
    key: Annotated[str, typer.Argument()],
    checkpoint: AtCheckpoint = None,
    hexadecimal: Hex = False,
    base64_: Base64 = False,
) -> None:
    """See ``help``."""
    encoding = chosen_encoding(context, hexadecimal, base64_)
    finish(context, keyvalue.exists(context.obj, key, checkpoint=checkpoint, encoding=encoding))


@app.command(help=f"Remove KEY, or all keys of a range at once, once that is durable. {TAKES_OVER}")
def delete(
    context: typer.Context,
    key: Annotated[str | None, typer.Argument(help="No error if it is not there.")] = None,
    prefix: Annotated[str | None, typer.Option(help="All keys that begin so.")] = None,
    start: Annotated[str | None, typer.Option(help="All keys from this one on, up to --end.")] = None,
    end: Annotated[str | None, typer.Option(help="All keys before this one, from --start on.")] = None,
    hexadecimal: Hex = False,
    base64_: Base64 = False,
) -> None:
    """See ``help``."""
    encoding = chosen_encoding(context, hexadecimal, base64_)
    finish(context, deletion.delete(context.obj, deletion.Doomed(key, prefix, start, end), encoding=encoding))


@app.command(help=f"Print rows in key order. {BESIDE}")
def scan(
    context: typer.Context,
    prefix: Prefix = None,
    start: Start = None,
    end: End = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many rows.")] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="Largest key first.")] = False,
    keys_only: Annotated[bool, typer.Option("--keys-only", help="Leave values out.")] = False,
    checkpoint: AtCheckpoint = None,
    pin: Pin = False,
    hexadecimal: Hex = False,
    base64_: Base64 = False,
    raw: Raw = False,
) -> None:
    """See ``help``."""
    encoding = chosen_encoding(context, hexadecimal, base64_)
    bounds = keyvalue.Bounds(prefix, start, end, limit=limit, reverse=reverse)
    finish(
        context,
        keyvalue.scan(
            context.obj, bounds, checkpoint=checkpoint, pin=pin, keys_only=keys_only, encoding=encoding, raw=raw
        ),
    )


@app.command(help=f"Print how many keys there are. {BESIDE}")
def count(
    context: typer.Context,
    prefix: Prefix = None,
    start: Start = None,
    end: End = None,
    checkpoint: AtCheckpoint = None,
    pin: Pin = False,
    hexadecimal: Hex = False,
    base64_: Base64 = False,
) -> None:
    """See ``help``."""
    encoding = chosen_encoding(context, hexadecimal, base64_)
    bounds = keyvalue.Bounds(prefix, start, end)
    finish(context, keyvalue.count(context.obj, bounds, checkpoint=checkpoint, pin=pin, encoding=encoding))


@app.command("export", help=f"Write rows to a CSV, JSON Lines or Parquet file. {BESIDE}")
def export_command(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="The file; - for standard output.")],
    form: Annotated[
        export.ExportFormat | None, typer.Option("--format", help="Default: by the file's extension.")
    ] = None,
    prefix: Prefix = None,
    start: Start = None,
    end: End = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many rows.")] = None,
    expiry: Annotated[bool, typer.Option("--expiry", help="Add a column expire_time; empty is never.")] = False,
    checkpoint: AtCheckpoint = None,
    pin: Pin = False,
    hexadecimal: Hex = False,
    base64_: Base64 = False,
) -> None:
    """See ``help``."""
    encoding = chosen_encoding(context, hexadecimal, base64_)
    bounds = keyvalue.Bounds(prefix, start, end, limit=limit)
    job = export.ExportJob(file, form, bounds, checkpoint, pin, expiry, encoding)
    finish(context, export.export(context.obj, job))


@app.command("shell", help="Run commands, one a line, on a database that stays open. It only reads without --write.")
def shell_command(
    context: typer.Context,
    write: Annotated[bool, typer.Option("--write", help=f"{TAKES_OVER} A missing one is made.")] = False,
) -> None:
    """See ``help``."""
    session: Session = context.obj
    try:
        code = shell.shell(session, context.find_root().command, write=write)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the outermost frame: every error is reported
        session.report(error)
        code = exit_code(error)
    raise typer.Exit(code)


@app.command(help=f"Load a CSV, TSV, JSON Lines or Parquet file; exit code 1 if rows were bad. {TAKES_OVER}")
def load(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="The file; - for standard input.")],
    key: Annotated[list[str], typer.Option("--key", metavar="COLUMN", help="Key column; repeat it to join several.")],
    value: Annotated[
        str | None, typer.Option("--value", metavar="COLUMN", help="Value column; default: the whole row as JSON.")
    ] = None,
    key_separator: Annotated[str, typer.Option(help="Stands between joined key columns.")] = ":",
    key_prefix: Annotated[str, typer.Option(help="Stands before every key.")] = "",
    form: Annotated[Format | None, typer.Option("--format", help="Default: by the file's extension.")] = None,
    ttl: Annotated[float | None, typer.Option(metavar="SECONDS", help="Rows vanish that long after loading.")] = None,
    rejects: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Write bad rows here, as JSON Lines with line and reason.")
    ] = None,
    allow_bad: Annotated[bool, typer.Option("--allow-bad", help="Bad rows do not change the exit code.")] = False,
    concurrency: Annotated[int, typer.Option(min=1, max=1024, help="Batches of 500 rows in flight.")] = 32,
    create: Annotated[bool, typer.Option("--create/--no-create", help="Make a missing database.")] = True,
) -> None:
    """See ``help``."""
    job = transfer.LoadJob(
        file, key, value, key_separator, key_prefix, form, ttl, rejects, allow_bad, concurrency, create
    )
    finish(context, transfer.load(context.obj, job))


@app.command(help=f"Show what the database is and how it is doing. {BESIDE}")
def status(
    context: typer.Context,
    metrics: Annotated[bool, typer.Option("--metrics", help="Add the counters of this opening.")] = False,
) -> None:
    """See ``help``."""
    finish(context, keyvalue.status(context.obj, metrics=metrics))


@app.command("gc", help=f"Delete what nothing needs any more: old versions, log objects, SSTs. {BESIDE}")
def gc(
    context: typer.Context,
    also: Annotated[
        list[str] | None, typer.Argument(metavar="URL", help="More databases, of the same metastore.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Delete what may go now, then end.")] = False,
    interval: Annotated[
        str | None, typer.Option(metavar="DURATION", help='Go on for ever, a round each so often, like "5min".')
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Delete nothing; show what would go, and why.")] = False,
) -> None:
    """See ``help``."""
    wanted = CollectRequest(also or [], once, interval, dry_run)
    finish(context, collect(context.obj, wanted))


@app.command(
    help="Compact for as long as the command runs, as the compactor of the database: one that runs elsewhere is fenced"
    " and stops. What was begun goes on where it stopped."
)
def compactor(
    context: typer.Context,
    executor: Where = ExecutorName.LOCAL,
    master: Master = None,
    spark_conf: SparkConf = None,
) -> None:
    """See ``help``."""
    where = ExecutorRequest(executor, master, spark_conf or [])
    finish(context, compaction.compactor(context.obj, where))


@app.command(
    help="Compact what is due, or what the options say, and stop. A compactor that runs elsewhere is fenced; the"
    " writer's own takes the role back afterwards."
)
def compact(
    context: typer.Context,
    full: Annotated[bool, typer.Option("--full", help="Everything into one run.")] = False,
    span: Annotated[
        tuple[str, str] | None,
        typer.Option("--range", metavar="START END", help="Whatever holds keys from START on, before END."),
    ] = None,
    level: Annotated[int | None, typer.Option(min=0, help="All of this level into the next; 0 is L0.")] = None,
    executor: Where = ExecutorName.LOCAL,
    master: Master = None,
    spark_conf: SparkConf = None,
    hexadecimal: Hex = False,
    base64_: Base64 = False,
) -> None:
    """See ``help``."""
    encoding = chosen_encoding(context, hexadecimal, base64_)
    wanted = compaction.CompactRequest(full, span, level, encoding)
    where = ExecutorRequest(executor, master, spark_conf or [])
    finish(context, compaction.compact(context.obj, wanted, where))


@app.command("demo", help="Write, close, take over, read back and scan on a temporary folder.")
def demo_command(
    context: typer.Context,
    rows: Annotated[int, typer.Option(min=1, max=10_000_000, help="Rows to write.")] = 10_000,
) -> None:
    """See ``help``."""
    finish(context, demo.demo(context.obj, rows))


@admin_app.command("create-table", help="Create the DynamoDB table that --metastore dynamodb://TABLE names.")
def create_table(
    context: typer.Context,
    table: Annotated[str, typer.Argument()],
    region: Annotated[str | None, typer.Option(help="Default: the environment's or profile's.")] = None,
    endpoint_url: Annotated[str | None, typer.Option(help="Another endpoint than the region's.")] = None,
    billing: Annotated[Billing, typer.Option(help="Pay per request, or for a fixed capacity.")] = Billing.ON_DEMAND,
    read_units: Annotated[int | None, typer.Option(min=1, help="Capacity, with --billing provisioned.")] = None,
    write_units: Annotated[int | None, typer.Option(min=1, help="Capacity, with --billing provisioned.")] = None,
) -> None:
    """See ``help``."""
    wanted = admin.TableRequest(table, region, endpoint_url, billing is Billing.PROVISIONED, read_units, write_units)
    finish(context, admin.create_table(context.obj, wanted))
