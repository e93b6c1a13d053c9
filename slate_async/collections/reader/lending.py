"""`SharedHold`: a leased hold that one process keeps. `TaskHold`: how others read under it.

A job of many processes reads one version. Its planner takes a hold and lends it; tasks read under it, and what they
have read counts if it stands afterwards (C14). Jobs that outlive their planner prolong the hold from the tasks.

Ordering rule: a hold is written once more after it was registered, and then it is lent.

Rules C10, C11, C14 and C15 of collections.
"""

from __future__ import annotations

import logging

from slate_async.collections.core import lending
from slate_async.collections.core.area import Area
from slate_async.collections.core.edits import check_open
from slate_async.collections.core.errors import LeaseLostError
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.holding import StoredHold, Verdict
from slate_async.collections.core.lending import LentHold
from slate_async.collections.reader.context import ReaderContext
from slate_async.collections.reader.registering import registered_hold
from slate_async.collections.reader.renewal import KeptHold
from slate_async.errors import ClosedError, CorruptionError, SlateError, UnavailableError
from slate_async.runtime.loop_handle import LoopHandle
from slate_async.runtime.supervisor import Supervisor

logger = logging.getLogger(__name__)

RENEWALS = 4
"""A hold is looked after so many times within its lease."""
ADOPTIONS = 100
"""So many times at most is a hold read again that its keeper wrote meanwhile."""


class SharedHold(LoopHandle):
    """Made by `share_hold` and `adopt_hold`. It renews itself until it is expired, or left to its lease."""

    def __init__(self, context: ReaderContext, hold: KeptHold, supervisor: Supervisor) -> None:
        super().__init__(f"a shared hold of {context.name}")
        self._context = context
        self._hold = hold
        self._supervisor = supervisor
        self._leaving = False
        supervisor.spawn("renewal", self._renew(), critical=False)

    @property
    def reader(self) -> str:
        """Its name."""
        return self._hold.handle.reader

    @property
    def since(self) -> Frontier:
        """Times beyond it may be asked about."""
        return self._hold.handle.since

    async def lend(self, version: int | None = None) -> LentHold:
        """What tasks need that read ``version``, by default the one that is held. It is not below that.

        Raises `LeaseLostError`, `UnavailableError`."""
        self._check()
        stored = await self._hold.confirmed()
        assert stored.hold.version is not None
        return LentHold(self.reader, stored.hold.beat, stored.hold.version if version is None else version)

    async def move(self, *, version: int | None = None, since: Frontier | None = None) -> None:
        """Give up versions below ``version`` and times not beyond ``since``, which nobody reads any more. Neither goes
        back. Raises `LeaseLostError`, `UnavailableError`: they are given up all the same."""
        self._check()
        await self._hold.write(version=version, since=since)

    async def leave(self) -> None:
        """End without giving the hold up: it stands until its lease ends, or somebody adopts it. Idempotent."""
        self._leaving = True
        await self._end()

    async def expire(self) -> None:
        """Give the hold up, unless another process has adopted it. Idempotent. Raises `UnavailableError`: then it ends
        with its lease."""
        await self._end()

    async def _finish(self) -> None:
        await self._supervisor.close()
        if not self._leaving:
            await self._hold.remove(is_lent=True)

    async def _renew(self) -> None:
        lease_ms = self._hold.handle.lease_ms
        assert lease_ms is not None
        while True:
            await self._context.runtime.clock.sleep(lease_ms / RENEWALS / 1000)
            try:
                await self._hold.write()
            except UnavailableError:
                continue  # the lease may end meanwhile: then the next write says so
            except LeaseLostError:
                return  # the next call says so
            except SlateError as error:  # such as a right that is missing for a while
                logger.warning("%s: %s is renewed again later: %s", self._context.name, self.reader, error)
            except Exception:
                logger.exception("%s: %s is renewed no more", self._context.name, self.reader)
                raise

    def _check(self) -> None:
        self._guard.check()
        self._hold.check()


async def share_hold(context: ReaderContext, note: str = "") -> tuple[SharedHold, Area]:
    """A new hold, with the head that it covers. Raises `ClosedError` for a deleted collection, `UnavailableError`."""
    supervisor = Supervisor(f"{context.name}/shared hold", lambda cause: None)
    try:
        hold, head = await registered_hold(context, supervisor, note)
        await hold.write()
    except BaseException:
        await supervisor.close()
        raise
    return SharedHold(context, hold, supervisor), head


async def adopt_hold(context: ReaderContext, lent: LentHold, note: str = "") -> tuple[SharedHold, Area]:
    """Take over to keep the hold that was ``lent``, with the head that it covers; its keeper before is evicted.

    Raises `LeaseLostError` if it does not stand any more, `ClosedError` if the collection was deleted,
    `UnavailableError`."""
    supervisor = Supervisor(f"{context.name}/shared hold", lambda cause: None)
    try:
        for _ in range(ADOPTIONS):
            stored = await context.answered("a read of a hold", lambda: context.holds.read(lent.reader))
            handle = lending.adopted(lent, stored, context.lease_ms, note)
            head = await context.head()
            check_open(head)
            if handle is None:
                raise lost(context, lent)
            hold = KeptHold(context, handle, supervisor)
            try:
                await hold.write()
            except LeaseLostError:
                continue  # its keeper wrote it meanwhile
            return SharedHold(context, hold, supervisor), head
        raise UnavailableError(f"the hold {lent.reader} of {context.name} is written faster than it can be taken over")
    except BaseException:
        await supervisor.close()
        raise


class TaskHold:
    """The hold that was ``lent``, to one that reads under it."""

    def __init__(self, context: ReaderContext, lent: LentHold) -> None:
        self._context = context
        self._lent = lent

    async def check_standing(self) -> None:
        """C14: raise `LeaseLostError` unless the hold, read now, stands."""
        if not lending.stands_lent(self._lent, await self._read()):
            raise lost(self._context, self._lent)

    async def explain(self, what: str, object_name: str) -> SlateError:
        """C15: the error for ``what``, which a hold that stands rules out."""
        stored, head = await self._read(), await self._context.head()
        match lending.judge_missing_lent(self._lent, stored, head):
            case Verdict.DELETED:
                return ClosedError(f"{self._context.name} was deleted")
            case Verdict.CORRUPTED:
                return CorruptionError(f"{what}, and the hold {self._lent.reader} stands", object_name=object_name)
        return lost(self._context, self._lent)

    async def prolong(self) -> None:
        """Let its lease begin anew, where nobody keeps it: a keeper would be evicted. If another one does
        so at the same time, that is enough. Raises `LeaseLostError`, `UnavailableError`."""
        stored = await self._read()
        if stored is None or not lending.stands_lent(self._lent, stored):
            raise lost(self._context, self._lent)
        hold = lending.prolonged(stored.hold, self._context.runtime.ids.token())
        await self._context.holds.write(self._lent.reader, hold, stored.etag)

    async def _read(self) -> StoredHold | None:
        return await self._context.answered("a read of the hold", lambda: self._context.holds.read(self._lent.reader))


def lost(context: ReaderContext, lent: LentHold) -> LeaseLostError:
    """Of a hold that does not stand any more."""
    return LeaseLostError(
        f"the hold {lent.reader} of {context.name}, under which this is read, was revoked or given up; begin anew"
    )
