"""`metastores.etcd_client.protocol.Etcd` over gRPC.

Invariant: a transaction that writes is sent once, over a connection that was made before. What is repeated here is:

* reads, and writes that `EtcdClient.write` says may be done twice, after any error that may pass;
* any request after an answer that it was not let in, which comes before it is judged.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, TypeAlias, TypeVar

import grpc
import grpc.aio

from metastores.errors import MetaStoreUnavailableError
from metastores.etcd_client import messages
from metastores.etcd_client.access import EtcdAccess
from metastores.etcd_client.endpoints import Connection, Endpoints
from metastores.etcd_client.errors import LeaseEndedError, TokenRefusedError, translate
from metastores.etcd_client.protocol import CompactedError
from metastores.etcd_client.records import (
    Condition,
    EndpointStatus,
    Operation,
    RangeAnswer,
    TxnAnswer,
    WatchAnswer,
)
from metastores.etcd_client.watching import progress_is_right, watch_once
from metastores.etcd_client.wire import etcd_pb2 as wire
from metastores.object_store_errors import OutcomeUnknownError
from metastores.runtime import MetaRuntime
from metastores.stats import MetaStats

T = TypeVar("T")
Metadata: TypeAlias = Sequence[tuple[str, str]]
ATTEMPTS = 12
MAX_VALUE_BYTES = 1_000_000
"""Servers take requests up to 1.5 MiB."""


class EtcdClient:
    """See the module docstring. Used from one event loop; connects when it is used first. ``stats`` counts what it
    repeats."""

    def __init__(self, access: EtcdAccess, runtime: MetaRuntime | None = None, stats: MetaStats | None = None) -> None:
        self._access = access
        self._runtime = MetaRuntime() if runtime is None else runtime
        self._endpoints = Endpoints(access, os.getpid())
        self._token: str | None = None
        self._versions: dict[str, str] = {}
        self.stats = MetaStats() if stats is None else stats

    def __repr__(self) -> str:
        return f"EtcdClient({self._access!r})"

    async def read(
        self, key: bytes, end: bytes | None = None, *, revision: int = 0, limit: int = 0, keys_only: bool = False
    ) -> RangeAnswer:
        """See `Etcd.read`."""
        request = messages.range_request(key, end, revision=revision, limit=limit, keys_only=keys_only)
        return messages.range_answer(await self._repeated("KV/Range", request, wire.RangeResponse))

    async def txn(
        self, conditions: Sequence[Condition], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnAnswer:
        """See `Etcd.txn`."""
        request = messages.txn_request(conditions, then, otherwise)
        return messages.txn_answer(await self._once("KV/Txn", request, wire.TxnResponse))

    async def write(self, operations: Sequence[Operation]) -> int:
        """See `Etcd.write`."""
        request = messages.txn_request((), operations, ())
        return messages.txn_answer(await self._repeated("KV/Txn", request, wire.TxnResponse)).revision

    async def watch(self, prefix: bytes, revision: int) -> AsyncIterator[WatchAnswer]:
        """See `Etcd.watch`."""
        failed = 0
        while True:
            try:
                connection, metadata = await self._within_deadline("Watch", self._admitted())
                try:
                    progress = await self._tells_progress(connection, metadata)
                    watched = watch_once(
                        connection, metadata, prefix, revision, self._runtime.pause if progress else None
                    )
                    async with aclosing(watched):
                        async for answer in watched:
                            failed = 0
                            revision = max(revision, answer.revision + 1)
                            yield answer
                except (OutcomeUnknownError, TokenRefusedError):
                    self._endpoints.leave(connection)
                    self._token = None
                    raise
            except (MetaStoreUnavailableError, OutcomeUnknownError, TokenRefusedError) as error:
                failed += 1
                self.stats.retries += 1
                if failed == ATTEMPTS:
                    raise MetaStoreUnavailableError(f"a watch failed {failed} times: {error}") from error
                await self._runtime.back_off(failed - 1)

    async def _tells_progress(self, connection: Connection, metadata: Metadata) -> bool:
        where = connection.where
        if where not in self._versions:
            said = await self._send(
                connection, "Maintenance/Status", wire.StatusRequest(), wire.StatusResponse, metadata
            )
            self._versions[where] = said.version
        return progress_is_right(self._versions[where])

    async def compact(self, revision: int) -> None:
        """See `Etcd.compact`."""
        try:
            await self._repeated("KV/Compact", wire.CompactionRequest(revision=revision), wire.CompactionResponse)
        except CompactedError:
            return

    async def grant(self, seconds: int) -> int:
        """See `Etcd.grant`."""
        answer: wire.LeaseGrantResponse = await self._repeated(
            "Lease/LeaseGrant", wire.LeaseGrantRequest(TTL=seconds), wire.LeaseGrantResponse
        )
        return answer.ID

    async def renew(self, lease: int) -> bool:
        """See `Etcd.renew`."""
        answer: wire.LeaseKeepAliveResponse = await self._repeated(
            "Lease/LeaseKeepAlive", wire.LeaseKeepAliveRequest(ID=lease), wire.LeaseKeepAliveResponse
        )
        return answer.TTL > 0

    async def revoke(self, lease: int) -> None:
        """See `Etcd.revoke`."""
        try:
            await self._repeated("Lease/LeaseRevoke", wire.LeaseRevokeRequest(ID=lease), wire.LeaseRevokeResponse)
        except LeaseEndedError:
            return

    async def status(self, endpoint: str) -> EndpointStatus:
        """What ``endpoint`` says of itself. Raises `MetaStoreError`."""
        _, metadata = await self._admitted()
        connection = await self._endpoints.connected_to(endpoint)
        try:
            said = await self._send(
                connection, "Maintenance/Status", wire.StatusRequest(), wire.StatusResponse, metadata
            )
        except (OutcomeUnknownError, TokenRefusedError) as error:
            raise MetaStoreUnavailableError(str(error)) from error
        header = said.header
        return EndpointStatus(
            said.version,
            header.member_id,
            said.leader,
            said.raftTerm,
            header.revision,
            said.dbSize,
            said.dbSizeInUse,
            tuple(said.errors),
        )

    async def close(self) -> None:
        """See `Etcd.close`."""
        await self._endpoints.close()

    async def _once(self, method: str, request: Any, answer: type[T]) -> T:
        """Sent to one endpoint, and again only if that did not let it in. Raises `OutcomeUnknownError`."""
        for attempt in range(ATTEMPTS):
            connection, metadata = await self._within_deadline(method, self._admitted())
            try:
                return await self._send(connection, method, request, answer, metadata)
            except TokenRefusedError:
                self._token = None
                self.stats.retries += 1
                await self._runtime.back_off(attempt)
            except OutcomeUnknownError:
                self._endpoints.leave(connection)
                raise
        raise MetaStoreUnavailableError(f"the etcd refused {ATTEMPTS} new tokens")

    async def _repeated(self, method: str, request: Any, answer: type[T]) -> T:
        """Sent until it is answered, to one endpoint after another."""
        return await self._within_deadline(method, self._until_answered(method, request, answer))

    async def _until_answered(self, method: str, request: Any, answer: type[T]) -> T:
        cause: Exception | None = None
        for attempt in range(ATTEMPTS):
            if attempt:
                self.stats.retries += 1
                await self._runtime.back_off(attempt - 1)
            try:
                connection, metadata = await self._admitted()
            except MetaStoreUnavailableError as error:
                cause = error
                continue
            try:
                return await self._send(connection, method, request, answer, metadata)
            except TokenRefusedError as error:
                self._token, cause = None, error
            except MetaStoreUnavailableError as error:
                cause = error
            except OutcomeUnknownError as error:
                self._endpoints.leave(connection)
                cause = error
        raise MetaStoreUnavailableError(f"{method} of the etcd failed {ATTEMPTS} times: {cause}") from cause

    async def _within_deadline(self, method: str, work: Coroutine[Any, Any, T]) -> T:
        try:
            async with asyncio.timeout(self._runtime.deadline):
                return await work
        except TimeoutError as error:
            raise MetaStoreUnavailableError(
                f"{method} of the etcd was not answered within {self._runtime.deadline:g} s"
            ) from error

    async def _admitted(self) -> tuple[Connection, Metadata]:
        """A connection, and what says who asks, if the etcd wants to know. Raises `MetaStoreError`."""
        connection, access = await self._endpoints.connected(), self._access
        if access.user is None:
            return connection, ()
        if self._token is None:
            request = wire.AuthenticateRequest(name=access.user, password=access.password or "")
            try:
                said = await self._send(connection, "Auth/Authenticate", request, wire.AuthenticateResponse, ())
            except OutcomeUnknownError as error:
                self._endpoints.leave(connection)
                raise MetaStoreUnavailableError(str(error)) from error
            self._token = said.token
        return connection, (("token", self._token),)

    async def _send(self, connection: Connection, method: str, request: Any, answer: type[T], metadata: Metadata) -> T:
        try:
            return await _call(connection, method, request, answer, metadata, self._runtime.request_timeout)
        except grpc.aio.AioRpcError as error:
            raise translate(error, connection.where) from error


async def _call(
    connection: Connection,
    method: str,
    request: Any,
    answer: type[T],
    metadata: Metadata,
    timeout: float,
) -> T:
    path = f"/etcdserverpb.{method}"
    serialize, parse = type(request).SerializeToString, answer.FromString  # type: ignore[attr-defined]
    if method == "Lease/LeaseKeepAlive":
        stream = connection.channel.stream_stream(path, serialize, parse)(timeout=timeout, metadata=metadata)
        try:
            await stream.write(request)
            async for found in stream:
                first: T = found
                return first
        finally:
            stream.cancel()
        raise OutcomeUnknownError(f"etcd at {connection.where} did not answer")
    call = connection.channel.unary_unary(path, serialize, parse)
    result: T = await call(request, timeout=timeout, metadata=metadata)
    return result
