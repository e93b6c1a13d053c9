"""`serve`: a server of one catalog, from its start until it has drained.

The server holds nothing that another one would miss: any number of them serve one catalog. Without TLS, and without
tokens, it listens on the loopback interface alone, unless its caller says otherwise.
"""

from __future__ import annotations

import logging
from pathlib import Path

from slate_async.errors import ConfigError, InvalidError
from slate_async.flight.auth import Accounts, Authenticator
from slate_async.flight.service import SERVICE, FlightService
from slate_async.rpc import health
from slate_async.rpc.server import RpcLimits, RpcServer
from slate_async.rpc.tls import ServerTls, is_loopback
from slate_async.runtime.loop_handle import LoopHandle
from slate_async.settings.serving import ServeSettings
from slate_async.tables.catalog import Catalog

logger = logging.getLogger(__name__)


class FlightServer(LoopHandle):
    """Made by `serve`. ``async with`` stops it. ``port``: on which it listens."""

    def __init__(self, server: RpcServer, service: FlightService, listen: str, settings: ServeSettings) -> None:
        super().__init__(f"the server on {listen}")
        self.port = 0
        self._server = server
        self._service = service
        self._settings = settings

    def metrics(self) -> dict[str, int | float]:
        """By dotted name, since it started."""
        return {**self._server.stats.metrics(), **self._service.metrics()}

    async def close(self) -> None:
        """Take no more calls, wait for those that run, ``grace_ms`` at most, and cancel the rest. Idempotent."""
        await self._end()

    async def _finish(self) -> None:
        await self._server.stop(self._settings.grace_ms / 1_000)


async def serve(
    catalog: Catalog,
    listen: str = "127.0.0.1:8815",
    *,
    tls: ServerTls | None = None,
    tokens: Path | None = None,
    insecure: bool = False,
    settings: ServeSettings | None = None,
) -> FlightServer:
    """Serve ``catalog``, which stays open until the server is closed.

    listen: ``host:port``; port 0 chooses one
    tls: certificate and key, in PEM
    tokens: a file of tokens, users and certificates; see `slate_async.flight.auth`. Without it, everybody may do
    everything
    insecure: allow other interfaces than loopback without TLS or tokens

    Raises `ConfigError`."""
    host, colon, port = listen.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65_535:
        raise InvalidError(f"an address to listen on is host:port, not {listen!r}")
    if not insecure and not is_loopback(host):
        missing = "TLS" if tls is None else "tokens" if tokens is None else None
        if missing is not None:
            raise ConfigError(
                f"without {missing} a server listens on the loopback interface alone, not on {host}; give it {missing},"
                " or say that it may be insecure"
            )
    if tls is not None and tls.client_ca is not None and tokens is None:
        raise ConfigError("client certificates need a file of tokens, which says what their owners may do")
    chosen = ServeSettings() if settings is None else settings
    runtime = catalog.runtime
    accounts = None if tokens is None else await runtime.blocking.run(lambda: Accounts.read(tokens))
    limits = RpcLimits(chosen.message_bytes, chosen.streams, chosen.streams, chosen.idle_ms)
    server = RpcServer(limits)
    authenticator = Authenticator(accounts, runtime, token_ms=chosen.token_ms)
    service = FlightService(catalog, server, authenticator, runtime, chosen)
    server.add(SERVICE, service.methods())
    server.add(health.SERVICE, health.health_methods(server))
    made = FlightServer(server, service, listen, chosen)
    made.port = await server.start(listen, tls)
    logger.info("serving on %s, port %d", listen, made.port)
    return made
