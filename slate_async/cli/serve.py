"""``serve`` and ``hash-password``: tables over Arrow Flight, until the command is ended."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

import slate_async
from slate_async.cli.context import finish
from slate_async.cli.exit_codes import OK
from slate_async.cli.session import Session
from slate_async.errors import ConfigError, InvalidError
from slate_async.runtime.system import end_threads, system_runtime

commands = typer.Typer(rich_markup_mode=None)
Pem = Annotated[Path | None, typer.Option(metavar="FILE", help="In PEM.")]


@dataclass(frozen=True, slots=True)
class ServeRequest:
    """What ``slate serve`` was asked for."""

    url: str | None
    listen: str
    cert: Path | None
    key: Path | None
    client_ca: Path | None
    tokens: Path | None
    insecure: bool


@commands.command(
    "serve",
    help="Serve the tables of a catalog over Arrow Flight, until SIGTERM or Ctrl-C; then calls that run may end. Any"
    " number of servers serve one catalog. Without TLS and tokens it listens on this machine alone.",
)
def serve_command(
    context: typer.Context,
    url: Annotated[str | None, typer.Argument(help="The catalog; default: --path.")] = None,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Port 0 chooses one.")] = "127.0.0.1:8815",
    tls_cert: Pem = None,
    tls_key: Pem = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Clients show a certificate that one of these has signed.")
    ] = None,
    tokens: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Tokens, users and certificates, and what they may do; TOML.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Allow other interfaces than loopback without TLS or tokens.")
    ] = False,
) -> None:
    """See ``help``."""
    finish(context, serve(context.obj, ServeRequest(url, listen, tls_cert, tls_key, tls_client_ca, tokens, insecure)))


@commands.command(
    "hash-password", help="Print a password as a file of tokens has it. It is asked for, or the line of standard input."
)
def hash_command(context: typer.Context) -> None:
    """See ``help``."""
    password = typer.prompt("Password", hide_input=True) if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    finish(context, hash_password(context.obj, password))


async def serve(session: Session, wanted: ServeRequest) -> int:
    """Serve until the command is cancelled."""
    flight, tls = _flight()
    if (wanted.cert is None) != (wanted.key is None):
        raise InvalidError("--tls-cert and --tls-key are given together")
    if wanted.cert is None and wanted.client_ca is not None:
        raise InvalidError("--tls-client-ca needs --tls-cert and --tls-key")
    secured = None
    if wanted.cert is not None and wanted.key is not None:
        secured = tls.ServerTls(wanted.cert, wanted.key, wanted.client_ca)
    chosen = session.settings_file
    settings = flight.ServeSettings() if chosen is None else flight.ServeSettings.from_toml(chosen)
    path = wanted.url or session.path
    if not path:
        raise InvalidError("which catalog? Give its URL, --path URL, or set SLATE_PATH")
    async with (
        slate_async.open_catalog(path, metastore=session.metastore, settings=session.settings()) as catalog,
        await flight.serve(
            catalog,
            wanted.listen,
            tls=secured,
            tokens=wanted.tokens,
            insecure=wanted.insecure,
            settings=settings,
        ) as server,
    ):
        host = wanted.listen.rpartition(":")[0]
        scheme = "grpc" if secured is None else "grpc+tls"
        session.output.note(f"serving {path} on {scheme}://{host}:{server.port}; Ctrl-C ends it")
        await asyncio.Event().wait()
    return OK


async def hash_password(session: Session, password: str) -> int:
    """Print what a file of tokens has of ``password``."""
    if not password:
        raise InvalidError("the password is empty")
    _flight()
    from slate_async.flight.auth import hashed_password  # noqa: PLC0415 - needs an extra

    runtime = system_runtime()
    try:
        salt = runtime.ids.uuid().bytes
        session.output.fields("password", {"password": hashed_password(password, salt)})
    finally:
        end_threads(runtime)
    return OK


def _flight() -> tuple[Any, Any]:
    """The modules that serve. Raises `ConfigError` without the packages that they need."""
    try:
        from slate_async.flight import serve as flight  # noqa: PLC0415 - needs an extra
        from slate_async.rpc import tls  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            f"tables are served with the extra flight: pip install 'slate-async[flight]' ({error})"
        ) from error
    return flight, tls
