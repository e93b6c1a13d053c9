"""Taking its hold from a reader, on somebody's word: as a controller does whose lease has run out.

The hold is revoked by compare-and-set (C10), so a reader never takes a later hold for its own. What it reads from then
on fails; it is never wrong. One whose bytes are damaged is ended in the same way, by its name. If the store cannot say
its etag it is removed: an attempt of its owner that lands later makes a hold that the owner does not believe, and that
is expired like any other.

Rule C10 of collections.
"""

from __future__ import annotations

from functools import partial

from metastores.protocol import Committed
from slate_async.collections.core import sweep
from slate_async.collections.core.names import check_name
from slate_async.collections.reader.context import ReaderContext
from slate_async.collections.store.conditional import after, not_applied
from slate_async.collections.store.holds import NO_ETAG
from slate_async.errors import NotFoundError, UnavailableError


async def expire(context: ReaderContext, reader: str) -> None:
    """Revoke the hold of ``reader``. One that was revoked before is left as it is.

    Raises `NotFoundError` if there is none, `UnavailableError`: it may be revoked."""
    check_name(reader, "reader")
    backoff, outcome = context.backoff(f"the expiry of {reader}"), not_applied()
    while True:
        cause: UnavailableError | None = None
        try:
            stored = await backoff.attempt(context.holds.look(reader))
            if stored is None:
                raise NotFoundError(f"{context.name} has no reader {reader}")
            if stored.hold.revoked:
                return
            if stored.etag == NO_ETAG:
                remove = partial(context.holds.remove, [reader])
                return await context.answered("the removal of a damaged hold", remove, "unknown")
            revoked = sweep.expiring(stored, context.runtime.ids.token())
            answer = await backoff.attempt(context.holds.write(reader, revoked, stored.etag))
            if isinstance(answer, Committed):
                return
            outcome = after(outcome, answer)
        except UnavailableError as error:
            cause, outcome = error, after(outcome, error)
        await backoff.wait(cause, outcome)  # it was renewed meanwhile, or nobody answered: look again
