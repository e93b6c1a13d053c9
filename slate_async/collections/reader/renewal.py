"""`KeptHold`: the hold of one handle, written until the outcome is known.

Writes run one at a time, in tasks of their own, so a cancelled caller never leaves one half judged. A hold that was
found to be lost stays lost: every later call fails.

Ordering rule: what a move gives up is given up before it is sent (C13).

Rules C10 to C15 of collections.
"""

from __future__ import annotations

import asyncio

from metastores.protocol import Committed
from slate_async.collections.core import holding, sweep
from slate_async.collections.core.area import Area
from slate_async.collections.core.errors import LeaseLostError
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.holding import Cover, Handle, Progress, StoredHold, Verdict
from slate_async.collections.core.reading import is_worth_moving
from slate_async.collections.reader.context import ReaderContext
from slate_async.collections.store.conditional import after, not_applied
from slate_async.errors import ClosedError, CorruptionError, SlateError, UnavailableError
from slate_async.runtime.supervisor import Supervisor


class KeptHold:
    """See the module docstring. ``handle``: what is known of it now."""

    def __init__(self, context: ReaderContext, handle: Handle, supervisor: Supervisor) -> None:
        self.handle = handle
        self.lock = asyncio.Lock()
        self._context = context
        self._supervisor = supervisor
        self._written_ms = context.now_ms()
        self._lost: SlateError | None = None

    def check(self) -> None:
        """Raise `LeaseLostError` if it was found to be lost, `ClosedError` if that is so because of a deletion."""
        if self._lost is not None:
            raise self._lost

    def is_due(self, version: int) -> bool:
        """Whether to write it now, moving it to ``version``."""
        unwritten = self._context.now_ms() - self._written_ms
        return is_worth_moving(self.handle.version or 0, version, unwritten, self._context.lease_ms)

    async def write(self, *, version: int | None = None, since: Frontier | None = None) -> None:
        """Write the hold, which renews its lease, and move it. Neither ``version`` nor ``since`` goes back.

        A cancelled call goes on. Raises `LeaseLostError`, `UnavailableError` past the deadline: it may have moved."""
        await self._supervisor.run("write of the hold", self._write_alone(version, since))

    async def check_standing(self) -> None:
        """C14: raise `LeaseLostError` unless the hold, read now, stands."""
        await self.confirmed()

    async def confirmed(self) -> StoredHold:
        """The hold as it is stored now. Raises `LeaseLostError` unless it stands."""
        async with self.lock:
            self.check()
            stored = await self._read()
            if stored is None or not holding.counts(self.handle, stored):
                raise await self._found_lost()
            return stored

    async def explain(self, what: str, object_name: str) -> SlateError:
        """C15: the error for ``what``, which a hold that stands rules out."""
        async with self.lock:
            stored = await self._read()
            head = await self._context.head()
        verdict = holding.judge_missing(self.handle, stored, head)
        if verdict is Verdict.CORRUPTED:
            return CorruptionError(f"{what}, and the hold of {self.handle.reader} stands", object_name=object_name)
        return self._note_lost(head)

    async def remove(self, *, is_lent: bool = False) -> None:
        """Give the hold up. A request that is lost leaves it to the end of its lease.

        is_lent: another process may have adopted it; then it is left to that"""
        async with self.lock:
            self._lost = self.lost_error()
            if is_lent and not await self._is_revoked():
                return
            await self._context.answered(
                "the removal of its hold", lambda: self._context.holds.remove([self.handle.reader]), "unknown"
            )

    async def follow(self, head: Area, *, since: bool = True) -> None:
        """C11: go to where ``head`` is, which was read after the hold was confirmed and has passed it; without its
        bound if a source covers the ``since``."""
        version, bound = holding.following_head(self.handle, head, since=since)
        await self.write(version=version, since=bound)

    async def cover(self, clone: Handle) -> Cover:
        """C12: what of ``clone``, whose hold was confirmed before, this one covers, read now. Raises as `check`."""
        async with self.lock:
            self.check()
            return holding.covered(clone, self.handle, await self._read())

    async def _write_alone(self, version: int | None, since: Frontier | None) -> None:
        async with self.lock:
            self.check()
            if version is not None and (self.handle.version is None or version < self.handle.version):
                version = self.handle.version
            await self._write(version, since)

    async def _write(self, version: int | None, since: Frontier | None) -> None:
        backoff, outcome = self._context.backoff("a write of its hold"), not_applied()
        while True:
            nonce, sent_ms = self._context.runtime.ids.token(), self._context.now_ms()
            self.handle = holding.attempt(self.handle, nonce, version=version, since=since)
            hold, cause = holding.to_write(self.handle, nonce), None
            try:
                answer = await backoff.attempt(self._context.holds.write(self.handle.reader, hold, self.handle.etag))
            except UnavailableError as error:
                cause, outcome = error, after(outcome, error)
            else:
                if isinstance(answer, Committed):
                    self.handle, self._written_ms = holding.written(self.handle, answer.value), sent_ms
                    return
                outcome = after(outcome, answer)
            progress, self.handle = holding.resolved(self.handle, await self._read())
            if progress is Progress.LOST:
                raise await self._found_lost()
            if progress is Progress.CONFIRMED:
                return  # of which attempt is not known, so the lease counts from the write before
            await backoff.wait(cause, outcome)

    async def _is_revoked(self) -> bool:
        """Revoke the hold by compare-and-set, so that nobody can adopt it any more; ``False`` if it is another's."""
        backoff, sent = self._context.backoff("the removal of its hold"), frozenset[str]()
        while True:
            stored, nonce, cause = await self._read(), self._context.runtime.ids.token(), None
            if stored is not None and stored.hold.nonce in sent:
                return True
            if stored is None or not holding.is_own(self.handle, stored):
                return False
            sent |= {nonce}
            revoked = sweep.revoking(stored.hold, nonce)
            try:
                answer = await backoff.attempt(self._context.holds.write(self.handle.reader, revoked, stored.etag))
            except UnavailableError as error:
                cause = error
            else:
                if isinstance(answer, Committed):
                    return True
            await backoff.wait(cause)

    async def _read(self) -> StoredHold | None:
        return await self._context.answered("a read of its hold", lambda: self._context.holds.read(self.handle.reader))

    async def _found_lost(self) -> SlateError:
        return self._note_lost(await self._context.head())

    def _note_lost(self, head: Area) -> SlateError:
        """It is lost from now on: why, by a ``head`` that was read after that was found."""
        self._lost = ClosedError(f"{self._context.name} was deleted") if head.deleted else self.lost_error()
        return self._lost

    def lost_error(self) -> LeaseLostError:
        """What a use of a lost hold raises."""
        return LeaseLostError(f"the hold {self.handle.reader} of {self._context.name} was revoked; open another reader")
