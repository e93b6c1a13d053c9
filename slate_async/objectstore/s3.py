"""S3 through ``aiobotocore``: the pure-Python path, for credentials and proxies only botocore knows.

Conditional writes are sent exactly once. Three layers could resend: botocore's retries (off), the HTTP client's
resend of idempotent methods after a dropped connection (`SingleSendSession` turns the drop into an error aiohttp
does not resend on), and `RetryingStore` (which lets conditional puts through once). One session and one client live
as long as the store; the client's data files are read on a worker thread.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp
from aiobotocore.config import AioConfig
from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.session import AioSession
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConfigNotFound,
    ConfigParseError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
)

from metastores.aws_credentials import is_failed_refresh
from metastores.redaction import redacted, sdk_error
from slate_async.errors import ClosedError, ConfigError, InvalidError, SlateError, UnavailableError
from slate_async.objectstore.bodies import parts_of
from slate_async.objectstore.http_errors import SET_CREDENTIALS, no_answer, no_credentials, refused
from slate_async.objectstore.keys import check_key, check_listing, check_metadata, check_range
from slate_async.objectstore.protocol import (
    OVERWRITE,
    ByteRange,
    Create,
    GetResult,
    Match,
    ObjectInfo,
    PutMode,
    Span,
    Suffix,
)
from slate_async.runtime.protocol import Runtime
from slate_async.types import Buffer

T = TypeVar("T")

PAGE_KEYS = 1000
DELETE_BATCH_KEYS = 1000
MAX_CAUSES = 8
_WRONG_SETUP = (ConfigNotFound, ConfigParseError, NoRegionError, ParamValidationError, ValueError)
_TOTAL = re.compile(r"bytes (\d+)-\d+/(\d+)\Z")


class ConnectionDropped(aiohttp.ClientPayloadError):
    """The connection ended before the answer; whether the request ran is unknown."""


async def _single_send(
    request: aiohttp.ClientRequest, handler: Callable[[aiohttp.ClientRequest], Awaitable[aiohttp.ClientResponse]]
) -> aiohttp.ClientResponse:
    """aiohttp sends an idempotent request again after these two errors; after this one it does not."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise  # never connected, never sent; not resent either
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise ConnectionDropped(f"{type(error).__name__} before an answer") from error


class SingleSendSession(AIOHTTPSession):  # type: ignore[misc]
    """botocore's HTTP session over aiohttp, sending each request once."""

    async def _get_session(self, proxy_url: str | None) -> aiohttp.ClientSession:
        session: aiohttp.ClientSession | None = self._sessions.get(proxy_url)
        if session is None:
            session = await self._exit_stack.enter_async_context(
                aiohttp.ClientSession(
                    connector=self._create_connector(proxy_url),
                    timeout=self._timeout,
                    skip_auto_headers={"CONTENT-TYPE"},
                    auto_decompress=False,
                    middlewares=(_single_send,),
                )
            )
            self._sessions[proxy_url] = session
        return session


@dataclass(frozen=True, slots=True)
class S3ClientSettings:
    """How the HTTP client behaves. Times are seconds; ``connections`` is the size of its pool."""

    connections: int = 64
    connect_timeout: float = 5.0
    read_timeout: float = 86_400.0
    """Not the limit of a request: that is `RetryPolicy.request_timeout`, in one place for all backends."""


