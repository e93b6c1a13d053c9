"""`Relay`: a database's change feed, written into a ``compare`` collection. The time of a change is its number.

Each run goes on where the collection ends: at upper u, the feed begins after u - 1. So nothing is lost or comes twice,
whatever became of earlier runs, and nothing else needs to be stored. Several relays may write one collection, each with
a subscription of its own: all of them append the same, so the one that comes second follows on from the chain's end.

Invariant: contents (``upsert``) are read where the feed begins, and the feed is exact from there on. A critical hold,
which all relays of the collection share, keeps them readable (`ContentsHold`).

A run that fails keeps nothing: the next one reads where the collection ends, and its contents, anew.
"""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from slate_async.arguments import BytesLike, key_bytes
from slate_async.bridges.contents import STATE_BYTES, Contents
from slate_async.bridges.contents_hold import ContentsHold
from slate_async.bridges.envelopes import Envelope, Enveloping, KeySpan, LogEnvelope, UpsertEnvelope, relay_schema
from slate_async.bridges.joined import check_fits, runtime_of
from slate_async.bridges.one_run import OneRun
from slate_async.bridges.relay_run import MOST_TRIES, OvertakenError, RelayProgress, RelayRun
from slate_async.collections.collection import Collection
from slate_async.collections.core.errors import SinceError
from slate_async.collections.core.frontier import Frontier, FrontierLike
from slate_async.collections.core.times import TimeKind
from slate_async.database.db import Db
from slate_async.database.reader import DbReader
from slate_async.engine.changes.feed import ChangeFeed
from slate_async.errors import InvalidError, NotFoundError, UnavailableError

logger = logging.getLogger(__name__)
PATIENCE_S = 60.0
"""A standby that cannot write waits so long for another relay to move the collection on."""
PAUSE_S = 1.0
LAG_S = 10.0
"""A writer learns so late at most that a row is durable, which a relay beside a reader has brought already."""
SHORT_PAUSE_S = 0.05


def relay(
    database: Db | DbReader,
    subscription: str,
    collection: Collection,
    *,
    envelope: Envelope = "log",
    start: BytesLike | None = None,
    end: BytesLike | None = None,
    state_bytes: int = STATE_BYTES,
) -> Relay:
    """What writes the changes of ``database`` (a `Db` or `DbReader`) into ``collection``, whose appends are
    ``compare`` and whose data are `relay_schema`.

    subscription: of the change feed; each relay has its own
    envelope: ``"log"``, every put and delete; ``"upsert"``, the rows that are there. Those keep a critical hold,
    ``upsert-relay``, on the collection. When none of them is to run again, give that up:
    ``(await collection.critical("upsert-relay")).expire()``
    start, end: only keys of ``[start, end)`` go into the collection, the same for all its relays. It ends where the
    feed is all the same: so the times of several collections of one database say the same
    state_bytes: memory for the contents of an ``upsert`` collection; beyond it the relay fails

    Use ``async with``, and `Relay.run` within. Raises `InvalidError`."""
    relay_schema(envelope)
    if isinstance(state_bytes, bool) or not isinstance(state_bytes, int) or state_bytes < 1:
        raise InvalidError(f"state_bytes is a positive number of bytes, not {state_bytes!r}")
    span = KeySpan(None if start is None else key_bytes(start), None if end is None else key_bytes(end))
    return Relay(database, subscription, collection, envelope, span, state_bytes)


