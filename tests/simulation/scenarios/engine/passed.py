"""Fences that the log's start has moved past, scripted: they keep older writers out for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from slate_async.codec.header import HEADER_BYTES
from slate_async.engine.write.l0_flusher import LONG_LOG
from slate_async.storage.log.names import PREFIX, contiguous_key, parse_contiguous
from tests.simulation.checkers import Violation
from tests.simulation.history import Kind
from tests.simulation.scenarios.engine import actors
from tests.simulation.scenarios.engine.compactor import Compactor
from tests.simulation.scenarios.engine.stage import Stage, scripted
from tests.simulation.scenarios.engine.workload import Session
from tests.simulation.scenarios.hold import Hold
from tests.simulation.scenarios.protocol import Scenario

WINDOWS = 150
WINDOWS_WITH_ROWS = 40
SOON_SECONDS = 0.5
ROUNDS = 20
LONGEST = 2
"""So many windows may be in a log without rows: the fences of the last opening, and what its writer put."""


async def passed_windows(stage: Stage) -> None:
    """A put of a writer into the window of each of 150 takeovers, long after the log's start went past it."""
    owner = await stage.writer("owner")
    await stage.write(owner, stage.rng.randint(1, 3))
    await _empty_log(stage, owner)
    await owner.node.run(owner.close())
    late: list[Hold] = []
    asleep: list[Session] = []
    for number in range(WINDOWS):
        zombie = await stage.writer(f"zombie.{number}")
        late.append(_first_put(stage, zombie))
        for _ in range(stage.rng.randint(1, 4)):
            stage.begin(zombie.node, zombie.write())  # the others land behind it, some before they are fenced
        await late[-1].caught()
        await asyncio.sleep(stage.rng.choice((0, 0.1)))
        zombie.node.freeze()
        asleep.append(zombie)
    await _check_short(stage)
    for key, data in (await _collect_dead(stage)).items():
        if len(data) > HEADER_BYTES:
            await stage.put(key, data)  # a request that was given up long ago lands
    stage.rng.shuffle(late)
    for hold in late:
        hold.release()
    await asyncio.sleep(SOON_SECONDS)
    for zombie in asleep:
        zombie.node.thaw()
    await asyncio.sleep(SOON_SECONDS)
    fresh = await stage.writer("fresh")
    await stage.write(fresh, 2)


async def passed_narrowly(stage: Stage) -> None:
    """The parallel puts of a writer whose first one got stuck land behind the fences that the log's start goes past."""
    owner = await stage.writer("owner")
    await stage.write(owner, 2)
    await _empty_log(stage, owner)
    await owner.node.run(owner.close())
    left = 0
    while left < (await stage.head()).fence_width - 1:  # one more, and the next opening goes past all of it
        left = await _idle_opening(stage)
    zombie = await stage.writer("zombie")
    stuck = _first_put(stage, zombie)
    for _ in range(6):
        stage.begin(zombie.node, zombie.write())
    await stuck.caught()
    await asyncio.sleep(SOON_SECONDS)
    await zombie.node.run(zombie.look(Kind.MEMORY))  # what it wrote first must not be lost alone
    for _ in range(3):
        await _idle_opening(stage)
    stuck.release()
    await asyncio.sleep(SOON_SECONDS)


async def passed_late(stage: Stage) -> None:
    """An opener falls asleep before it moves the log's start; another one writes, and a third has claimed."""
    owner = await stage.writer("owner")
    await stage.write(owner, 2)
    await _empty_log(stage, owner)
    await owner.node.run(owner.close())
    await _idle_opening(stage)
    sleeper = stage.session("sleeper")
    fence = stage.hold(sleeper.node, "put-create", PREFIX)
    sleeping = stage.begin(sleeper.node, _opened(sleeper))
    await fence.caught()
    commit = stage.hold(sleeper.node, "manifest-commit")
    fence.release()
    await commit.caught()

    writer = await stage.writer("writer")
    await stage.write(writer, stage.rng.randint(1, 4))
    third = stage.session("third")
    listing = stage.hold(third.node, "list", PREFIX)
    opening = stage.begin(third.node, _opened(third))
    await listing.caught()
    commit.release()
    await asyncio.sleep(SOON_SECONDS)
    listing.release()
    await third.node.join(opening)
    await sleeper.node.join(sleeping)