class AiobotocoreS3Store:
    """The objects of one bucket. Credentials come from botocore's chain: environment, profiles, roles."""

    def __init__(
        self,
        bucket: str,
        runtime: Runtime,
        *,
        endpoint_url: str | None = None,
        region: str | None = None,
        settings: S3ClientSettings | None = None,
    ) -> None:
        self._bucket = bucket
        self._runtime = runtime
        self._endpoint_url = endpoint_url
        self._region = region
        self._settings = settings or S3ClientSettings()
        self._lock = asyncio.Lock()
        self._exit = AsyncExitStack()
        self._client: Any = None
        self._closed = False

    def __repr__(self) -> str:
        return f"AiobotocoreS3Store({'s3://' + self._bucket!r})"

    async def _connected(self) -> Any:
        if self._closed:
            raise ClosedError(f"{self!r} is closed", outcome="not_applied")
        if self._client is None:
            async with self._lock:
                if self._closed:  # meanwhile
                    raise ClosedError(f"{self!r} is closed", outcome="not_applied")
                if self._client is None:
                    self._client = await self._connect()
        return self._client

    async def _connect(self) -> Any:
        session = AioSession()
        loader = session.get_component("data_loader")
        await self._runtime.offload.run(lambda: loader.load_service_model("s3", "service-2"))
        config = AioConfig(
            max_pool_connections=self._settings.connections,
            connect_timeout=self._settings.connect_timeout,
            read_timeout=self._settings.read_timeout,
            retries={"total_max_attempts": 1},
            http_session_cls=SingleSendSession,
            s3={"addressing_style": "path"} if self._endpoint_url else None,
        )
        context = session.create_client("s3", endpoint_url=self._endpoint_url, region_name=self._region, config=config)
        client = await self._exit.enter_async_context(context)
        client.meta.events.register("before-send.s3", _without_expect)
        return client

    async def _send(self, key: str, mode: PutMode | None, call: Callable[[Any], Awaitable[T]]) -> T:
        """One request; the SDK's error, if any, is translated and kept out of the traceback."""
        try:
            return await call(await self._connected())
        except (BotoCoreError, ClientError, aiohttp.ClientError, OSError, ValueError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not is_failed_refresh(error):
                raise
            failure = _translated(error, key, mode, self._place())
            cause = sdk_error(error, str(error))
        raise failure from cause

    def _place(self) -> str:
        endpoint = self._endpoint_url or (None if self._client is None else self._client.meta.endpoint_url)
        return f"s3://{self._bucket}" + (f" at {endpoint}" if endpoint else "")

    async def put(
        self,
        key: str,
        data: Buffer | Sequence[Buffer],
        *,
        mode: PutMode = OVERWRITE,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        """Write an object and return its etag."""
        check_key(key)
        parts = parts_of(data)
        body = parts[0]
        if len(parts) > 1 or not isinstance(body, bytes):
            body = await self._runtime.offload.run(lambda: b"".join(parts))
        arguments: dict[str, Any] = {"Bucket": self._bucket, "Key": key, "Body": body}
        if metadata:
            arguments["Metadata"] = check_metadata(metadata)
        if isinstance(mode, Create):
            arguments["IfNoneMatch"] = "*"
        elif isinstance(mode, Match):
            arguments["IfMatch"] = mode.etag
        answer = await self._send(key, mode, lambda client: client.put_object(**arguments))
        return str(answer["ETag"])

    async def get(self, key: str, byte_range: ByteRange | None = None) -> GetResult:
        """Read an object or a part of it."""
        check_key(key)
        check_range(byte_range)
        arguments = {"Bucket": self._bucket, "Key": key}
        if isinstance(byte_range, Span):
            arguments["Range"] = f"bytes={byte_range.offset}-{byte_range.offset + byte_range.length - 1}"
        elif isinstance(byte_range, Suffix):
            arguments["Range"] = f"bytes=-{byte_range.length}"

        async def read(client: Any) -> tuple[dict[str, Any], bytes]:
            answer = await client.get_object(**arguments)
            async with answer["Body"] as stream:
                return answer, await stream.read()

        try:
            answer, data = await self._send(key, None, read)
        except InvalidError:
            if not isinstance(byte_range, Suffix):
                raise
            info = await self.head(key)  # a suffix of an empty object cannot be satisfied over HTTP
            if info.size:
                raise
            return GetResult(info, b"", 0)
        return _checked(key, byte_range, answer, data)

    async def head(self, key: str) -> ObjectInfo:
        """What is known of an object without its bytes."""
        check_key(key)
        answer = await self._send(key, None, lambda client: client.head_object(Bucket=self._bucket, Key=key))
        return _info(key, answer, answer["ContentLength"])

    async def list(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """Objects whose key starts with ``prefix`` and is greater than ``start_after``, in byte order."""
        check_listing(prefix, start_after)
        arguments: dict[str, Any] = {"Bucket": self._bucket, "Prefix": prefix, "MaxKeys": PAGE_KEYS}
        if start_after:
            arguments["StartAfter"] = start_after
        last = start_after
        more = True
        while more:
            page = await self._send(prefix, None, lambda client: client.list_objects_v2(**arguments))
            for found in page.get("Contents", ()):
                key = found["Key"]
                if key <= last:
                    raise ConfigError(f"{self!r} does not list keys in byte order: {key!r} came after {last!r}")
                last = key
                modified = int(found["LastModified"].timestamp() * 1000)
                yield ObjectInfo(key, found["Size"], found["ETag"], modified)
            more = page["IsTruncated"]
            arguments["ContinuationToken"] = page.get("NextContinuationToken")

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; missing ones are no error."""
        names = [check_key(key) for key in keys]
        for first in range(0, len(names), DELETE_BATCH_KEYS):
            batch = [{"Key": name} for name in names[first : first + DELETE_BATCH_KEYS]]
            order = {"Objects": batch, "Quiet": True}
            answer = await self._send(
                batch[0]["Key"],
                None,
                lambda client, order=order: client.delete_objects(  # type: ignore[misc]
                    Bucket=self._bucket, Delete=order
                ),
            )
            for failed in answer.get("Errors", ()):
                if failed.get("Code") != "NoSuchKey":
                    raise _not_deleted(failed, self._place())

    async def close(self) -> None:
        """Close the client and its connections. Idempotent."""
        self._closed = True
        async with self._lock:  # a client that is being made is closed, too
            self._client = None
            await self._exit.aclose()


def _without_expect(request: Any, **_: Any) -> None:
    """Do not ask before sending a body: the question costs a round trip on every put."""
    if "Expect" in request.headers:
        del request.headers["Expect"]


def _checked(key: str, byte_range: ByteRange | None, answer: Mapping[str, Any], data: bytes) -> GetResult:
    """The answer to a read, held against what was asked for."""
    if len(data) != answer["ContentLength"]:
        raise UnavailableError(f"{key!r}: the store sent {len(data)} of {answer['ContentLength']} bytes")
    place = _TOTAL.match(answer.get("ContentRange", ""))
    if place is None:
        if isinstance(byte_range, Span):
            raise UnavailableError(f"{key!r}: the store ignored the range asked for")
        size = len(data)
        start = 0 if byte_range is None else max(0, size - byte_range.length)
        return GetResult(_info(key, answer, size), data[start:], start)
    start, size = int(place[1]), int(place[2])
    if isinstance(byte_range, Span) and start != byte_range.offset:
        raise UnavailableError(f"{key!r}: the store sent another range than the one asked for")
    return GetResult(_info(key, answer, size), data, start)


def _info(key: str, answer: Mapping[str, Any], size: int) -> ObjectInfo:
    modified = int(answer["LastModified"].timestamp() * 1000)
    return ObjectInfo(key, size, answer["ETag"], modified, dict(answer.get("Metadata", {})))


def _not_deleted(failed: Mapping[str, Any], place: str) -> SlateError:
    code, said = str(failed.get("Code", "")), str(failed.get("Message", ""))
    status = {"AccessDenied": 403, "NoSuchBucket": 404}.get(code, 500)
    return refused(status, code, said, key=failed["Key"], mode=None, place=place)


def _translated(error: BaseException, key: str, mode: PutMode | None, place: str) -> SlateError:
    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
        said = error.response.get("Error", {})
        code, message = str(said.get("Code", "")), str(said.get("Message", ""))
        return refused(status, code, message, key=key, mode=mode, place=place)
    if isinstance(error, NoCredentialsError):
        return no_credentials("s3", place)
    if isinstance(error, (PartialCredentialsError, ProfileNotFound)):
        return ConfigError(f"{redacted(str(error))}; {SET_CREDENTIALS['s3']}", outcome="not_applied")
    if isinstance(error, _WRONG_SETUP):
        return ConfigError(f"{redacted(str(error))}; check the AWS_* environment and profile", outcome="not_applied")
    sent = not _never_connected(error) and not is_failed_refresh(error)
    return no_answer(_chain(error), key=key, mode=mode, sent=sent, place=place)


def _chain(error: BaseException) -> str:
    """What the error and those it came from say, the first first."""
    said: list[str] = []
    met: BaseException | None = error
    for _ in range(MAX_CAUSES):
        if met is None:
            break
        said.append(str(met))
        if isinstance(met, OSError) and met.errno is not None and met.errno > 0:
            said.append(os.strerror(met.errno))
        inner = getattr(met, "kwargs", {}).get("error") or getattr(met, "os_error", None)
        met = inner if isinstance(inner, BaseException) else met.__cause__ or met.__context__
    return "; ".join(said)


def _never_connected(error: BaseException) -> bool:
    """Whether the request certainly never left: no connection was made for it."""
    inner = getattr(error, "kwargs", {}).get("error")
    return isinstance(error, ConnectTimeoutError) or (
        isinstance(error, EndpointConnectionError) and isinstance(inner, aiohttp.ClientConnectorError)
    )
