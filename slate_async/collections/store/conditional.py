"""Conditional puts as outcomes: committed, conflict, unknown.

A put is sent once. `Committed` holds the new etag; `Conflict` means that another object is there, for certain; after
`Unknown` the object may be there, now or later.
"""

from __future__ import annotations

from typing import TypeAlias

from metastores.protocol import Committed, Conflict, Unknown
from slate_async.errors import Outcome, SlateError
from slate_async.objectstore.protocol import (
    CREATE,
    Match,
    ObjectChangedError,
    ObjectExistsError,
    ObjectStore,
)

Written: TypeAlias = Committed[str] | Conflict[None] | Unknown
"""How a conditional put ended."""


def not_applied() -> Outcome:
    """Of attempts of one change, before the first one."""
    return "not_applied"


def after(outcome: Outcome, ended: Written | SlateError) -> Outcome:
    """The ``outcome`` of attempts of which none was answered with yes, after one more that ``ended`` so."""
    if isinstance(ended, Conflict) or (isinstance(ended, SlateError) and ended.outcome != "unknown"):
        return outcome
    return "unknown"


async def put_if(store: ObjectStore, key: str, data: bytes, etag: str | None) -> Written:
    """Put ``data`` iff the object at ``key`` carries ``etag``; ``None``: iff there is none.

    Raises what the store raises if certainly nothing was written."""
    try:
        return Committed(await store.put(key, data, mode=CREATE if etag is None else Match(etag)))
    except (ObjectExistsError, ObjectChangedError):
        return Conflict(None)
    except SlateError as error:
        if error.outcome != "unknown":
            raise
        return Unknown(f"no answer to the put of {key}: {error}")