async def passed_overtaken(stage: Stage) -> None:
    """Another opener claims before one that has fenced moves the log's start; that one goes on, and would write."""
    owner = await stage.writer("owner")
    await stage.write(owner, 2)
    await _empty_log(stage, owner)
    await owner.node.run(owner.close())
    await _idle_opening(stage)
    overtaken = stage.session("overtaken")
    fence = stage.hold(overtaken.node, "put-create", PREFIX)
    going_on = stage.begin(overtaken.node, _open_and_write(overtaken, stage.rng.randint(1, 3)))
    await fence.caught()
    commit = stage.hold(overtaken.node, "manifest-commit")
    fence.release()
    await commit.caught()
    newest = stage.session("newest")
    claim = stage.hold(newest.node, "manifest-commit")
    opening = stage.begin(newest.node, _opened(newest))
    await claim.caught()
    listing = stage.hold(newest.node, "list", PREFIX)
    claim.release()
    await listing.caught()
    commit.release()
    await overtaken.node.join(going_on)
    listing.release()
    await newest.node.join(opening)


async def passed_with_rows(stage: Stage) -> None:
    """SSTs of the log leave it with the fences that they lie among; a put into each of 40 windows lands thereafter."""
    owner = await stage.writer("owner")
    await stage.write(owner, stage.rng.randint(1, 4))
    owner.node.crash()
    late: list[Hold] = []
    asleep: list[Session] = []
    for _ in range(WINDOWS_WITH_ROWS):
        zombie = await stage.writer(f"zombie.{len(asleep)}")
        late.append(_first_put(stage, zombie))
        for _ in range(stage.rng.randint(1, 4)):
            stage.begin(zombie.node, zombie.write())
        await late[-1].caught()
        zombie.node.freeze()
        asleep.append(zombie)
    await _check_short(stage, LONG_LOG)
    if not (await stage.head()).l0:
        raise Violation("never", "no SST of the log moved to L0")
    stage.rng.shuffle(late)
    for hold in late:
        hold.release()
    await asyncio.sleep(SOON_SECONDS)
    for zombie in asleep:
        zombie.node.thaw()
    await asyncio.sleep(SOON_SECONDS)
    fresh = await stage.writer("fresh")
    await stage.write(fresh, 2)


def _first_put(stage: Stage, zombie: Session) -> Hold:
    """The put at its next position. What it puts behind that is nobody's once it is fenced there."""
    return stage.hold(zombie.node, "put-create", contiguous_key(zombie.db.status().log_end + 1))


async def _opened(session: Session) -> None:
    await session.open()


async def _open_and_write(session: Session, times: int) -> None:
    if await session.open():
        for _ in range(times):
            await session.write()
        await session.db.flush()


async def _idle_opening(stage: Stage) -> int:
    """A writer that crashes as soon as it is open; what the next one finds in the log."""
    idle = await stage.writer(f"idle.{stage.rng.getrandbits(40)}")
    left = idle.db.status().log_objects
    idle.node.crash()
    return left


async def _empty_log(stage: Stage, owner: Session) -> None:
    """Let no row be left in the log."""
    if stage.database.params.wal:
        await owner.node.run(owner.flush_l0())
        return
    compactor = Compactor(stage.database, stage.world.node("compactor"))
    await compactor.handle.node.run(compactor.claim())
    end = owner.db.status().log_end
    for _ in range(ROUNDS):
        await compactor.handle.node.run(compactor.compact())
        if (await stage.head()).log_start > end:
            return
    raise Violation("stuck", f"{ROUNDS} compactions did not reach log position {end}")


async def _check_short(stage: Stage, more: int = 0) -> None:
    """The next opening reads no more than one takeover leaves, and ``more``."""
    head = await stage.head()
    left = [info for info in await stage.listed(PREFIX) if parse_contiguous(info.key) >= head.log_start]
    if len(left) > LONGEST * head.fence_width + more:
        raise Violation("long-log", f"after many openings the next one finds {len(left)} objects")


async def _collect_dead(stage: Stage) -> dict[str, bytes]:
    """Delete what a collector would: everything below the log's start but the fences. What it was."""
    head = await stage.head()
    below = [info for info in await stage.listed(PREFIX) if parse_contiguous(info.key) < head.log_start]
    dead = {info.key: await stage.read(info.key) for info in below if not actors.is_fence(info)}
    await stage.collect(*dead)
    return dead


STAGED = {"protocol": "contiguous", "metadata": "server", "lag": 8}

PASSED_SCRIPTS: Sequence[Scenario] = (
    scripted("passed-windows", passed_windows, **STAGED),
    scripted("passed-narrowly", passed_narrowly, **STAGED),
    scripted("passed-late", passed_late, **STAGED),
    scripted("passed-overtaken", passed_overtaken, **STAGED),
    scripted("passed-with-rows", passed_with_rows, wal=False, **STAGED),
)
