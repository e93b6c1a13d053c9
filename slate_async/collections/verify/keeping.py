"""`Keeping`: a hold under which everything stays that any reader may need, for as long as a verification takes.

It is registered at the floor of the head, not at the head itself, so all versions that are kept stay, and all that they
name, and the pending area from the upper of the lowest one on. Whatever of that is missing while it stands was lost
(C15).

Rules C11 and C15 of collections.
"""

from __future__ import annotations

from dataclasses import replace

from slate_async.collections.core import holding
from slate_async.collections.core.area import Area
from slate_async.collections.core.edits import check_open
from slate_async.collections.reader.context import ReaderContext
from slate_async.collections.reader.renewal import KeptHold
from slate_async.errors import UnavailableError
from slate_async.runtime.supervisor import Supervisor

NOTE = "verification"
REGISTRATIONS = 100
RENEWALS = 3
"""The hold is written so often in each lease."""


class Keeping:
    """Made by `begin`. ``head``: the newest version, read after the hold was in; ``lowest``: versions from it on stay,
    if they are stored (0 is not)."""

    def __init__(
        self, context: ReaderContext, hold: KeptHold, head: Area, supervisor: Supervisor, failures: list[BaseException]
    ) -> None:
        self.head = head
        self.lowest = hold.handle.version or 0
        self.reader = hold.handle.reader
        self._context = context
        self._hold = hold
        self._supervisor = supervisor
        self._failures = failures
        supervisor.spawn("renewal", self._renew())

    @classmethod
    async def begin(cls, context: ReaderContext) -> Keeping:
        """Register a hold. Raises `CorruptionError` for a head that is damaged, `ClosedError`, `UnavailableError`."""
        head = await context.head()
        check_open(head)
        made = holding.registering(context.runtime.ids.token(), head, context.lease_ms, NOTE)
        failures: list[BaseException] = []
        supervisor = Supervisor(f"{context.name}/verification", failures.append)
        hold = KeptHold(context, replace(made, version=head.floor), supervisor)
        try:
            await hold.write()
            for _ in range(REGISTRATIONS):
                head = await context.head()
                check_open(head)
                if holding.registered(hold.handle, head):
                    return cls(context, hold, head, supervisor, failures)
                await hold.write(version=max(hold.handle.version or 0, head.floor), since=head.bound)
        except BaseException:
            await supervisor.close()
            raise
        await supervisor.close()
        raise UnavailableError(f"{context.name} was compacted faster than a hold on it could be written")

    async def check(self) -> None:
        """Raise `LeaseLostError` unless the hold stood until now, `ClosedError` if the collection was deleted."""
        check_open(await self._context.head())
        if self._failures:
            raise self._failures[0]
        await self._hold.check_standing()

    async def end(self) -> None:
        """Give the hold up. One that could not be removed ends with its lease."""
        await self._supervisor.close()
        try:
            await self._hold.remove()
        except UnavailableError:
            return

    async def _renew(self) -> None:
        while True:
            await self._context.runtime.clock.sleep(self._context.lease_ms / 1000 / RENEWALS)
            try:
                await self._hold.write()
            except UnavailableError:
                continue  # the lease may end meanwhile: then the next write says so
