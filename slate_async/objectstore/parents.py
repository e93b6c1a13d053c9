"""Other databases' folders by their paths, as one database reaches them: a clone its parents, a parent its clone.

A manifest keeps of another database's place only what is no matter of configuration: scheme, bucket and folder. So it
is reached as the database itself is, with the same endpoint, region and client. Stores that are objects go by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from slate_async.errors import InvalidError
from slate_async.objectstore.prefixed import PrefixedStore
from slate_async.objectstore.protocol import ObjectStore
from slate_async.objectstore.store_url import StoreURL, parse_url


class ParentStores:
    """own: the URL of the database that looks; ``None`` if its store was given as an object
    named: stores given as objects, by name
    client: the store of the whole bucket, folder or memory that a URL is in
    """

    def __init__(
        self, own: StoreURL | None, named: Mapping[str, ObjectStore], client: Callable[[StoreURL], ObjectStore]
    ) -> None:
        self._own = own
        self._named = named
        self._client = client
        self._found: dict[str, ObjectStore] = {}

    def name_of(self, path: str) -> str:
        """The name of the database at ``path``, a URL or the name of a store, as metadata and manifests have it."""
        return path if path in self._named else self._url(path).display

    def folder(self, path: str) -> ObjectStore:
        """The folder of the database at ``path``. Raises `InvalidError` if it cannot be reached from here."""
        if path in self._named:
            return self._named[path]
        url = self._url(path)
        if url.display not in self._found:
            self._found[url.display] = PrefixedStore(self._client(url), url.prefix)
        return self._found[url.display]

    def _url(self, path: str) -> StoreURL:
        url = parse_url(path)
        if self._own is None:
            return url
        if url.scheme != self._own.scheme:
            raise InvalidError(f"{url} is not in the same kind of store as {self._own}; use one kind for both")
        for name in ("endpoint_url", "region", "client", "parameters"):
            given, own = getattr(url, name), getattr(self._own, name)
            if given not in (own, getattr(StoreURL(url.scheme, ""), name)):
                raise InvalidError(f"{url} is reached as {self._own} is: leave {name} out of its URL, or give the same")
        return replace(self._own, bucket=url.bucket, prefix=url.prefix)
