"""One DynamoDB table: a shared lazy client, retries of our own, errors translated at the edge.

Invariant: the SDK sends every request once (its retries are off, and the HTTP client never repeats a POST), so
whoever sends a conditional write knows what may have happened to it. What this module repeats by itself is:

* reads, listings and unconditional writes, after any error that may pass;
* conditional writes only after an answer that certainly refused them unjudged: throttling, a concurrent write in
  another region, a connection that was never made.

Credentials come from the SDK's own environment and profiles; they appear in no message of ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

from metastores.errors import MetaStoreError, MetaStoreInvalidError, MetaStoreUnavailableError
from metastores.failures import OutcomeUnknownError
from metastores.runtime import MetaRuntime

ATTEMPTS = 8
CONNECT_TIMEOUT_S = 3.0
CONNECTIONS = 32
THROTTLED = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "ThrottlingException",
        "Throttling",
        "RequestLimitExceeded",
        "ReplicatedWriteConflictException",
    }
)
"""Answers that say the write was not applied and may be sent again."""

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

    async def call(self, operation: str, **arguments: Any) -> Json:
        """A read or an unconditional write, repeated until it is answered. Raises `MetaStoreError`."""
        try:
            async with asyncio.timeout(self.runtime.deadline):
                return await self._repeated(operation, arguments)
        except TimeoutError as error:
            raise MetaStoreUnavailableError(
                f"{operation} on {self.table} was not answered within {self.runtime.deadline:g} s"
            ) from error

    async def _repeated(self, operation: str, arguments: Json) -> Json:
        cause: Exception | None = None
        for attempt in range(ATTEMPTS):
            if attempt:
                await self.runtime.back_off(attempt - 1)
            try:
                return await self._send(operation, arguments)
            except MetaStoreInvalidError:
                raise
            except (OutcomeUnknownError, MetaStoreUnavailableError) as error:
                cause = error
        raise MetaStoreUnavailableError(f"{operation} on {self.table} failed {ATTEMPTS} times: {cause}") from cause

    async def put_if(self, item: Json, condition: Json) -> bool:
        """A conditional put; ``False`` when its condition does not hold. Raises `OutcomeUnknownError` if it may have
        been applied, `MetaStoreError` if it certainly was not."""
        for attempt in range(ATTEMPTS):
            if attempt:
                await self.runtime.back_off(attempt - 1)
            try:
                await self._send("put_item", {"TableName": self.table, "Item": item, **condition})
            except ConditionFailedError:
                return False
            except MetaStoreUnavailableError:
                if attempt == ATTEMPTS - 1:
                    raise
            else:
                return True
        raise MetaStoreUnavailableError(f"a conditional put on {self.table} was not accepted")

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
                    self._client = self._given_client or await self._connect()
        return self._client

    async def _connect(self) -> Any:
        try:
            import aioboto3  # noqa: PLC0415 - optional package
            from botocore.config import Config  # noqa: PLC0415 - optional package
            from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - optional package
        except ImportError as error:
            raise MetaStoreInvalidError(
                "metastore 'dynamodb://' needs the package aioboto3: pip install 'slate-async[dynamodb]'"
            ) from error
        config = Config(
            retries={"total_max_attempts": 1, "mode": "standard"},
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=self.runtime.request_timeout,
            max_pool_connections=CONNECTIONS,
        )
        stack = AsyncExitStack()
        try:
            client = await stack.enter_async_context(
                aioboto3.Session().client(
                    "dynamodb", region_name=self._region, endpoint_url=self._endpoint_url, config=config
                )
            )
        except (BotoCoreError, ValueError) as error:
            raise MetaStoreInvalidError(f"DynamoDB cannot be reached as configured: {error}") from error
        self._stack = stack
        return client

    async def _send(self, operation: str, arguments: Json) -> Json:
        client = await self._connected()
        method: Callable[..., Awaitable[Json]] = getattr(client, operation)
        try:
            async with asyncio.timeout(self.runtime.request_timeout):
                return await method(**arguments)
        except Exception as error:
            raise translate(error, self.table) from error


class ConditionFailedError(Exception):
    """The condition of a write does not hold; nothing was written."""


def translate(error: Exception, table: str) -> MetaStoreError | OutcomeUnknownError | ConditionFailedError:
    """What an SDK error means for the request that met it: `MetaStoreError` says that it certainly was not applied."""
    if isinstance(error, MetaStoreError):
        return error
    response = getattr(error, "response", None)
    if not isinstance(response, Mapping):
        return _without_answer(error, table)
    code = str(response.get("Error", {}).get("Code", ""))
    message = str(response.get("Error", {}).get("Message", ""))
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) or 0)
    if code == "ConditionalCheckFailedException":
        return ConditionFailedError(message)
    if code in THROTTLED:
        return MetaStoreUnavailableError(f"DynamoDB table {table} is throttled: {code}")
    if code == "ResourceNotFoundException":
        return MetaStoreInvalidError(
            f"there is no DynamoDB table {table!r}: create it with `slate admin create-table` or"
            " DynamoDBMetaStore.create_table"
        )
    if "Signature" in code or "Token" in code:
        message = "check the credentials"  # the answer quotes the signed request, a session's token included
    if 400 <= status < 500:
        return MetaStoreInvalidError(f"DynamoDB table {table} refused the request: {code}: {message}")
    return OutcomeUnknownError(f"DynamoDB table {table} answered {status} {code}")


def _without_answer(error: Exception, table: str) -> MetaStoreError | OutcomeUnknownError:
    kind = type(error).__name__
    what = f"DynamoDB table {table}: {kind}: {error}"
    if kind in ("NoCredentialsError", "PartialCredentialsError", "NoRegionError", "ParamValidationError"):
        return MetaStoreInvalidError(what)
    below = type(getattr(error, "kwargs", {}).get("error")).__name__
    if kind == "ConnectTimeoutError" or (kind == "EndpointConnectionError" and below.startswith("ClientConnector")):
        return MetaStoreUnavailableError(what)
    return OutcomeUnknownError(what)


def check_schema(table: str, description: Json) -> None:
    """Raise `MetaStoreInvalidError` unless the described table has hash key ``name`` and range key ``item``."""
    keys = {key["AttributeName"]: key["KeyType"] for key in description.get("KeySchema", ())}
    if keys != {"name": "HASH", "item": "RANGE"}:
        raise MetaStoreInvalidError(
            f"DynamoDB table {table!r} exists with other keys; a metastore needs hash key 'name' and range key 'item'"
        )
