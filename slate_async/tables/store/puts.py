"""New objects, each under a name of its own.

A put whose answer was lost is not sent again: it may land at any time. The same bytes go under another name, and what
may be left of the first one is garbage, because no link names it (rule T4).

Rule T4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from slate_async.errors import UnavailableError
from slate_async.objectstore.protocol import CREATE, ObjectExistsError, ObjectStore
from slate_async.runtime.protocol import Runtime
from slate_async.types import Buffer

TRIES: Final = 5
LONGEST_PAUSE_S: Final = 1.28


async def put_new(store: ObjectStore, data: Buffer, name: Callable[[str], str], runtime: Runtime) -> str:
    """Put ``data`` under ``name(token)``; returns that key. Raises `UnavailableError` after `TRIES`: nothing names what
    it may have put."""
    failure: UnavailableError | ObjectExistsError | None = None
    for attempt in range(TRIES):
        if attempt:
            await runtime.clock.sleep(runtime.rng.uniform(0, min(LONGEST_PAUSE_S, 0.02 * 2.0**attempt)))
        key = name(runtime.ids.token())
        try:
            await store.put(key, data, mode=CREATE)
        except (UnavailableError, ObjectExistsError) as error:
            failure = error
        else:
            return key
    raise UnavailableError(f"no object could be put: {failure}", outcome="not_applied") from failure
