"""`StoreClients`: the clients of stores and metastores that all handles of a process share, counted by use."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Protocol, TypeAlias
from weakref import WeakValueDictionary

from metastores.factories import parse_metastore
from metastores.protocol import MetaStoreFactory
from metastores.runtime import MetaRuntime
from slate_async.errors import InvalidError
from slate_async.metastore_errors import translating
from slate_async.objectstore.parents import ParentStores
from slate_async.objectstore.prefixed import PrefixedStore
from slate_async.objectstore.protocol import ObjectStore
from slate_async.objectstore.retry import RequestSettings, RetryingStore, RetryPolicy
from slate_async.objectstore.stats import StoreStats
from slate_async.objectstore.url import StoreURL, open_store, parse_url
from slate_async.runtime.pokes import Pokes
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.shared import Closable, Shared, Taken

StorePath: TypeAlias = str | os.PathLike[str] | ObjectStore
"""A URL or local path, or a store that is the folder meant."""
BESIDE_THE_DATA = (None, "put-if-absent", "if-match")
"""Metastores that keep metadata in the folder itself, whatever its name."""


class ConnectionSettings(RequestSettings, Protocol):
    """What clients are made by; see `slate_async.settings`."""

    @property
    def version_keep_ms(self) -> int:
        """How long collectors leave a version alone."""

    @property
    def file_mode(self) -> str:
        """Permissions of the files in a local folder."""


class SharesClients(Protocol):
    """What handles of any product open in: an `Environment`."""

    runtime: Runtime
    """Clock, randomness, ids and threads of all that is opened in it."""

    @property
    def _clients(self) -> StoreClients:
        """What they take their clients from."""

    def _require_open(self) -> None:
        """Raise `InvalidError` when this is closed, or belongs to another event loop."""

    def _admit(self, where: Hashable, handle: Closable) -> Callable[[], None]:
        """Close ``handle``, which works in the store ``where``, when this is closed. Returns what it is to call when it
        has closed."""


class StoreClients:
    """``named``: store objects by the names they were opened with. The caller that takes a client passes its `Taken`,
    which gives the client back."""

    def __init__(self, runtime: Runtime, named: Mapping[str, ObjectStore]) -> None:
        self._runtime = runtime
        self._named = named
        self._stores = Shared[RetryingStore](RetryingStore.close)
        self._factories = Shared[MetaStoreFactory](lambda factory: factory.close())
        self._pokes = WeakValueDictionary[Hashable, Pokes]()

    def factory(
        self, metastore: str | MetaStoreFactory | None, settings: ConnectionSettings, taken: Taken
    ) -> MetaStoreFactory:
        """The metastore's factory. All handles that name a metastore share its factory and clients."""
        if metastore is not None and not isinstance(metastore, str):
            return metastore
        with translating():
            return taken.take(
                self._factories,
                (metastore, settings.request_timeout_ms, settings.retry_deadline_ms, settings.version_keep_ms),
                lambda: parse_metastore(metastore, runtime=self._metadata_runtime(settings)),
            )

    def _metadata_runtime(self, settings: ConnectionSettings) -> MetaRuntime:
        return MetaRuntime(
            sleep=self._runtime.clock.sleep,
            rng=self._runtime.rng,
            token=self._runtime.ids.token,
            request_timeout=settings.request_timeout_ms / 1000,
            deadline=settings.retry_deadline_ms / 1000,
            version_keep_ms=settings.version_keep_ms,
            monotonic=self._runtime.clock.monotonic,
            now_ms=self._runtime.clock.now_ms,
        )

    def store(
        self,
        path: StorePath,
        settings: ConnectionSettings,
        name: str | None,
        metastore: str | MetaStoreFactory | None,
        taken: Taken,
    ) -> tuple[ObjectStore, StoreStats, str]:
        """The folder that ``path`` names, what counts its client's requests, and its name."""
        policy = RetryPolicy.of(settings)
        if not isinstance(path, str | os.PathLike):
            if name is None and metastore not in BESIDE_THE_DATA:
                raise InvalidError(
                    "a store object needs name= if its metadata is kept elsewhere: the metastore finds it by that name"
                )
            retrying = RetryingStore(path, self._runtime.clock, self._runtime.rng, policy)
            return retrying, retrying.stats, name or f"store:{id(path):x}"
        if name is not None:
            raise InvalidError("name= goes with a store object; a URL is its own name")
        url = parse_url(path)
        shared = self._client(url, settings, taken)
        return PrefixedStore(shared, url.prefix), shared.stats, url.display

    def store_at(
        self, path: str, settings: ConnectionSettings, metastore: str | MetaStoreFactory | None, taken: Taken
    ) -> tuple[ObjectStore, str]:
        """The folder at ``path``, a URL or the name of a store object, and its name."""
        named = self._named.get(path)
        given, name = (path, None) if named is None else (named, path)
        store, _, display = self.store(given, settings, name, metastore, taken)
        return store, display

    def _client(self, url: StoreURL, settings: ConnectionSettings, taken: Taken) -> RetryingStore:
        """The client of the bucket, folder or memory that ``url`` is in."""
        root = replace(url, prefix="")
        policy, mode = RetryPolicy.of(settings), settings.file_mode
        return taken.take(
            self._stores,
            (root, policy, mode),
            lambda: open_store(root, self._runtime, retry=policy, file_mode=mode)[0],
        )

    def pokes(self, key: Hashable) -> Pokes:
        """Those about what ``key`` stands for, of all who ask for them meanwhile."""
        found = self._pokes.get(key)
        if found is None:
            found = self._pokes[key] = Pokes()
        return found

    def parents(self, path: StorePath, settings: ConnectionSettings, taken: Taken) -> ParentStores:
        """The folders of other databases, as the one at ``path`` reaches them."""
        policy = RetryPolicy.of(settings)
        own = parse_url(path) if isinstance(path, str | os.PathLike) else None
        clock, rng = self._runtime.clock, self._runtime.rng
        named = {name: RetryingStore(store, clock, rng, policy) for name, store in self._named.items()}
        return ParentStores(own, named, lambda url: self._client(url, settings, taken))

    def end(self) -> None:
        """Make no client any more; those in use are closed by their users."""
        self._stores.end()
        self._factories.end()


def root_of(path: StorePath) -> Hashable:
    """What stands and falls together: the bucket or folder that ``path`` is in, or the store that it is."""
    return replace(parse_url(path), prefix="") if isinstance(path, str | os.PathLike) else id(path)
