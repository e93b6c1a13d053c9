"""The store of one process goes away for longer than it tries, while another one may take over."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence

import slate_async as slate
from slate_async.errors import SlateError
from tests.simulation.checkers import Violation
from tests.simulation.faults import Fault, Rule
from tests.simulation.history import Kind, Write
from tests.simulation.scenarios.engine.rows import MARKER
from tests.simulation.scenarios.engine.stage import Stage, scripted
from tests.simulation.scenarios.engine.workload import EXPECTED, Session
from tests.simulation.scenarios.protocol import Scenario

POLL_MS = 1_000
PATIENCE_SECONDS = 10 + 1
"""`retry_deadline_ms` of `small_settings`, and what it takes to see that it is over."""
BACK_SECONDS = 2 * POLL_MS / 1000
LIMIT_SECONDS = 120
MANY = 1 << 30


class Owner(Session):
    """A writer whose store goes away. ``numbers``: of all writes that it ever applied."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.database, stage.world.node("owner"), poll_ms=POLL_MS)
        self.numbers: dict[int, Write] = {}

    async def send(self) -> None:
        """One write, applied and waited for to its end."""
        write = self._begin()
        try:
            handle = await self._call(write)(False)
            write.seq = handle.seq
            before = self.numbers.setdefault(handle.seq, write)
            if before is not write:
                raise Violation("number-twice", f"{write} has the number of {before}")
            await handle.durable()
        except EXPECTED as error:
            write.refused = isinstance(error, SlateError) and error.outcome == "not_applied"
        else:
            self.history.ack(write)

    async def until(self, out: bool) -> None:
        """Wait until writes are refused, or taken again, or it has closed."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while not self.has_ended and (self.db.status().outage is not None) != out:
                await self.node.runtime.clock.sleep(0.05)


async def outage(stage: Stage) -> None:
    """The store goes away under a busy writer, time and again, and comes back."""
    owner = Owner(stage)
    await _opened(owner)
    for _ in range(stage.rng.randint(1, 3)):
        await _one_outage(stage, owner)
        await owner.node.run(owner.until(out=False))
        if owner.has_ended:
            raise Violation("closed", f"nobody took over, and the writer closed itself: {owner.db._cause!r}")
        await owner.node.run(_judge_memory(owner))
    await owner.node.run(_feed(owner))
    await owner.node.run(owner.close())


async def outage_with_rival(stage: Stage) -> None:
    """Another writer takes over while the store is away from the first one, which comes back and must give way."""
    owner = Owner(stage)
    await _opened(owner)
    rival = Session(stage.database, stage.world.node("rival"), poll_ms=POLL_MS)

    async def take_over() -> None:
        if await rival.open():
            for _ in range(stage.rng.randint(0, 3)):
                await rival.write()

    during = stage.rng.random() < 0.7
    taking = None if during else stage.begin(rival.node, _after(stage.rng.uniform(9, 14), take_over))
    await _one_outage(stage, owner, None if taking else lambda: rival.node.run(take_over()))
    if taking is not None:
        await rival.node.join(taking)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LIMIT_SECONDS):
            await owner.node.run(_ended(owner))
    if owner.db.status().state != "fenced":
        raise Violation("successor", f"the first writer is {owner.db.status().state} though another one took over")
    await rival.node.run(_lives(rival))
    await rival.node.run(_feed(rival))
    await owner.node.run(owner.close())


async def outage_claim_overtaken(stage: Stage) -> None:
    """Another writer takes over while the first one, whose store is back, sends the claim by which it opens again."""
    owner = Owner(stage)
    await _opened(owner)
    with away(stage, owner):
        stage.begin(owner.node, owner.send())
        await owner.node.run(owner.until(out=True))
    claim = stage.hold(owner.node, "put-create", "manifest/")
    await claim.caught()
    rival = await stage.writer("rival")
    await stage.write(rival, stage.rng.randint(0, 2))
    claim.release()
    await owner.node.run(owner.until(out=False))
    await rival.node.run(_lives(rival))
    await owner.node.run(owner.close())


async def _after(seconds: float, work: Callable[[], Awaitable[None]]) -> None:
    await asyncio.sleep(seconds)
    await work()


async def _ended(owner: Owner) -> None:
    with contextlib.suppress(*EXPECTED):
        await owner.db.wait_closed()


async def _lives(rival: Session) -> None:
    try:
        await rival.db.confirm()
        await rival.write()
    except SlateError as error:
        raise Violation("successor", f"who took over meanwhile was ended: {error}") from error


async def _opened(owner: Owner) -> None:
    if not await owner.node.run(owner.open()):
        raise Violation("stuck", "nobody could take over a calm database")
    await owner.node.run(_sends(owner, owner.rng.randint(1, 4)))


async def _one_outage(stage: Stage, owner: Owner, meanwhile: Callable[[], Awaitable[None]] | None = None) -> None:
    """From its beginning to its end, with writes before, at the end of the writer's patience and after it."""
    before = owner.db.snapshot() if stage.rng.random() < 0.5 else None
    began = owner.history.now()
    with away(stage, owner):
        sending = [stage.begin(owner.node, owner.send()) for _ in range(stage.rng.randint(1, 6))]
        await asyncio.sleep(stage.rng.uniform(0, 2))
        sending += [stage.begin(owner.node, owner.send()) for _ in range(stage.rng.randint(0, 4))]
        during = owner.db.snapshot()
        await owner.node.run(owner.until(out=True))
        if owner.history.now() - began > PATIENCE_SECONDS:
            raise Violation("limit", f"the writer tried for {owner.history.now() - began:.1f} s")
        if not owner.has_ended:
            for task in sending:
                await owner.node.join(task)
            await owner.node.run(_refused_at_once(owner))
            await owner.node.run(_judge_memory(owner))
        if meanwhile is not None:
            await meanwhile()
        await asyncio.sleep(stage.rng.uniform(0, 5))
    returned = owner.history.now()
    await owner.node.run(owner.until(out=False))
    if owner.has_ended:
        return
    if owner.history.now() - returned > BACK_SECONDS:
        raise Violation("limit", f"it took {owner.history.now() - returned:.1f} s to go on")
    await owner.node.run(_sends(owner, stage.rng.randint(0, 3)))
    for snapshot in (during, before):
        if snapshot is not None:
            await owner.node.run(_judge_snapshot(owner, snapshot))
            snapshot.close()


