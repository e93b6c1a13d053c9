"""``changes``: what was put and deleted, as it happened, to the end or for ever."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from slate_async.cli.encoding import Encoding, encoding_of, json_field, show
from slate_async.cli.exit_codes import OK, USAGE
from slate_async.cli.session import Session
from slate_async.engine.changes.change import Change
from slate_async.engine.read.time_travel import iso_time
from slate_async.errors import InvalidError

commands = typer.Typer()
NOW = "now"


@commands.command(
    "changes",
    help="Print every put and delete in the order of sequence numbers, up to now, or for ever with --follow. Of a"
    " delete_range come the first key and the first one behind it, if there is one. A writer that runs elsewhere is not"
    " disturbed.",
)
def changes_command(
    context: typer.Context,
    from_seq: Annotated[
        str | None,
        typer.Option(
            metavar="SEQ",
            help='Changes after this sequence number; 0 is the beginning, "now" what is written from now on. Default:'
            " where --subscription was left, else the beginning.",
        ),
    ] = None,
    until_seq: Annotated[int | None, typer.Option(min=0, metavar="SEQ", help="Stop behind this one.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is written meanwhile.")] = False,
    subscription: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Keep, under this name, what was not printed yet; the next call with it goes on there."
            " `delete-checkpoint` gives it up.",
        ),
    ] = None,
    keys_only: Annotated[
        bool, typer.Option("--keys-only", help="Leave values out; a range delete has its end all the same.")
    ] = False,
    hexadecimal: Annotated[bool, typer.Option("--hex", help="Keys and values in hexadecimal.")] = False,
    base64_: Annotated[bool, typer.Option("--base64", help="Keys and values in Base64.")] = False,
) -> None:
    """See ``help``."""
    session: Session = context.obj
    try:
        encoding = encoding_of(hexadecimal=hexadecimal, base64_=base64_)
        begin = _begin(from_seq)
    except InvalidError as error:
        session.report(error)
        raise typer.Exit(USAGE) from error
    asked = {
        "from_seq": begin,
        "until_seq": until_seq,
        "follow": follow or until_seq is not None,
        "subscription": subscription,
    }
    raise typer.Exit(session.run(changes(session, asked, encoding=encoding, keys_only=keys_only)))


def _begin(from_seq: str | None) -> int | str | None:
    if from_seq is None or from_seq == NOW:
        return from_seq
    if not from_seq.isdecimal():
        raise InvalidError(f"--from-seq is a sequence number or {NOW}, not {from_seq!r}")
    return int(from_seq)


async def changes(session: Session, asked: dict[str, Any], *, encoding: Encoding, keys_only: bool) -> int:
    """Print the feed that ``asked`` describes (arguments of `slate_async.DbReader.changes`), as it comes."""
    count = 0
    async with session.reader() as reader, reader.changes(**asked) as feed:
        if feed.snapshot_seq:
            session.output.note(
                f"up to sequence number {feed.snapshot_seq} history was compacted: of that comes what is left"
            )
        async for change in feed:
            count += 1
            _print(session, change, encoding, keys_only)
            if asked["subscription"] is not None:
                await feed.acknowledge(feed.seq)
    session.output.note(f"{count:,} change{'' if count == 1 else 's'}")
    return OK


def _print(session: Session, change: Change, encoding: Encoding, keys_only: bool) -> None:
    output = session.output
    expires = None if change.expire_time is None else iso_time(change.expire_time)
    ranged = change.op == "delete_range"
    value = None if keys_only and not ranged else change.value
    if output.as_json:
        members: dict[str, object] = {"seq": change.seq, "op": change.op}
        members.update([json_field("key", change.key, encoding)])
        if value is not None:
            members.update([json_field("end" if ranged else "value", value, encoding)])
        elif ranged:
            members["end"] = None
        times = {} if expires is None else {"expire_time": expires}
        output.json({**members, "create_time": iso_time(change.create_time), **times})
        return
    shown = [str(change.seq), change.op, show(change.key, encoding, output.charset)]
    output.line("\t".join([*shown, *([] if value is None else [show(value, encoding, output.charset)])]))
