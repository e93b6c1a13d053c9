"""`ReadHandle`: a leased hold on a collection, and what is read under it.

States: open -> closed (by `expire`, or because its hold was lost: then every call raises `LeaseLostError`). While it is
open it renews itself. All methods belong to the event loop that opened it.

Ordering rules: a new hold is written, THEN the head is read, and only then it is believed (C11). A version is used as
soon as it is read, under the older hold; the hold moves to none that is beyond one in use (C13). While listeners are
open, since stays a step behind what they have given (C2).

Rules C2, C3, C10 to C15 of collections.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from weakref import WeakSet

from slate_async.collections.core import reading
from slate_async.collections.core.area import Area
from slate_async.collections.core.coverage import Taken
from slate_async.collections.core.errors import SinceError
from slate_async.collections.core.filtering import ConditionLike, conditions_of
from slate_async.collections.core.frontier import Frontier, FrontierLike
from slate_async.collections.core.times import Time, TimeLike
from slate_async.collections.reader.context import ReaderContext
from slate_async.collections.reader.follow import PendingBatch, follower
from slate_async.collections.reader.listen import Listener, ListenSource
from slate_async.collections.reader.pins import Pins
from slate_async.collections.reader.registering import cloned_hold, registered_hold
from slate_async.collections.reader.renewal import KeptHold
from slate_async.collections.reader.snapshot import Snapshot, SnapshotSource
from slate_async.collections.stats import area_metrics
from slate_async.errors import ClosedError, InvalidError, UnavailableError
from slate_async.runtime.concurrent import run_to_completion
from slate_async.runtime.loop_handle import LoopHandle
from slate_async.runtime.supervisor import Supervisor


async def open_reader(context: ReaderContext, note: str = "") -> ReadHandle:
    """A read handle with a hold of its own, at what the collection may be read at now.

    note: stored with the hold, for people. Raises `ClosedError` if the collection was deleted, `InvalidError` beyond
    ``max_holds``, `LeaseLostError` if this process stood still for a lease meanwhile, `UnavailableError`."""
    return await make_reader(context, lambda supervisor: registered_hold(context, supervisor, note))


async def make_reader(
    context: ReaderContext, register: Callable[[Supervisor], Awaitable[tuple[KeptHold, Area]]]
) -> ReadHandle:
    """The read handle of a hold that ``register`` had believed, with the version to read."""
    failures: list[BaseException] = []
    supervisor = Supervisor(f"{context.name}/reader", failures.append)
    try:
        hold, head = await register(supervisor)
    except BaseException:
        await supervisor.close()
        raise
    made = ReadHandle(context, hold, head, supervisor, failures)
    try:
        context.adopted(made)
    except BaseException:
        await run_to_completion(made.expire())
        raise
    return made


class ReadHandle(LoopHandle):
    """Made by `open_reader`; see the module docstring. ``async with`` expires it at the end."""

    def __init__(
        self, context: ReaderContext, hold: KeptHold, area: Area, supervisor: Supervisor, failures: list[BaseException]
    ) -> None:
        super().__init__(f"this reader of {context.name}")
        self._context = context
        self._hold = hold
        self._area = area
        self._supervisor = supervisor
        self._failures = failures  # of the renewal
        self._pins = Pins()
        self._listeners: WeakSet[Listener] = WeakSet()
        self._since = hold.handle.since  # what was given up may be written later
        self._cloning: list[Frontier] = []  # sinces of clones that are being made; none is given up in the store
        self._downgraded_ms: float | None = None
        supervisor.spawn("renewal", self._renew())

    @property
    def since(self) -> Frontier:
        """The handle may be asked about times beyond it."""
        return self._since

    async def snapshot(self, as_of: TimeLike, where: Iterable[ConditionLike] = ()) -> Snapshot:
        """The contents at ``as_of``, as soon as they are definite: while updates at or before it may still be appended,
        this waits.

        where: conditions on data columns, such as ``("total", ">", 5)``; all have to hold

        Raises `SinceError` if the handle has given ``as_of`` up, `InvalidError`, `LeaseLostError`, `ClosedError`,
        `UnavailableError`. A cancelled call changes nothing."""
        self._check()
        schema = self._context.schema
        time, conditions = schema.kind.time(as_of), conditions_of(where, schema)
        following = follower(self._context)
        area, coverage = self._area, self._area.upper
        taken: list[Taken[PendingBatch]] = []
        while True:
            noted, looked_ms = self._context.pokes.count, self._context.now_ms()
            if not self.since.less_equal(time):
                raise self._given_up(time)
            if area is not self._area:  # what was found is pending no more, or stands in the version as well
                area, coverage, taken = self._area, self._area.upper, []
            if not reading.may_read(area, time):
                raise await self._hold.explain(
                    f"version {area.version} is compacted to {area.since}, past {Frontier([time])}",
                    f"merged area of {self._context.name}",
                )
            pin = self._pins.take(area)
            try:
                found = await following.look(coverage)
            except BaseException:
                pin.release()
                raise
            taken, coverage = [*taken, *found.taken], found.coverage
            if not coverage.less_equal(time):
                self._context.stats.snapshots += 1
                source = SnapshotSource(self._context, self._hold, tuple(taken), time, conditions, self._check)
                return Snapshot(source, pin, coverage)
            pin.release()
            await self._context.pause_for_updates(noted, looked_ms)
            self._check()
            await self._refresh()

    def listen(self, *, as_of: TimeLike | None = None, start: FrontierLike | None = None) -> Listener:
        """All updates that a snapshot at ``as_of`` does not hold; or, after a restart, all at times beyond ``start``,
        which is the upper of the last delta that was stored. Give one of both.

        So ``async for delta in reader.listen(as_of=119)`` goes on where ``reader.snapshot(119)`` ends. Any number of
        listeners may be open at once.

        Raises `SinceError` if the handle has given up ``as_of``, or the time just before ``start``; `InvalidError`,
        `LeaseLostError`, `ClosedError`."""
        self._check()
        kind = self._context.schema.kind
        if (as_of is None) == (start is None):
            raise InvalidError("listen takes as_of, where a snapshot ended, or start, where a listener did")
        if as_of is not None:
            return self._listener(kind.time(as_of), whole=False)
        covered = Frontier.of(start, kind) if start is not None else Frontier.minimum(kind)
        if not reading.is_cut_at(self.since, covered):
            text = (
                f"a listener of {self._context.name} cannot go on from {covered}, because since is {self.since}: it has"
                " to be a step before the start"
            )
            raise SinceError(text, since=self.since)
        return self._opened(Listener(self._listening(), covered, None))

    def subscribe(self, as_of: TimeLike) -> Listener:
        """The contents at ``as_of`` as one delta, once they are definite, and then what `listen` gives from there.

        That first delta is in memory as a whole, because a delta is stored or not, and half of it would be no contents
        at any time. Of a large collection read `snapshot` in batches, then `listen` from there. Raises as these.
        """
        self._check()
        return self._listener(self._context.schema.kind.time(as_of), whole=True)

    async def downgrade_since(self, since: FrontierLike) -> None:
        """Give up times that are not beyond ``since``, so that they may be compacted. A since never goes back.

        While listeners are open, one step behind what they have given is kept, so that they can be started again from
        there: ``await reader.downgrade_since(delta.upper)`` is right after each delta that was stored.

        What was given up is written at most every ``downgrade_interval_ms``; a call within that waits for nothing.

        Raises `LeaseLostError`, `UnavailableError` past the deadline: they are given up all the same."""
        self._check()
        wanted = Frontier.of(since, self._context.schema.kind)
        for listener in self._listeners:
            if listener.is_open and not wanted <= (limit := listener.restartable_since()):
                wanted = wanted.meet(limit)
        self._since = self._since.join(wanted)
        if self._is_downgrade_due():
            await self._write()

    async def clone(self, note: str = "") -> ReadHandle:
        """One more handle that may ask for what this one may, with a hold and a lease of its own.

        note: stored with its hold, for people. Raises `LeaseLostError`, `InvalidError` beyond ``max_holds``,
        `ClosedError`, `UnavailableError`."""
        self._check()
        area, since, pin = self._area, self._since, self._pins.take(self._area)
        self._cloning.append(since)
        try:
            return await make_reader(
                self._context,
                lambda supervisor: cloned_hold(self._context, supervisor, note, self._hold, area, since),
            )
        finally:
            self._cloning.remove(since)
            pin.release()

    def metrics(self) -> dict[str, int | float]:
        """Counters since it was opened, its listeners' included, and what is in the version in use, by dotted name."""
        behind = max((listener.lag_times for listener in self._listeners if listener.is_open), default=0)
        return {
            **self._context.stats.metrics(),
            "collections.listen.lag_times": behind,
            **area_metrics(self._area),
        }

    async def expire(self) -> None:
        """Give everything up and close. Idempotent. May be cancelled: it goes on, and another call waits for it.

        Raises `UnavailableError` if the hold could not be removed: it ends with its lease."""
        await self._end()

    async def _finish(self) -> None:
        await self._supervisor.close()
        await self._hold.remove()

    async def _renew(self) -> None:
        """Look at the head, and write the hold when it is time: that renews and moves it in one request.

        Handles of one process share these looks: a thousand that are idle cost about as many requests as one."""
        while True:
            await self._context.pause()
            with suppress(UnavailableError):  # the hold is renewed all the same: versions may lie elsewhere
                await self._refresh(self._context.poll_interval_ms / 2)
            with suppress(UnavailableError):  # the lease may end meanwhile: then the next write says so
                if self._hold.is_due(self._pins.lowest(self._area.version)) or self._is_downgrade_due():
                    await self._write()

    def _is_downgrade_due(self) -> bool:
        if self._writable_since() <= self._hold.handle.since:
            return False
        written_ms = self._downgraded_ms
        return written_ms is None or self._context.now_ms() - written_ms >= self._context.downgrade_interval_ms

    async def _write(self) -> None:
        """Renew the hold, and move it to the lowest version that is used and to since, in one request."""
        self._downgraded_ms = self._context.now_ms()
        await self._hold.write(version=self._pins.lowest(self._area.version), since=self._writable_since())

    def _writable_since(self) -> Frontier:
        """What the hold may move to: what was given up, but nothing that a clone is about to take over (C12)."""
        since = self._since
        for cloned in self._cloning:
            since = since.meet(cloned)
        return since

    async def _refresh(self, max_age_ms: float = 0.0) -> None:
        """Use the newest version from now on, or one that was looked up so short ago, under the hold that there is."""
        head = await self._context.poll(max_age_ms=max_age_ms)
        if head.version > self._area.version:
            self._area = head
        for listener in self._listeners:
            listener.move(self._area)

    def _listener(self, as_of: Time, *, whole: bool) -> Listener:
        if not self.since.less_equal(as_of):
            raise self._given_up(as_of)
        return self._opened(Listener(self._listening(), reading.after(as_of), as_of, whole=whole))

    def _listening(self) -> ListenSource:
        return ListenSource(self._context, self._hold, self._pins, lambda: self._area, self.snapshot, self._check)

    def _opened(self, listener: Listener) -> Listener:
        self._listeners.add(listener)
        return listener

    def _given_up(self, as_of: Time) -> SinceError:
        text = f"{reading.too_early(as_of, self.since)} of this reader of {self._context.name}"
        return SinceError(text, since=self.since)

    def _check(self) -> None:
        self._guard.check()
        self._hold.check()
        if self._area.deleted:
            raise ClosedError(f"{self._context.name} was deleted")
        if self._failures:
            raise self._failures[0]