class Relay:
    """Made by `relay`. Its runs end with the ``async with`` block."""

    def __init__(
        self,
        database: Db | DbReader,
        subscription: str,
        collection: Collection,
        envelope: Envelope,
        span: KeySpan,
        state_bytes: int,
    ) -> None:
        self._database = database
        self._runtime = runtime_of(database)
        self._subscription = subscription
        self._collection = collection
        self._envelope = envelope
        self._span = span
        self._state_bytes = state_bytes
        self._progress = RelayProgress(collection.name)
        self._one_run = OneRun()

    @property
    def upper(self) -> Frontier:
        """Where the collection ended when that was last known."""
        return self._progress.upper

    def metrics(self) -> dict[str, int | float]:
        """By dotted name: counters since the relay was made; ``relay.upper`` and ``relay.state_bytes`` are of now."""
        progress = self._progress
        return {
            "relay.runs": progress.runs,
            "relay.rows": progress.rows,
            "relay.updates": progress.updates,
            "relay.appends": progress.appends,
            "relay.mismatches": progress.mismatches,
            "relay.upper": 0 if progress.upper.is_done else progress.next,
            "relay.state_bytes": progress.state_bytes,
        }

    async def run(self, until: FrontierLike | None = None) -> None:
        """Write changes into the collection as they come: until it ends at or beyond ``until``, else for ever.

        May be cancelled, and after any error called again: it goes on where the collection ends. One run at a time.

        Raises `InvalidError` if the subscription was acknowledged beyond the end of the collection, if the database
        ends before it, if the collection is none for this envelope, and beyond ``state_bytes``. Raises `NotFoundError`
        if changes that come next are no longer kept, or the subscription was taken over; `ClosedError` if collection
        or database are; `LeaseLostError` if the hold of upserts is given up meanwhile; `SinceError` if it was, and the
        contents cannot be read any more; `FencedError`, `UnavailableError`, `CorruptionError`."""
        with self._one_run.running():
            goal = None if until is None else Frontier.of(until, TimeKind.U64)
            try:
                for _ in range(MOST_TRIES):
                    try:
                        return await self._run(goal)
                    except OvertakenError:
                        said = "%s: another relay was faster; going on from %s"
                        logger.info(said, self._collection.name, self._progress.upper)
            finally:
                self._progress.state_bytes = 0
        raise UnavailableError(f"other relays were faster {MOST_TRIES} times in a row; run it again")

    async def __aenter__(self) -> Self:
        check_fits(await self._collection.info(), relay_schema(self._envelope))
        self._one_run.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Cancels a run that is under way in another task, and waits for its end."""
        await self._one_run.leave()

    # ---- a run

    async def _run(self, goal: Frontier | None) -> None:
        progress = self._progress
        progress.runs += 1
        hold = await self._contents_hold()
        async with AsyncExitStack() as stack:
            writer = await stack.enter_async_context(self._collection.writer())
            progress.at(writer.upper)
            if goal is not None and goal <= progress.upper:
                return
            feed = await self._open_feed(stack)
            if progress.begun and feed.snapshot_seq >= progress.next:
                await self._wait_beyond(feed.snapshot_seq)
            envelope = await self._enveloping()
            if progress.begun:
                await feed.acknowledge(progress.next - 1)
            logger.info("%s: relaying changes after %d", self._collection.name, feed.seq)
            run = RelayRun(writer, feed, envelope, self._span, progress, self._runtime.offload, hold)
            await run.until(goal)

    async def _open_feed(self, stack: AsyncExitStack) -> ChangeFeed:
        """The changes that the collection does not have."""
        progress = self._progress
        after = max(progress.next - 1, 0)
        await self._known(after)
        feed = self._database.changes(from_seq=after, subscription=self._subscription)
        said = (
            f"{self._collection.name} ends at {progress.upper}, and the subscription {self._subscription!r} cannot go"
            " on from there"
        )
        try:
            return await stack.enter_async_context(feed)
        except NotFoundError as error:
            raise NotFoundError(f"{said}: {error}") from error
        except InvalidError as error:
            raise InvalidError(f"{said}: {error}") from error

    async def _known(self, seq: int) -> None:
        """Wait for a while until the database knows that rows up to ``seq`` are durable. Raises `FencedError` if it
        does not because another process writes."""
        database, clock = self._database, self._runtime.clock
        if not isinstance(database, Db):
            return  # a reader looks when its feed begins
        end = clock.monotonic() + LAG_S
        while database.status().durable_seq < seq and clock.monotonic() < end:
            await clock.sleep(SHORT_PAUSE_S)
        if database.status().durable_seq < seq:
            await database.confirm()

    async def _wait_beyond(self, snapshot_seq: int) -> None:
        """The feed knows changes only after ``snapshot_seq``; those before are left to other relays."""
        progress = self._progress
        clock = self._runtime.clock
        end, seen = clock.monotonic() + PATIENCE_S, progress.upper
        while clock.monotonic() < end:
            await clock.sleep(PAUSE_S)
            async with self._collection.writer() as writer:
                progress.at(writer.upper)
            if progress.next > snapshot_seq:
                raise OvertakenError
            if progress.upper != seen:
                end, seen = clock.monotonic() + PATIENCE_S, progress.upper
        raise NotFoundError(
            f"{self._collection.name} ends at {progress.upper}, but the subscription {self._subscription!r} knows"
            f" changes only after {snapshot_seq}: those between were compacted, and no other relay has brought them"
        )

    async def _contents_hold(self) -> ContentsHold | None:
        """What keeps the contents readable, held before anything rests on them; a log has none."""
        if self._envelope == "log":
            return None
        return await ContentsHold.open(self._collection, self._runtime.clock)

    async def _enveloping(self) -> Enveloping:
        progress = self._progress
        if self._envelope == "log":
            return LogEnvelope()
        contents = Contents(self._state_bytes, self._collection.name)
        if progress.begun:
            try:
                async with self._collection.reader(f"relay {self._subscription}") as reader:
                    async with await reader.snapshot(progress.next - 1) as snapshot:
                        async for batch in snapshot.batches():
                            contents.load(batch)
            except SinceError as error:
                async with self._collection.writer() as writer:
                    if writer.upper != progress.upper:
                        raise OvertakenError from error
                raise
        progress.state_bytes = contents.nbytes
        return UpsertEnvelope(contents)
