"""``merge`` and ``increment``: a value is changed without knowing it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from slate_async.cli.context import chosen_encoding, finish
from slate_async.cli.encoding import Encoding, json_field, parse
from slate_async.cli.exit_codes import OK
from slate_async.cli.keyvalue import check_ttl
from slate_async.cli.session import Session
from slate_async.errors import InvalidError
from slate_async.merge_operators.values import pack_i64

commands = typer.Typer()
LEAST, MOST = -(2**63), 2**63 - 1
TAKES_OVER = "Opens the database as its writer: a writer that runs elsewhere is fenced and stops."


@dataclass(frozen=True, slots=True)
class Operand:
    """What to merge, as given on the command line."""

    text: str | None
    number: int | None
    file: Path | None

    def parsed(self, encoding: Encoding) -> bytes:
        """Its bytes. Raises `InvalidError` unless one way was chosen."""
        if sum(given is not None for given in (self.text, self.number, self.file)) != 1:
            raise InvalidError("give either OPERAND, --i64 or --file")
        if self.number is not None:
            return pack_i64(_of_64_bits("--i64", self.number))
        if self.file is not None:
            return self.file.read_bytes()
        return parse(self.text or "", encoding, what="OPERAND")


@commands.command(
    "merge",
    help="Merge OPERAND into KEY by the merge operator that the database was created with, once that is durable."
    f" {TAKES_OVER}",
)
def merge_command(
    context: typer.Context,
    key: Annotated[str, typer.Argument()],
    operand: Annotated[str | None, typer.Argument(help="Or --i64, or --file.")] = None,
    number: Annotated[int | None, typer.Option("--i64", help="The operand is this number, as add_i64 has it.")] = None,
    file: Annotated[Path | None, typer.Option(help="Take the operand from this file's bytes.")] = None,
    ttl: Annotated[float | None, typer.Option(metavar="SECONDS", help="It counts that long from now.")] = None,
    hexadecimal: Annotated[bool, typer.Option("--hex", help="KEY and OPERAND are hexadecimal.")] = False,
    base64_: Annotated[bool, typer.Option("--base64", help="KEY and OPERAND are Base64.")] = False,
) -> None:
    """See ``help``."""
    encoding = chosen_encoding(context, hexadecimal, base64_)
    finish(context, merge(context.obj, key, Operand(operand, number, file), ttl=ttl, encoding=encoding))


async def merge(session: Session, key: str, operand: Operand, *, ttl: float | None, encoding: Encoding) -> int:
    """Merge one operand."""
    key_bytes, value = parse(key, encoding, what="KEY"), operand.parsed(encoding)
    check_ttl(ttl)
    async with session.writing(create=False) as database:
        handle = await database.merge(key_bytes, value, ttl=ttl)
    if session.output.as_json:
        name, shown = json_field("key", key_bytes, encoding)
        session.output.json({name: shown, "seq": handle.seq})
    return OK


@commands.command(
    "increment",
    help="Add BY to the number in KEY, print the new one once that is durable. A missing key counts as 0, and a missing"
    f" database is made. {TAKES_OVER}",
)
def increment_command(
    context: typer.Context,
    key: Annotated[str, typer.Argument()],
    by: Annotated[int, typer.Argument(help="64 bits, signed; a negative one goes after --.")] = 1,
    token: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="A key that keeps the answer: repeated with it, an increment counts once."),
    ] = None,
    token_ttl: Annotated[
        float | None, typer.Option("--token-ttl", metavar="SECONDS", help="The answer is kept that long.")
    ] = None,
    ttl: Annotated[float | None, typer.Option(metavar="SECONDS", help="The key vanishes that long from now.")] = None,
    create: Annotated[bool, typer.Option("--create/--no-create", help="Make a missing database.")] = True,
    hexadecimal: Annotated[bool, typer.Option("--hex", help="Keys are hexadecimal.")] = False,
    base64_: Annotated[bool, typer.Option("--base64", help="Keys are Base64.")] = False,
) -> None:
    """See ``help``."""
    encoding = chosen_encoding(context, hexadecimal, base64_)
    once = Token(token, token_ttl)
    finish(context, increment(context.obj, key, by, once, ttl=ttl, create=create, encoding=encoding))


@dataclass(frozen=True, slots=True)
class Token:
    """What lets an increment count once, as given on the command line."""

    key: str | None
    ttl: float | None

    def parsed(self, encoding: Encoding) -> bytes | None:
        """The key. Raises `InvalidError`."""
        if self.key is None:
            if self.ttl is not None:
                raise InvalidError("--token-ttl goes with --token")
            return None
        check_ttl(self.ttl, "--token-ttl")
        return parse(self.key, encoding, what="--token")


async def increment(
    session: Session, key: str, by: int, token: Token, *, ttl: float | None, create: bool, encoding: Encoding
) -> int:
    """Add to one number."""
    key_bytes, once = parse(key, encoding, what="KEY"), token.parsed(encoding)
    _of_64_bits("BY", by)
    check_ttl(ttl)
    if once == key_bytes:
        raise InvalidError("--token names a key of its own, not KEY")
    async with session.writing(create=create) as database:
        number = await database.increment(key_bytes, by, ttl=ttl, token=once, token_ttl=token.ttl)
    if session.output.as_json:
        session.output.json(dict([json_field("key", key_bytes, encoding)]) | {"number": number})
    else:
        session.output.line(str(number))
    return OK


def _of_64_bits(what: str, number: int) -> int:
    if not LEAST <= number <= MOST:
        raise InvalidError(f"{what} has 64 bits: {LEAST} to {MOST}, not {number}")
    return number
