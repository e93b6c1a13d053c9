"""Reads of a part of an object, of which more is known than its name."""

from __future__ import annotations

from slate_async.errors import CorruptionError, InvalidError
from slate_async.objectstore.prefixed import whole_key
from slate_async.objectstore.protocol import ObjectStore, Span


async def read_span(store: ObjectStore, key: str, place: slice) -> bytes:
    """The bytes of the object at ``key`` from ``place.start`` to ``place.stop``, or to its end.

    Raises `ObjectNotFoundError`, `UnavailableError`, and `CorruptionError` for an object that ends before them: to the
    store that is a wrong call."""
    try:
        return (await store.get(key, Span(place.start, place.stop - place.start))).data
    except InvalidError:
        size = (await store.head(key)).size
        if size > place.start:
            raise
        raise CorruptionError(f"it ends after {size} bytes", object_name=whole_key(store, key)) from None
