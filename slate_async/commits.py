"""The generic commit loop: read the newest version, apply an edit, write the result if no other commit came between.
It knows nothing of what is stored, and is right whatever the network loses.

Ordering rule: on *any* answer but `Committed` the newest version is read again and the edit asked again. So a conflict,
a lost response, a refusal by a store that is overloaded and a superseded success all take the same path, and the edit's
own mark decides: applied to a state that carries its mark, an edit returns ``None``.

Cancellation: a commit runs in a supervised task; a cancelled caller abandons the wait, never the operation.

Rule 1: docs/design/protocol-rules.md
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from metastores.protocol import Committed, Conflict, Unknown
from slate_async.errors import FencedError, NotFoundError, Outcome, UnavailableError
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.supervisor import Supervisor

S = TypeVar("S")
WriteOutcome: TypeAlias = Committed[S] | Conflict[Any] | Unknown
"""`Committed` holds the state that was written, under its new name."""

LONGEST_PAUSE_S = 1.28
SHORTEST_RACE_PAUSE_S = 0.01
SHORTEST_ATTEMPT_S = 0.001
MAX_ATTEMPTS = 1_000
"""The deadline ends a commit; this ends one whose clock stands still."""


class Edit(Protocol[S]):
    """One change of a state: a pure function, safe to apply again after any conflict."""

    def apply(self, state: S) -> S | None:
        """The successor of ``state``, or ``None`` when the edit is in already.

        Raises `FencedError` when its role was taken over, `ConflictError` when it can never apply again."""


class Versions(Protocol[S]):
    """A sequence of versions of a state, of which the newest is the head."""

    @property
    def head(self) -> S | None:
        """The newest state seen so far, which may be old by now."""

    async def load(self) -> S | None:
        """The committed head right now, or ``None`` when nothing was ever committed. Raises `UnavailableError`."""

    async def write(self, old: S | None, new: S) -> WriteOutcome[S]:
        """Send ``new`` once, as the version after ``old`` (``None``: as the first): it wins iff ``old`` is the head.

        Raises `UnavailableError` if certainly nothing was written, or what ``new`` breaks if it must not follow
        ``old``."""


@dataclass(slots=True)
class CommitStats:
    """How the conditional writes of one loop ended."""

    commits: int = 0
    conflicts: int = 0
    unknowns: int = 0


@dataclass(slots=True)
class _Sent:
    """What one commit has sent. ``maybe``: a write whose outcome is not known, so it may be in, or come in later"""

    maybe: bool = False

    @property
    def outcome(self) -> Outcome:
        return "unknown" if self.maybe else "not_applied"


class CommitLoop(Generic[S]):
    """Commits edits to ``versions``, one at a time.

    what: what is committed to, for messages: ``"manifest"``
    missing: what to say when there is no head
    deadline_ms: of one commit, the wait for commits before it included
    """

    def __init__(
        self,
        versions: Versions[S],
        runtime: Runtime,
        supervisor: Supervisor,
        *,
        what: str,
        missing: str,
        deadline_ms: int,
    ) -> None:
        self._versions = versions
        self._runtime = runtime
        self._supervisor = supervisor
        self._what = what
        self._missing = missing
        self.deadline_ms = deadline_ms
        self._lock = asyncio.Lock()
        self.stats = CommitStats()

    async def commit(self, edit: Edit[S]) -> S:
        """Commit ``edit`` and return a committed state that holds it and was the head at some time during this call.

        Raises what the edit raises, or `UnavailableError` past the deadline: with outcome ``"unknown"`` if a write may
        be in, else ``"not_applied"``, as when its turn did not come, or a disk was full each time."""
        return await self._supervisor.run(f"commit {type(edit).__name__}", self._commit(edit))

    async def create(self, first: S) -> S:
        """Commit ``first`` as the first version unless there is one; returns the head either way."""
        sent = _Sent()
        async with self._turn() as deadline:
            for attempt in range(MAX_ATTEMPTS):
                cause: UnavailableError | None = None
                began = self._runtime.clock.monotonic()
                try:
                    head = await self._versions.load()
                    if head is not None:
                        return head
                    if (committed := await self._write(None, first, sent)) is not None:
                        return committed.value
                except UnavailableError as error:
                    cause = error
                await self._pause(attempt, began, deadline, cause, sent)
        raise UnavailableError(
            f"creating the {self._what} failed {MAX_ATTEMPTS} times; it may exist by now, so look before you repeat it",
            outcome=sent.outcome,
        )

    async def _commit(self, edit: Edit[S]) -> S:
        sent = _Sent()
        async with self._turn() as deadline:
            known = self._versions.head
            for attempt in range(MAX_ATTEMPTS):
                cause: Exception | None = None
                began = self._runtime.clock.monotonic()
                try:
                    async with asyncio.timeout(max(SHORTEST_ATTEMPT_S, deadline - began)):
                        if (committed := await self._judge_and_write(edit, known, sent)) is not None:
                            return committed.value
                except (UnavailableError, TimeoutError) as error:
                    cause = error  # whatever was written, or could not be read: the edit's mark will tell
                known = None
                await self._pause(attempt, began, deadline, cause, sent)
        raise UnavailableError(
            f"a commit to the {self._what} lost against other commits {MAX_ATTEMPTS} times; try again later",
            outcome=sent.outcome,
        )

    async def _judge_and_write(self, edit: Edit[S], known: S | None, sent: _Sent) -> Committed[S] | None:
        """Apply ``edit`` to ``known``, or to the real head, and try to write it; ``None`` if that must be repeated."""
        state = await self._versions.load() if known is None else known
        if state is None:
            raise NotFoundError(self._missing)
        try:
            new = edit.apply(state)
        except FencedError:
            raise
        except Exception:
            if known is None:
                raise
            return await self._judge_and_write(edit, None, sent)  # judged on a cached head: judge again on the real one
        if new is None:
            if known is not None:
                return await self._judge_and_write(edit, None, sent)  # in already, but the head may be newer than this
            return Committed(state)
        return await self._write(state, new, sent)

    async def _write(self, old: S | None, new: S, sent: _Sent) -> Committed[S] | None:
        """Write ``new`` after ``old``; ``None`` if another version took its place.

        Raises `UnavailableError` if that is not known, which it notes in ``sent``, or nothing was written."""
        before, sent.maybe = sent.maybe, True  # a cancelled wait leaves it so
        try:
            outcome = await self._versions.write(old, new)
        except UnavailableError:
            sent.maybe = before
            raise
        if isinstance(outcome, Committed):
            self.stats.commits += 1
            return outcome
        if isinstance(outcome, Unknown):
            self.stats.unknowns += 1
            raise UnavailableError(outcome.cause)
        self.stats.conflicts += 1
        sent.maybe = before
        return None

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[float]:
        """The body is the only one that commits here. Gives the time, on the monotonic clock, when it must have
        ended."""
        deadline = self._runtime.clock.monotonic() + self.deadline_ms / 1000
        try:
            async with asyncio.timeout(self.deadline_ms / 1000):
                await self._lock.acquire()
        except TimeoutError as error:
            raise UnavailableError(
                f"a commit to the {self._what} waited for {self.deadline_ms} ms for earlier ones of this process, and"
                " was not sent; try again later",
                outcome="not_applied",
            ) from error
        try:
            yield deadline
        finally:
            self._lock.release()

    async def _pause(self, attempt: int, began: float, deadline: float, cause: Exception | None, sent: _Sent) -> None:
        """Wait before a try that follows number ``attempt``, which began at ``began``.

        Without an answer (``cause``) each pause is longer than the last: the store may be overloaded. After a lost race
        it takes about as long as a try, and less the more races were lost: every race has a winner, and a long pause
        leaves the next one to newcomers."""
        now = self._runtime.clock.monotonic()
        if now >= deadline:
            said = f": {cause}" if cause is not None and str(cause) else ""
            is_in = "confirmed within {} ms, and may be in" if sent.maybe else "made within {} ms, and is not in"
            raise UnavailableError(
                f"a commit to the {self._what} was not {is_in.format(self.deadline_ms)}{said}", outcome=sent.outcome
            ) from cause
        if attempt == 0:
            return  # at once: the head that was known was old
        if cause is None:
            limit = max(SHORTEST_RACE_PAUSE_S, 2 * (now - began) / attempt)
        else:
            limit = min(LONGEST_PAUSE_S, 0.01 * 2.0 ** min(attempt, 16))
        await self._runtime.clock.sleep(self._runtime.rng.uniform(0, min(limit, deadline - now)))