async def _sends(owner: Owner, times: int) -> None:
    for _ in range(times):
        await owner.send()


@contextlib.contextmanager
def away(stage: Stage, *sessions: Session, landing: bool = True) -> Iterator[None]:
    """Nothing that ``sessions`` send is answered; some of it lands all the same, now or late, if ``landing``."""
    rng = stage.world.rng
    nodes = [session.node for session in sessions]
    names = [node.name for node in nodes]
    often, kinds = rng.choice((0.0, 0.3, 0.8)), (Fault.LOST_RESPONSE, Fault.LATE)

    def rule(fault: Fault, share: float) -> Rule:
        return Rule(lambda sender, *_: sender in names and rng.random() < share, fault, MANY)

    rules = [stage.world.rule(rule(kind, often / 2)) for kind in kinds if landing]
    rules.append(stage.world.rule(rule(rng.choice((Fault.FAILED_BEFORE, Fault.HELD)), 1.0)))
    try:
        yield
    finally:
        for installed in rules:
            installed.times = 0
        network = stage.world.network
        for request in [held for held in network.held.values() if held.sender in nodes]:
            network.release(request)


async def _refused_at_once(owner: Owner) -> None:
    began = owner.history.now()
    await owner.send()
    if owner.history.now() > began:
        raise Violation("refused", "a write that no store would take was not refused at once")


async def _judge_memory(owner: Owner) -> None:
    """What was refused is nowhere."""
    for write in list(owner.history.writes.values()):
        if write.refused:
            with contextlib.suppress(slate.UnavailableError):  # of SSTs that are not cached
                if await owner.db.get(_marker(write)) is not None:
                    raise Violation("refused", f"{write} is in memory")
    await owner.look(Kind.MEMORY)


async def _judge_snapshot(owner: Owner, snapshot: slate.Snapshot) -> None:
    """All that it shows is in the database."""
    for write in list(owner.history.writes.values()):
        if await snapshot.get(_marker(write)) is not None and await owner.db.get(_marker(write)) is None:
            raise Violation("undone", f"a snapshot shows {write}, which is not in the database")


def _marker(write: Write) -> bytes:
    return MARKER + b"%06d" % write.id


async def _feed(session: Session) -> None:
    """A change feed from the beginning has every marker that is there."""
    await session.db.flush()
    async with session.db.changes(from_seq=0, follow=False) as feed:
        told = {change.key: change.seq async for change in feed}
    there = {row.key: row.seq async for row in session.db.scan(prefix=MARKER).rows()}
    missing = {key: seq for key, seq in there.items() if told.get(key) != seq}
    if missing:
        raise Violation("feed", f"a change feed gave {told} where {there} is")


OUTAGES: Sequence[Scenario] = (
    scripted("outage", outage),
    scripted("outage-with-rival", outage_with_rival),
    scripted("outage-claim-overtaken", outage_claim_overtaken, metadata="put-if-absent"),
)
