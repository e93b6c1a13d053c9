"""Connections to the endpoints of an etcd: one at a time is used, and the next one when it fails.

Invariant: `connected` gives a connection that was made, so a request that finds none was certainly not sent.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from metastores.errors import MetaStoreInvalidError, MetaStoreUnavailableError
from metastores.etcd_client.access import EtcdAccess

CONNECT_TIMEOUT_S = 2.0
KEEPALIVE_TIME_MS = 10_000
"""Servers refuse clients that ask more often than every five seconds."""
KEEPALIVE_TIMEOUT_MS = 5_000
OPTIONS = (
    ("grpc.keepalive_time_ms", KEEPALIVE_TIME_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
)
"""No request is repeated below this package; answers may be as large as the server makes them."""


@dataclass(frozen=True, slots=True, eq=False)
class Connection:
    """A connection that was made. ``where``: its endpoint."""

    where: str
    channel: grpc.aio.Channel


class Endpoints:
    """See the module docstring. Used from one event loop."""

    def __init__(self, access: EtcdAccess, first: int) -> None:
        self._access = access
        self._at = first % len(access.endpoints)
        self._connections: dict[str, Connection] = {}
        self._closed = False

    async def connected(self) -> Connection:
        """To the endpoint in use, or the first after it that answers. Raises `MetaStoreUnavailableError`."""
        endpoints = self._access.endpoints
        for _ in endpoints:
            connection = self._to(endpoints[self._at])
            if await _is_ready(connection.channel):
                return connection
            self.leave(connection)
        raise MetaStoreUnavailableError(f"no endpoint of the etcd answers: {', '.join(endpoints)}")

    async def connected_to(self, where: str) -> Connection:
        """To that very endpoint. Raises `MetaStoreUnavailableError`."""
        connection = self._to(where)
        if not await _is_ready(connection.channel):
            raise MetaStoreUnavailableError(f"the etcd's endpoint {where} does not answer")
        return connection

    def leave(self, connection: Connection) -> None:
        """Use the next endpoint, if ``connection`` is to the one in use: it did not answer."""
        endpoints = self._access.endpoints
        if endpoints[self._at] == connection.where:
            self._at = (self._at + 1) % len(endpoints)

    async def close(self) -> None:
        """Close all connections. Idempotent."""
        self._closed = True
        connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            await connection.channel.close()

    def _to(self, where: str) -> Connection:
        if self._closed:
            raise MetaStoreInvalidError("the etcd client was closed")
        known = self._connections.get(where)
        if known is None:
            known = self._connections[where] = Connection(where, self._channel(where))
        return known

    def _channel(self, where: str) -> Any:
        access = self._access
        if not access.tls:
            return grpc.aio.insecure_channel(where, OPTIONS)
        credentials = grpc.ssl_channel_credentials(access.authorities, access.private_key, access.certificate)
        return grpc.aio.secure_channel(where, credentials, OPTIONS)


async def _is_ready(channel: grpc.aio.Channel) -> bool:
    if channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY:
        return True
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await channel.channel_ready()
    except TimeoutError:
        return False
    return True
