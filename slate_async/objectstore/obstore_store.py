"""S3, Azure and GCS through ``obstore`` (the Rust ``object_store`` crate): the default data path.

Every request is sent once: the SDK's own retries are off, and `RetryingStore` repeats what may be repeated. What
differs between the services is a `Dialect`:

* Azure has no suffix ranges and no ``-`` in names of metadata; missing blobs fail a delete.
* GCS compares generations, not etags: a `Match` reads the generation of the object that carries the etag, then
  writes on condition of that generation. (There is no usable GCS server to test against here.)

Errors name statuses and codes, never an SDK's text as it is: that holds signed URLs and headers (see `failures`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from metastores.redaction import sdk_error
from slate_async.errors import ClosedError, ConfigError, InvalidError, SlateError, UnavailableError
from slate_async.objectstore.bodies import parts_of
from slate_async.objectstore.http_errors import no_answer, no_credentials, plain, refused
from slate_async.objectstore.keys import check_key, check_listing, check_metadata, check_range
from slate_async.objectstore.protocol import (
    OVERWRITE,
    ByteRange,
    Create,
    GetResult,
    Match,
    ObjectChangedError,
    ObjectInfo,
    ObjectNotFoundError,
    PutMode,
    Suffix,
)
from slate_async.runtime.foreign import completed_elsewhere
from slate_async.types import Buffer

T = TypeVar("T")

PAGE_KEYS = 1000
DELETE_BATCH_KEYS = 1000
DELETE_PARALLELISM = 32

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
_KIND = re.compile(r"kind: (\w+)")
_ORIGIN = re.compile(r"Error performing [A-Z]+ (https?://[^/\s]+)")
_METADATA_SERVICE = re.compile(r"://(169\.254\.|\[?fd00:ec2::|metadata\.google\.internal)")
_RESERVED_ATTRIBUTES = (
    "Content-Disposition",
    "Content-Encoding",
    "Content-Language",
    "Content-Type",
    "Cache-Control",
    "Storage-Class",
)


@dataclass(frozen=True, slots=True)
class Dialect:
    """What one service does in its own way."""

    name: str
    suffix_ranges: bool = True
    dashes_in_metadata: bool = True
    bulk_delete: bool = False
    match_by_generation: bool = False


S3 = Dialect("s3", bulk_delete=True)
AZURE = Dialect("az", suffix_ranges=False, dashes_in_metadata=False)
GCS = Dialect("gs", match_by_generation=True)


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """How the HTTP client behaves. Times are seconds; a pool keeps that many idle connections."""

    request_timeout: float = 60.0
    read_timeout: float = 20.0
    connect_timeout: float = 5.0
    idle_connections: int = 64

    def client_options(self, *, allow_http: bool) -> dict[str, Any]:
        """As obstore takes them."""
        return {
            "timeout": timedelta(seconds=self.request_timeout),
            "read_timeout": timedelta(seconds=self.read_timeout),
            "connect_timeout": timedelta(seconds=self.connect_timeout),
            "pool_idle_timeout": timedelta(seconds=15),
            "pool_max_idle_per_host": str(self.idle_connections),
            "allow_http": allow_http,
        }


SENT_ONCE: dict[str, Any] = {"max_retries": 0}
"""The retry configuration every obstore store here is made with."""


class ObstoreStore:
    """An `ObjectStore` over an obstore store, which ``connect`` makes at the first request (off the loop's path).

    ``connect`` must pass `SENT_ONCE` as ``retry_config``. ``display`` is the store's URL without credentials."""

    def __init__(self, connect: Callable[[], Awaitable[Any]], dialect: Dialect, display: str) -> None:
        self._connect = connect
        self._dialect = dialect
        self._display = display
        self._lock = asyncio.Lock()
        self._client: Any = None
        self._signed = False
        self._closed = False

    def __repr__(self) -> str:
        return f"ObstoreStore({self._display!r})"

    async def _connected(self) -> Any:
        if self._client is None:
            async with self._lock:
                if self._client is None:
                    self._refuse_closed()
                    client = await self._connect()
                    self._refuse_closed()  # it may have been meanwhile
                    self._client = client
        return self._client

    def _refuse_closed(self) -> None:
        if self._closed:
            raise ClosedError(f"{self!r} is closed", outcome="not_applied")

    async def _send(
        self, key: str, mode: PutMode | None, call: Callable[[Any, Any], Awaitable[T]], *, sends: bool = True
    ) -> T:
        """One request (none unless it ``sends``); the SDK's error, if any, is translated and kept out of the
        traceback."""
        client = await self._connected()
        sdk = _sdk()
        try:
            result = await call(sdk, client)
        except (sdk.exceptions.BaseError, OSError, ValueError) as error:
            failure = self._failure(error, key, mode)
            cause = sdk_error(error, _first_line(error))
        else:
            self._signed = self._signed or sends
            return result
        raise failure from cause

    def _failure(self, error: BaseException, key: str, mode: PutMode | None) -> SlateError:
        """What an SDK error means. Without keys in the environment the SDK asks the machine's metadata service; where
        that gave none yet there are none, later on it is merely out of order."""
        text = str(error)
        if _METADATA_SERVICE.search(text):
            status = _STATUS.search(text)
            if not self._signed and (status is None or int(status[1]) < 429):
                return no_credentials(self._dialect.name, self._display)
            place = f"the machine's metadata service, which has the credentials for {self._display},"
            return no_answer(text, key=key, mode=mode, sent=False, place=place)
        self._signed = self._signed or _STATUS.search(text) is not None
        origin = _ORIGIN.search(text)
        place = self._display if origin is None else f"{self._display} at {origin[1]}"
        return _translated(error, key, mode, place)

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
        attributes = self._attributes(check_metadata(metadata))
        parts = parts_of(data)
        body = parts[0] if len(parts) == 1 else parts
        condition: Any = "overwrite"
        if isinstance(mode, Create):
            condition = "create"
        elif isinstance(mode, Match):
            condition = await self._condition(key, mode)
        result = await self._send(
            key,
            mode,
            lambda sdk, client: completed_elsewhere(
                sdk.put_async(client, key, body, attributes=attributes, mode=condition, use_multipart=False)
            ),
        )
        return _etag(result, key)

    async def _condition(self, key: str, mode: Match) -> dict[str, str]:
        """The condition "carries this etag" as the service takes it."""
        if not self._dialect.match_by_generation:
            return {"e_tag": mode.etag}
        try:
            meta = await self._send(key, None, lambda sdk, client: completed_elsewhere(sdk.head_async(client, key)))
        except ObjectNotFoundError as error:
            raise ObjectChangedError(key) from error
        except UnavailableError as error:
            raise UnavailableError(str(error), outcome="not_applied") from error
        if _etag(meta, key) != mode.etag:
            raise ObjectChangedError(key)
        if not meta["version"]:
            raise ConfigError(f"{self!r} gives no generation to compare", outcome="not_applied")
        return {"e_tag": meta["e_tag"], "version": meta["version"]}

    async def get(self, key: str, byte_range: ByteRange | None = None) -> GetResult:
        """Read an object or a part of it."""
        check_key(key)
        check_range(byte_range)
        if isinstance(byte_range, Suffix):
            return await self._get_suffix(key, byte_range)
        options = None if byte_range is None else {"range": (byte_range.offset, byte_range.offset + byte_range.length)}
        return await self._get(key, options)

    async def _get_suffix(self, key: str, suffix: Suffix) -> GetResult:
        """Services differ in what they say of a suffix of an empty object, and Azure knows no suffixes."""
        if self._dialect.suffix_ranges:
            try:
                return await self._get(key, {"range": {"suffix": suffix.length}})
            except (InvalidError, UnavailableError):
                info = await self.head(key)
                if info.size:
                    raise
                return GetResult(info, b"", 0)
        info = await self.head(key)
        start = max(0, info.size - suffix.length)
        if not info.size:
            return GetResult(info, b"", 0)
        return await self._get(key, {"range": (start, info.size), "if_match": info.etag})

    async def _get(self, key: str, options: dict[str, Any] | None) -> GetResult:
        async def read(sdk: Any, client: Any) -> tuple[Any, bytes]:
            result = await completed_elsewhere(sdk.get_async(client, key, options=options))
            return result, bytes(await completed_elsewhere(result.bytes_async()))

        result, data = await self._send(key, None, read)
        start, end = result.range
        if len(data) != end - start:
            raise UnavailableError(f"{key!r}: the store sent {len(data)} of {end - start} bytes")
        return GetResult(self._info(result.meta, result.attributes), data, start)

    async def head(self, key: str) -> ObjectInfo:
        """What is known of an object without its bytes."""
        check_key(key)
        result = await self._send(
            key, None, lambda sdk, client: completed_elsewhere(sdk.get_async(client, key, options={"head": True}))
        )
        return self._info(result.meta, result.attributes)

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; missing ones are no error."""
        names = [check_key(key) for key in keys]
        if self._dialect.bulk_delete:
            for first in range(0, len(names), DELETE_BATCH_KEYS):
                await self._delete(names[first : first + DELETE_BATCH_KEYS])
            return
        for first in range(0, len(names), DELETE_PARALLELISM):
            group = names[first : first + DELETE_PARALLELISM]
            outcomes = await asyncio.gather(*(self._delete(name) for name in group), return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException) and not isinstance(outcome, ObjectNotFoundError):
                    raise outcome

    async def _delete(self, what: str | Sequence[str]) -> None:
        key = what if isinstance(what, str) else what[0]
        await self._send(key, None, lambda sdk, client: completed_elsewhere(sdk.delete_async(client, what)))

    def _attributes(self, metadata: dict[str, str]) -> dict[str, str] | None:
        if self._dialect.dashes_in_metadata:
            return metadata or None
        return {name.replace("-", "_"): value for name, value in metadata.items()} or None

    def _info(self, meta: Mapping[str, Any], attributes: Mapping[str, str] | None = None) -> ObjectInfo:
        metadata = {name: value for name, value in (attributes or {}).items() if name not in _RESERVED_ATTRIBUTES}
        if not self._dialect.dashes_in_metadata:
            metadata = {name.replace("_", "-"): value for name, value in metadata.items()}
        modified = int(meta["last_modified"].timestamp() * 1000)
        return ObjectInfo(meta["path"], meta["size"], _etag(meta, meta["path"]), modified, metadata)

    async def list(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """Objects whose key starts with ``prefix`` and is greater than ``start_after``, in byte order.

        The SDK lists folders, so the last part of ``prefix`` becomes a starting point and an end."""
        check_listing(prefix, start_after)
        folder = prefix.rpartition("/")[0]
        offset = max(start_after, just_before(prefix))
        stream = await self._send(
            prefix,
            None,
            lambda sdk, client: _ready(sdk.list(client, folder or None, offset=offset or None, chunk_size=PAGE_KEYS)),
            sends=False,
        )
        last = start_after
        while True:
            page = await self._send(prefix, None, lambda sdk, client: _next_page(stream))
            if page is None:
                return
            for meta in page:
                key = meta["path"]
                if key <= start_after or not key.startswith(prefix):
                    if key > prefix and not key.startswith(prefix):
                        return
                    continue
                if key <= last:
                    raise ConfigError(f"{self!r} does not list keys in byte order: {key!r} came after {last!r}")
                last = key
                yield self._info(meta)

    async def close(self) -> None:
        """Let go of the client; its connections end with it. Idempotent."""
        self._closed = True
        self._client = None


def just_before(prefix: str) -> str:
    """A string below every key that starts with ``prefix``, and above nearly all that come before those.

    Empty if the prefix ends in ``/`` or is empty: then its folder says it all."""
    if not prefix or prefix.endswith("/"):
        return ""
    before = chr(ord(prefix[-1]) - 1)
    if before in "/\\":
        before = chr(ord(before) - 1)
    return prefix[:-1] + before + "~" if before >= "!" else prefix[:-1].rstrip("/")


async def _ready(value: T) -> T:
    return value


async def _next_page(stream: Any) -> Any:
    try:
        return await completed_elsewhere(stream.__anext__())
    except StopAsyncIteration:
        return None


def _etag(meta: Mapping[str, Any], key: str) -> str:
    etag: str | None = meta["e_tag"]
    if not etag:
        raise ConfigError(f"the store gave no etag for {key!r}, which conditional writes need")
    return etag if etag.endswith('"') else f'"{etag}"'  # Azure's listings leave the quotes out


def _first_line(error: BaseException) -> str:
    """What the SDK says first; after it come the store's XML and the SDK's own debug dump."""
    return str(error).partition("\n\nDebug source:")[0].partition("<")[0]


def _translated(error: BaseException, key: str, mode: PutMode | None, place: str) -> SlateError:
    """What an SDK error means. The SDK folds answers into few classes, so the status in its text decides."""
    text = str(error)
    status = _STATUS.search(text)
    message = _MESSAGE.search(text)
    detail = plain(_first_line(error)) if message is None else message[1]

    def answered(status: int, code: str = "", detail: str = detail) -> SlateError:
        return refused(status, code, detail, key=key, mode=mode, place=place)

    if status is not None:
        code = _CODE.search(text)
        return answered(int(status[1]), "" if code is None else code[1])
    name = type(error).__name__
    if isinstance(error, FileNotFoundError):
        return answered(404)
    if name in ("AlreadyExistsError", "PreconditionError"):
        return answered(412)
    if isinstance(error, ValueError) or name in ("UnauthenticatedError", "PermissionDeniedError", "NotSupportedError"):
        return answered(403)
    if "range starting at" in text or "bytes 0--1/0" in text:  # the latter: Azurite, of an empty object
        return answered(416, detail="")
    kind = _KIND.search(text)
    return no_answer(text, key=key, mode=mode, sent=kind is None or kind[1] != "Connect", place=place)


def _sdk() -> Any:
    import obstore  # noqa: PLC0415

    return obstore
