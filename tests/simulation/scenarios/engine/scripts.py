"""Interleavings that chance finds too rarely, each laid out for the rule that it needs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from slate_async.storage.log.names import PREFIX, contiguous_key, epoch_key, parse_contiguous
from tests.simulation.checkers import Violation
from tests.simulation.faults import Fault, Rule
from tests.simulation.history import Kind
from tests.simulation.scenarios.engine.clocks import CLOCK_SCRIPTS
from tests.simulation.scenarios.engine.compactor import Compactor
from tests.simulation.scenarios.engine.follower import Follower
from tests.simulation.scenarios.engine.passed import PASSED_SCRIPTS
from tests.simulation.scenarios.engine.stage import Stage, scripted
from tests.simulation.scenarios.engine.workload import Session
from tests.simulation.scenarios.hold import Hold
from tests.simulation.scenarios.protocol import Scenario

SOON_SECONDS = 0.5
COMPACTIONS = 20
"""Each takes a few positions of the log."""


async def stale_ids(stage: Stage) -> None:
    """An opener's fence lands at an id that was compacted and collected, where a follower and another opener look."""
    owner = await stage.writer("owner")
    await stage.write(owner, stage.rng.randint(1, 3))
    node = stage.world.node("follower")
    follower = Follower(stage.database, node, await stage.head())

    async def poll() -> None:
        await node.run(follower.poll())

    async def look() -> None:
        await node.run(follower.look())

    await behind_a_stale_fence(stage, owner, poll, look)


async def behind_a_stale_fence(
    stage: Stage, owner: Session, poll: Callable[[], Awaitable[None]], look: Callable[[], Awaitable[None]]
) -> None:
    """What happens then, to a reader that does ``poll`` and ``look``."""
    compactor = await _compactor(stage, "compactor")
    await poll()
    fence, stale = await _fence_under_way(stage)
    opener = stage.session("opener")
    looking = stage.hold(opener.node, "list", PREFIX)
    opening = stage.begin(opener.node, opener.open())
    await looking.caught()
    listing = stage.hold(opener.node, "list", PREFIX)  # the one after its claim
    looking.release()
    await listing.caught()

    await stage.write(owner, stage.rng.randint(2, 5))
    await _compact_past(stage, compactor, stale)
    await stage.write(owner, stage.rng.randint(1, 3))
    others = range(stale + 1, (await stage.head()).log_start)
    await stage.collect(*map(contiguous_key, [stale, *(key for key in others if stage.rng.random() < 0.2)]))
    fence.release()
    await poll()
    listing.release()
    await opener.node.join(opening)
    await stage.write(opener, 2)
    for _ in range(3):
        await poll()
        await look()


async def fence_below_the_log(stage: Stage) -> None:
    """The fence of the newest claim lands at an id that was compacted and collected; its owner writes behind it."""
    owner = await stage.writer("owner")
    await stage.write(owner, stage.rng.randint(1, 3))
    compactor = await _compactor(stage, "compactor")
    sleeper = stage.session("sleeper")
    fence = stage.hold(sleeper.node, "put-create", PREFIX)
    opening = stage.begin(sleeper.node, _open_and_write(sleeper))
    key = await fence.caught()
    stale = parse_contiguous(key[key.index(PREFIX) :])
    await stage.write(owner, stage.rng.randint(2, 5))
    await _compact_past(stage, compactor, stale)
    await stage.write(owner, stage.rng.randint(1, 3))
    await stage.collect(*map(contiguous_key, range(stale, (await stage.head()).log_start)))
    fence.release()
    await sleeper.node.join(opening)


async def _open_and_write(session: Session) -> None:
    if await session.open():
        await session.write()
        await session.db.flush()


async def stale_compactor(stage: Stage) -> None:
    """The same under a compactor that reads while another one takes over, compacts and has the log collected."""
    owner = await stage.writer("owner")
    slow = await _compactor(stage, "slow")
    await stage.write(owner, stage.rng.randint(1, 3))
    fence, stale = await _fence_under_way(stage)
    await stage.write(owner, stage.rng.randint(2, 5))
    reading = stage.hold(slow.handle.node, "get", contiguous_key(stale))
    work = stage.begin(slow.handle.node, _compact_on(slow))
    await reading.caught()
    compactor = await _compactor(stage, "compactor")
    await _compact_past(stage, compactor, stale)
    await stage.write(owner, stage.rng.randint(1, 3))
    await stage.collect(contiguous_key(stale))
    fence.release()
    reading.release()
    await slow.handle.node.join(work)


async def deleted_under_an_opener(stage: Stage) -> None:
    """A log object is compacted and collected between an opener's listing and its reading."""
    owner = await stage.writer("owner")
    compactor = await _compactor(stage, "compactor")
    first = owner.db.status().log_end + 1
    await stage.write(owner, stage.rng.randint(3, 6))
    doomed = stage.rng.randint(first, owner.db.status().log_end)
    contiguous = stage.database.params.protocol == "contiguous"
    key = contiguous_key(doomed) if contiguous else epoch_key(owner.epoch, doomed)
    opener = stage.session("opener")
    reading = stage.hold(opener.node, "get", key)
    opening = stage.begin(opener.node, opener.open())
    await reading.caught()
    await _compact_past(stage, compactor, doomed)
    await stage.collect(key)
    reading.release()
    await opener.node.join(opening)
    await stage.write(opener, 1)


