"""One DynamoDB table: a shared lazy client, retries of our own, errors translated at the edge.

Invariant: the SDK sends every request once (its retries are off, and the HTTP client never repeats a POST), so
whoever sends a conditional write knows what may have happened to it. What this module repeats by itself is:

* reads, listings and unconditional writes, after any error that may pass;
* conditional writes only after an answer that certainly refused them unjudged: throttling, a concurrent write in
  another region, a connection that was never made.

Credentials come from the SDK's own environment and profiles; they appear in no message and no traceback of ours
(`metastores.redaction`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

from metastores.dynamodb_failures import (
    ConditionFailedError,
    ThrottledError,
    package_missing,
    sdk_failures,
    translate,
)
from metastores.errors import MetaStoreInvalidError, MetaStoreUnavailableError
from metastores.failures import OutcomeUnknownError
from metastores.redaction import sdk_error
from metastores.runtime import MetaRuntime
from metastores.stats import MetaStats

ATTEMPTS = 8
CONNECT_TIMEOUT_S = 3.0
CONNECTIONS = 32
NO_REGION = "needs a region: name it with ?region=... in the metastore's URL or --region, or set AWS_REGION"
Json = Mapping[str, Any]


class DynamoTable:
    """A table and the client it is reached through. One per factory, used from one event loop."""

    def __init__(
        self,
        table: str,
        *,
        region: str | None = None,
        endpoint_url: str | None = None,
        runtime: MetaRuntime | None = None,
        client: Any = None,
    ) -> None:
        self.table = table
        self.runtime = MetaRuntime() if runtime is None else runtime
        self._region = region
        self._endpoint_url = endpoint_url
        self._given_client = client
        self._client: Any = None
        self._failures: tuple[type[Exception], ...] = ()
        self._stack: AsyncExitStack | None = None
        self._opening = asyncio.Lock()
        self._eventual: bool | None = None

    def __repr__(self) -> str:
        return f"DynamoTable({self.table!r}, region={self._region!r}, endpoint_url={self._endpoint_url!r})"

    async def region(self) -> str:
        """The region the client talks to."""
        return str((await self._connected()).meta.region_name)

    async def is_eventual(self) -> bool:
        """Whether the table is an eventually consistent global table: its conditions are tested on the local replica
        only, so they exclude nobody in another region. Asked once. Checks that the table has the keys we need."""
        if self._eventual is None:
            description = (await self.call("describe_table", TableName=self.table))["Table"]
            check_schema(self.table, description)
            self._eventual = bool(description.get("Replicas")) and description.get("MultiRegionConsistency") != "STRONG"
        return self._eventual

    async def call(self, operation: str, stats: MetaStats | None = None, /, **arguments: Any) -> Json:
        """A read or an unconditional write, repeated until it is answered; repetitions are counted in ``stats``.
        Raises `MetaStoreError`."""
        again = (OutcomeUnknownError, MetaStoreUnavailableError)
        try:
            async with asyncio.timeout(self.runtime.deadline):
                return await self._repeated(operation, arguments, again, stats)
        except TimeoutError as error:
            cause = sdk_error(error)
        raise MetaStoreUnavailableError(
            f"{operation} on {self.table} was not answered within {self.runtime.deadline:g} s"
        ) from cause

    async def put_if(self, item: Json, condition: Json, stats: MetaStats | None = None) -> bool:
        """A conditional put; ``False`` when its condition does not hold. Raises `OutcomeUnknownError` if it may have
        been applied, `MetaStoreError` if it certainly was not."""
        arguments = {"TableName": self.table, "Item": item, **condition}
        try:
            await self._repeated("put_item", arguments, (MetaStoreUnavailableError,), stats)
        except ConditionFailedError:
            return False
        return True

    async def _repeated(
        self, operation: str, arguments: Json, again: tuple[type[Exception], ...], stats: MetaStats | None
    ) -> Json:
        """Send until something else than ``again`` comes of it, at most `ATTEMPTS` times."""
        stats = MetaStats() if stats is None else stats
        cause: Exception | None = None
        for attempt in range(ATTEMPTS):
            if attempt:
                stats.retries += 1
                await self.runtime.back_off(attempt - 1)
            try:
                return await self._send(operation, arguments)
            except again as error:
                stats.throttles += isinstance(error, ThrottledError)
                cause = error
        raise MetaStoreUnavailableError(f"{operation} on {self.table} failed {ATTEMPTS} times: {cause}") from cause

    async def close(self) -> None:
        """Close the client. Idempotent."""
        async with self._opening:
            stack, self._stack, self._client = self._stack, None, None
            if stack is not None:
                await stack.aclose()

    async def _connected(self) -> Any:
        if self._client is None:
            async with self._opening:
                if self._client is None:
                    self._failures = sdk_failures()
                    self._client = self._given_client or await self._connect()
        return self._client

    async def _connect(self) -> Any:
        try:
            import aioboto3  # noqa: PLC0415 - optional package
            from botocore.config import Config  # noqa: PLC0415 - optional package
            from botocore.exceptions import BotoCoreError, NoRegionError  # noqa: PLC0415 - optional package
        except ImportError as error:
            raise package_missing() from error
        config = Config(
            retries={"total_max_attempts": 1, "mode": "standard"},
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=self.runtime.request_timeout,
            max_pool_connections=CONNECTIONS,
        )
        stack = AsyncExitStack()
        session = aioboto3.Session()
        region = self._region or os.environ.get("AWS_REGION") or None  # the SDK itself reads only AWS_DEFAULT_REGION
        try:
            client = await stack.enter_async_context(
                session.client("dynamodb", region_name=region, endpoint_url=self._endpoint_url, config=config)
            )
        except (BotoCoreError, ValueError) as error:
            cause = sdk_error(error)
            said = NO_REGION if isinstance(error, NoRegionError) else f"cannot be reached as configured: {cause}"
        else:
            self._stack = stack
            return client
        raise MetaStoreInvalidError(f"DynamoDB table {self.table} {said}") from cause

    async def _send(self, operation: str, arguments: Json) -> Json:
        client = await self._connected()
        method: Callable[..., Awaitable[Json]] = getattr(client, operation)
        try:
            async with asyncio.timeout(self.runtime.request_timeout):
                return await method(**arguments)
        except self._failures as error:
            failure = translate(error, self.table)
            cause = sdk_error(error)
        raise failure from cause  # out here, or the SDK's exception would be its context


def check_schema(table: str, description: Json) -> None:
    """Raise `MetaStoreInvalidError` unless the described table has hash key ``name`` and range key ``item``."""
    keys = {key["AttributeName"]: key["KeyType"] for key in description.get("KeySchema", ())}
    if keys != {"name": "HASH", "item": "RANGE"}:
        raise MetaStoreInvalidError(
            f"DynamoDB table {table!r} exists with other keys; a metastore needs hash key 'name' and range key 'item'"
        )
