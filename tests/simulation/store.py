"""The object store that all simulated processes share, and the handle one process has of it."""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, TypeVar

from slate_async.errors import InvalidError, UnavailableError
from slate_async.objectstore.bodies import joined
from slate_async.objectstore.keys import check_key, check_listing, check_metadata, resolve_range
from slate_async.objectstore.protocol import (
    OVERWRITE,
    ByteRange,
    Create,
    GetResult,
    Match,
    ObjectChangedError,
    ObjectExistsError,
    ObjectInfo,
    ObjectNotFoundError,
    Overwrite,
    PutMode,
)
from slate_async.types import Buffer
from tests.simulation.faults import RequestFailedError
from tests.simulation.network import Network, Sender
from tests.simulation.trace import fingerprint

T = TypeVar("T")


class Conditions(Enum):
    """What the store makes of conditional puts."""

    EXACT = "exact"
    """Honours them."""
    IGNORED = "ignored"
    """Overwrites whatever is there, as some servers do."""
    REFUSED = "refused"
    """Answers that it does not know them."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object as it is now."""

    info: ObjectInfo
    data: bytes


class SimStore:
    """The shared objects. Every method is one effect: it happens at once.

    An etag is the hash of the bytes, as S3 has it: an object written again with equal bytes has an equal etag."""

    def __init__(self, now_ms: Callable[[], int], conditions: Conditions = Conditions.EXACT) -> None:
        self._now_ms = now_ms
        self.conditions = conditions
        self.objects: dict[str, StoredObject] = {}
        self._keys: list[str] = []

    def put(self, key: str, data: bytes, mode: PutMode, metadata: Mapping[str, str]) -> str:
        """Write an object if the condition holds now."""
        current = self.objects.get(key)
        if self.conditions is Conditions.REFUSED and not isinstance(mode, Overwrite):
            raise InvalidError("this store has no conditional writes", outcome="not_applied")
        if self.conditions is Conditions.EXACT:
            if isinstance(mode, Create) and current is not None:
                raise ObjectExistsError(key)
            if isinstance(mode, Match) and (current is None or current.info.etag != mode.etag):
                raise ObjectChangedError(key)
        etag = hashlib.sha256(data).hexdigest()[:32]
        if current is None:
            bisect.insort(self._keys, key)
        info = ObjectInfo(key, len(data), etag, self._now_ms(), MappingProxyType(dict(metadata)))
        self.objects[key] = StoredObject(info, data)
        return etag

    def find(self, key: str) -> StoredObject:
        """The object, or `ObjectNotFoundError`."""
        found = self.objects.get(key)
        if found is None:
            raise ObjectNotFoundError(key)
        return found

    def page(self, prefix: str, after: str, limit: int) -> list[ObjectInfo]:
        """The next objects of a listing."""
        start = max(bisect.bisect_right(self._keys, after), bisect.bisect_left(self._keys, prefix))
        keys = [key for key in self._keys[start : start + limit] if key.startswith(prefix)]
        infos = [self.objects[key].info for key in keys]
        return [ObjectInfo(info.key, info.size, info.etag, info.last_modified_ms) for info in infos]

    def delete(self, key: str) -> None:
        """Remove one object, if it is there."""
        if self.objects.pop(key, None) is not None:
            del self._keys[bisect.bisect_left(self._keys, key)]


class FaultyStore:
    """An `ObjectStore` bound to one process: every operation travels through the network and its faults.

    page_keys: how many keys one request of a listing brings; the store may change between two
    """

    def __init__(self, network: Network, process: Sender, shared: SimStore, *, page_keys: int = 1000) -> None:
        self._network = network
        self._process = process
        self._shared = shared
        self._page_keys = page_keys
        self._closed = False

    def __repr__(self) -> str:
        return f"FaultyStore({self._process.name})"

    async def _send(self, operation: str, key: str, effect: Callable[[], T], *, write: bool = False) -> T:
        if self._closed:
            raise InvalidError("this store is closed", outcome="not_applied")
        try:
            return await self._network.send(self._process, operation, key, effect, write=write)
        except RequestFailedError as error:
            raise UnavailableError(str(error), outcome=error.outcome if write else None) from error

    async def put(
        self,
        key: str,
        data: Buffer | Sequence[Buffer],
        *,
        mode: PutMode = OVERWRITE,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        """Write an object; see `slate_async.objectstore.protocol.ObjectStore.put`."""
        check_key(key)
        body, kept = joined(data), check_metadata(metadata)
        operation = f"put-{type(mode).__name__.lower()}({fingerprint(body)})"
        return await self._send(operation, key, lambda: self._shared.put(key, body, mode, kept), write=True)

    async def get(self, key: str, byte_range: ByteRange | None = None) -> GetResult:
        """Read an object or a part of it."""
        check_key(key)

        def effect() -> GetResult:
            found = self._shared.find(key)
            start, end = resolve_range(key, byte_range, found.info.size)
            return GetResult(found.info, found.data[start:end], start)

        return await self._send("get", key, effect)

    async def head(self, key: str) -> ObjectInfo:
        """What is known of an object."""
        check_key(key)
        return await self._send("head", key, lambda: self._shared.find(key).info)

    async def list(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """Objects in byte order, fetched page by page."""
        check_listing(prefix, start_after)
        after = start_after
        while True:
            page = await self._page(prefix, after)
            for info in page:
                yield info
            if len(page) < self._page_keys:
                return
            after = page[-1].key

    async def _page(self, prefix: str, after: str) -> Sequence[ObjectInfo]:
        def effect() -> Sequence[ObjectInfo]:
            return self._shared.page(prefix, after, self._page_keys)

        return await self._send("list", f"{prefix}>{after}", effect)

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove objects one request at a time: not atomic over several keys."""
        for key in keys:
            check_key(key)
        for key in keys:
            await self._send("delete", key, self._deletion(key), write=True)

    def _deletion(self, key: str) -> Callable[[], Any]:
        return lambda: self._shared.delete(key)

    async def close(self) -> None:
        """Close this handle. Idempotent."""
        self._closed = True
