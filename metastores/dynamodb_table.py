"""One DynamoDB table: a shared lazy client, retries of our own, errors translated at the edge.

Invariant: the SDK sends every request once (its retries are off, and the HTTP client never repeats a POST), so
the sender of a conditional write knows what may have happened to it. What this module repeats by itself is:

* reads, listings and unconditional writes, after any error that may pass;
* conditional writes only after an answer that certainly refused them unjudged: throttling, a concurrent write in
  another region, a connection that was never made.

What kind of table it is, is asked of the control plane, which may be down while the table works. So it is asked once,
and nothing but the creation of a database waits for the answer.

Credentials come from the SDK's own environment and profiles; they appear in no message and no traceback of ours
(`metastores.redaction`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urlsplit

from metastores.aws_credentials import is_failed_refresh
from metastores.dynamodb_errors import (
    ConditionFailedError,
    RequestRefusedError,
    ThrottledError,
    WriteConflictError,
    package_missing,
    sdk_failures,
    translate,
)
from metastores.dynamodb_kind import TableKind, TableRefusedError, check_schema, kind_of, refuse_legacy
from metastores.errors import MetaStoreError, MetaStoreInvalidError, MetaStoreUnavailableError
from metastores.object_store_errors import OutcomeUnknownError
from metastores.redaction import sdk_error
from metastores.runtime import MetaRuntime
from metastores.stats import MetaStats

logger = logging.getLogger(__name__)

ATTEMPTS = 8
CONNECT_TIMEOUT_S = 3.0
CONNECTIONS = 32
NO_REGION = "needs a region: name it with ?region=... in the metastore's URL or --region, or set AWS_REGION"
Json = Mapping[str, Any]
_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}\Z")


def check_table_name(table: str) -> None:
    """Raise `MetaStoreInvalidError` for a name that no DynamoDB table has."""
    if not _NAME.match(table):
        raise MetaStoreInvalidError("a DynamoDB table's name has 3 to 255 letters, digits, '_', '-' and '.'")


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
        client_in: Callable[[str], Any] | None = None,
    ) -> None:
        """``client``, ``client_in``: clients to use instead of the SDK's, here and in another region."""
        self.table = table
        self.runtime = MetaRuntime() if runtime is None else runtime
        self._region = region
        self._endpoint_url = endpoint_url
        self._given_client = client
        self._client_in = client_in
        self._client: Any = None
        self._failures: tuple[type[Exception], ...] = ()
        self._stack: AsyncExitStack | None = None
        self._opening = asyncio.Lock()
        self._lives = 0
        self._kind: TableKind | None = None
        self._asking = asyncio.Lock()
        self._verifying: asyncio.Task[None] | None = None
        self._refusal: TableRefusedError | None = None
        self._replicas: dict[str, DynamoTable] = {}

    def __repr__(self) -> str:
        return f"DynamoTable({self.table!r}, region={self._region!r}, endpoint_url={self._endpoint_url!r})"

    async def region(self) -> str:
        """The region the client talks to."""
        return str((await self._connected()).meta.region_name)

    async def in_region(self, region: str) -> DynamoTable:
        """The same table as the replica in ``region`` has it. It is closed with this one."""
        here = await self.region()
        if region == here:
            return self
        if region not in self._replicas:
            self._replicas[region] = DynamoTable(
                self.table,
                region=region,
                endpoint_url=None if self._endpoint_url is None else self._endpoint_url.replace(here, region),
                runtime=self.runtime,
                client=None if self._client_in is None else self._client_in(region),
            )
        return self._replicas[region]

    @property
    def known_kind(self) -> TableKind | None:
        """What `kind` would say, if it was asked already. Raises `TableRefusedError` if that was found meanwhile."""
        if self._refusal is not None:
            raise TableRefusedError(str(self._refusal))
        return self._kind

    async def kind(self) -> TableKind:
        """What a condition on this table excludes. Asked once. Checks that the table has the keys we need, and raises
        `TableRefusedError` for one whose conditions exclude nobody and that keeps no home."""
        async with self._asking:
            if self._kind is None:
                description = (await self.call("describe_table", TableName=self.table))["Table"]
                check_schema(self.table, description)
                kind = kind_of(self.table, description)
                if kind is TableKind.SINGLE and await self._is_legacy():
                    refuse_legacy(self.table)
                self._kind = kind
            return self._kind

    def verify_kind(self) -> None:
        """See to it that `known_kind` comes to say what `kind` does, without waiting for that."""
        if self._kind is None and self._verifying is None:
            self._verifying = asyncio.get_running_loop().create_task(self._verify_kind(), name="slate/dynamodb kind")

    async def _verify_kind(self) -> None:
        try:
            await self.kind()
        except TableRefusedError as error:
            self._refusal = error
        except MetaStoreUnavailableError as error:
            logger.info("the kind of DynamoDB table %s is not known yet: %s", self.table, error)
            self._verifying = None  # the next write asks again
        except MetaStoreError as error:
            logger.warning("the kind of DynamoDB table %s cannot be verified: %s", self.table, error)

    async def _is_legacy(self) -> bool:
        """Whether it is a global table of version 2017.11.29, which only this request knows."""
        endpoint = getattr((await self._connected()).meta, "endpoint_url", None)
        known_service = endpoint is None or ".amazonaws.com" in endpoint or ".api.aws" in endpoint
        try:
            await self.call(
                "describe_global_table", attempts=ATTEMPTS if known_service else 1, GlobalTableName=self.table
            )
        except RequestRefusedError as error:
            if error.code in ("GlobalTableNotFoundException", "UnknownOperationException"):
                return False
            raise
        except MetaStoreUnavailableError:
            if known_service:
                raise
            return False  # an emulator that has no such request
        return True

    async def call(
        self, operation: str, stats: MetaStats | None = None, /, *, attempts: int = ATTEMPTS, **arguments: Any
    ) -> Json:
        """A read or an unconditional write, repeated until it is answered; repetitions are counted in ``stats``.
        Raises `MetaStoreError`."""
        again = (OutcomeUnknownError, MetaStoreUnavailableError)
        try:
            async with asyncio.timeout(self.runtime.deadline):
                return await self._repeated(operation, arguments, again, stats, attempts)
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
        self,
        operation: str,
        arguments: Json,
        again: tuple[type[Exception], ...],
        stats: MetaStats | None,
        attempts: int = ATTEMPTS,
    ) -> Json:
        """Send until something else than ``again`` comes of it, so many times at most, or `close` ends it."""
        stats = MetaStats() if stats is None else stats
        cause: Exception | None = None
        life = self._lives
        for attempt in range(attempts):
            if attempt:
                stats.retries += 1
                await self.runtime.back_off(attempt - 1)
                if life != self._lives:
                    raise MetaStoreInvalidError(f"{operation} on {self.table}: the client was closed") from cause
            try:
                return await self._send(operation, arguments)
            except again as error:
                stats.throttles += isinstance(error, ThrottledError)
                stats.write_conflicts += isinstance(error, WriteConflictError)
                cause = error
        raise MetaStoreUnavailableError(f"{operation} on {self.table} failed {attempts} times: {cause}") from cause

    async def close(self) -> None:
        """Close the client, and those of other regions. Requests that wait to be repeated are not; a new one connects
        again. Idempotent."""
        self._lives += 1
        verifying, self._verifying = self._verifying, None
        if verifying is not None:
            verifying.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await verifying
        for replica in self._replicas.values():
            await replica.close()
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
            _ = urlsplit(client.meta.endpoint_url).port  # the SDK looks at it when it signs a request
        except (BotoCoreError, ValueError) as error:
            await stack.aclose()
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
        except RuntimeError as error:
            if not is_failed_refresh(error):
                raise
            failure = translate(error, self.table)
            cause = sdk_error(error)
        raise failure from cause  # out here, or the SDK's exception would be its context