async def stuck_put(stage: Stage) -> None:
    """A writer's put is on its way for long, others land behind it; another writer takes over, and writes there."""
    owner = await stage.writer("owner")
    await stage.write(owner, stage.rng.randint(0, 3))
    stuck = stage.hold(owner.node, "put-create", contiguous_key(owner.db.status().log_end + 1))
    for _ in range(stage.rng.randint(8, 12)):
        stage.begin(owner.node, owner.write())
        await asyncio.sleep(0.1)
    await stuck.caught()
    if stage.rng.random() < 0.5:
        owner.node.crash()
    successor = await stage.writer("successor")
    await stage.write(successor, stage.rng.randint(2, 4))
    stuck.release()
    await asyncio.sleep(SOON_SECONDS)


async def flush_ahead(stage: Stage) -> None:
    """A flush into L0 while a log object is on its way, and a compaction of what it made."""
    owner = await stage.writer("owner")
    compactor = await _compactor(stage, "compactor")
    await stage.write(owner, stage.rng.randint(3, 8))
    put = stage.hold(owner.node, "put-", PREFIX)
    for _ in range(stage.rng.randint(2, 5)):
        stage.begin(owner.node, owner.write())
    await put.caught()
    stage.begin(owner.node, owner.flush_l0())
    await asyncio.sleep(SOON_SECONDS)
    await compactor.handle.node.run(compactor.compact())
    await owner.node.run(owner.db.confirm())
    await owner.node.run(owner.look(Kind.DURABLE))
    put.release()
    await asyncio.sleep(SOON_SECONDS)
    await owner.node.run(owner.look(Kind.DURABLE))


async def flush_ahead_then_crash(stage: Stage) -> None:
    """A flush into L0 while a log object is on its way, and a crash before it lands."""
    owner = await stage.writer("owner")
    await stage.write(owner, stage.rng.randint(0, 3))
    put = stage.hold(owner.node, "put-", PREFIX)
    for _ in range(stage.rng.randint(1, 4)):
        stage.begin(owner.node, owner.write())
    await put.caught()
    stage.begin(owner.node, owner.flush_l0())
    await asyncio.sleep(SOON_SECONDS)
    owner.node.crash()
    successor = await stage.writer("successor")
    await stage.write(successor, stage.rng.randint(1, 3))
    put.release()


async def late_publish(stage: Stage) -> None:
    """A commit of a log position lands after later ones, when the log's start has moved past it; then a crash."""
    owner = await stage.writer("owner")

    def publishes(sender: str, operation: str, _key: str) -> bool:
        return sender == owner.node.name and operation.startswith("register-cas")

    late = stage.world.rule(Rule(publishes, Fault.LATE, late_seconds=3 * SOON_SECONDS))
    await stage.write(owner, stage.rng.randint(3, 6))
    assert not late.times
    behind = owner.db.status().log_start
    await owner.node.run(owner.flush_l0())
    await stage.write(owner, stage.rng.randint(1, 4))
    collected = range(behind, owner.db.status().log_start)
    await stage.collect(*(epoch_key(owner.epoch, segment) for segment in collected))
    await stage.world.network.quiet()
    owner.node.crash()
    await stage.writer("successor")


async def _compactor(stage: Stage, name: str) -> Compactor:
    compactor = Compactor(stage.database, stage.world.node(name))
    await compactor.handle.node.run(compactor.claim())
    return compactor


async def _compact_past(stage: Stage, compactor: Compactor, log_id: int) -> None:
    for _ in range(COMPACTIONS):
        await compactor.handle.node.run(compactor.compact())
        if (await stage.head()).log_start > log_id:
            return
    raise Violation("stuck", f"{COMPACTIONS} compactions did not reach log position {log_id}")


async def _compact_on(compactor: Compactor) -> None:
    for _ in range(COMPACTIONS):
        await compactor.compact()


async def _fence_under_way(stage: Stage) -> tuple[Hold, int]:
    """The fence of an opener that has claimed and is stuck there, and the id that it was meant for."""
    sleeper = stage.session("sleeper")
    fence = stage.hold(sleeper.node, "put-create", PREFIX)
    stage.begin(sleeper.node, sleeper.open())
    key = await fence.caught()
    return fence, parse_contiguous(key[key.index(PREFIX) :])


NO_WAL = {"protocol": "contiguous", "wal": False, "lag": 8}
EPOCHS = {"protocol": "epoch_prefixed"}

SCRIPTS: Sequence[Scenario] = (
    scripted("stale-ids", stale_ids, **NO_WAL),
    scripted("fence-below-the-log", fence_below_the_log, **NO_WAL),
    scripted("stale-compactor", stale_compactor, **NO_WAL),
    scripted("deleted-under-an-opener", deleted_under_an_opener, **NO_WAL),
    scripted("deleted-under-an-opener-epochs", deleted_under_an_opener, **EPOCHS, wal=False),
    scripted("stuck-put", stuck_put, protocol="contiguous"),
    scripted("flush-ahead", flush_ahead, wal=True),
    scripted("flush-ahead-then-crash", flush_ahead_then_crash, **EPOCHS, wal=True),
    scripted("late-publish", late_publish, **EPOCHS, wal=True, metadata="server"),
    *PASSED_SCRIPTS,
    *CLOCK_SCRIPTS,
)
