"""Scripts of the log's end: what is missed was compacted and collected meanwhile, or it is lost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from slate_async.codec.header import HEADER_BYTES
from slate_async.errors import CorruptionError, FencedError
from slate_async.storage.log.names import PREFIX, position_of
from tests.simulation.checkers import Violation
from tests.simulation.node import Node
from tests.simulation.scenarios.engine.database import Handle, SimulatedDatabase
from tests.simulation.scenarios.engine.stage import NO_POLLS_MS
from tests.simulation.scenarios.engine.workload import Session
from tests.simulation.scenarios.life.estate import Rows, lasting, rows_of
from tests.simulation.scenarios.life.keepers import Keeper
from tests.simulation.scenarios.life.mirrorers import mirror_one
from tests.simulation.scenarios.life.scripts import LifeStage, scripted
from tests.simulation.scenarios.protocol import Scenario


async def flushed_under_a_look(stage: LifeStage) -> None:
    """The log is flushed or compacted, and collected, between an opening's head and its listing of the log."""
    owner = await _known_log(stage)
    opener = stage.session("opener")
    listing = stage.hold(opener.node, "list", PREFIX)
    opening = stage.begin(opener.node, opener.open())
    await listing.caught()
    with suppress(FencedError):  # by an opening to which nothing was new before its claim, so this is its first listing
        await _take_out_of_log(stage, owner)
    listing.release()
    await opener.node.join(opening)
    await stage.write(opener, 1)


async def flushed_under_a_judgement(stage: LifeStage) -> None:
    """A log object is lost; its rows are flushed, and the log collected, between an opening's listing and judging."""
    owner = await _known_log(stage)
    lost = await _lose(stage, stage.database)
    if not lost:
        return
    opener = stage.session("opener")
    listing = stage.hold(opener.node, "list", PREFIX)
    opening = stage.begin(opener.node, opener.open())
    await listing.caught()
    if (await stage.head()).log_start > min(map(position_of, lost)):  # flushed by itself: it need not be missed
        listing.release()
        await opener.node.join(opening)
        return
    judging = stage.hold(opener.node, "manifest-latest")
    listing.release()
    await judging.caught()
    await _take_out_of_log(stage, owner)
    judging.release()
    await opener.node.join(opening)
    await stage.write(opener, 1)


async def flushed_under_a_verification(stage: LifeStage) -> None:
    """Objects that a verification did not list, and whose keys it looks for, leave the log and are collected."""
    owner = await _known_log(stage)
    node = stage.world.node("verifier")
    listing = stage.hold(node, "list", PREFIX)
    verifying = node.spawn(_expect_clean(stage, node))
    await listing.caught()
    reading = stage.hold(node, "get", PREFIX)
    listing.release()
    await reading.caught()
    await stage.write(owner, stage.rng.randint(1, 4))
    owner.node.crash()
    owner = await stage.writer("next")  # from now on the manifest knows of what was written
    looking = stage.hold(node, "head", PREFIX)
    reading.release()
    await looking.caught()
    await _take_out_of_log(stage, owner)
    looking.release()
    await node.join(verifying)


async def _expect_clean(stage: LifeStage, node: Node) -> None:
    async with stage.estate.admin(node, stage.database) as admin:
        report = await admin.verify()
    if report.findings:
        raise Violation("damage", f"a sound database is called damaged: {report.findings}")


async def lost_tail_of_a_clone(stage: LifeStage) -> None:
    """Log objects that a clone has as copies are deleted under its writer; another one opens the clone."""
    owner = await stage.writer("owner")
    await stage.write(owner, stage.rng.randint(1, 4))
    target = stage.estate.clones[0].database
    node = stage.world.node("cloner")

    async def clone() -> None:
        async with stage.estate.admin(node, stage.database) as admin:
            await admin.clone(target.name)

    await node.run(clone())
    await _refused_and_nobody_fenced(stage, target, writes=stage.rng.randint(0, 2))


async def lost_tail_of_a_mirror(stage: LifeStage) -> None:
    """A mirror is opened to write; what its first writer put into its log is deleted under the next one."""
    owner = await stage.writer("owner")
    await stage.write(owner, stage.rng.randint(1, 4))
    target = stage.estate.mirrors[0]
    node = stage.world.node("mirrorer")

    async def mirror() -> None:
        async with stage.estate.admin(node, stage.database) as admin:
            kept = await admin.checkpoints.create()
            await admin.mirror(kept.id, target.name, metastore=target.factory(node))

    await node.run(mirror())
    if await node.run(_rows_in_log(target.handle(node))):
        raise Violation("mirror", "there is a log in a mirror that nobody has opened to write")
    first = await _writer(stage, target, "first")
    await stage.write(first, stage.rng.randint(1, 4))
    first.node.crash()  # closing may leave nothing in the log
    await _refused_and_nobody_fenced(stage, target, writes=stage.rng.randint(0, 2))


async def mirror_begun_again(stage: LifeStage) -> None:
    """A process that mirrors a checkpoint dies between the register and the manifest; another one mirrors an older
    checkpoint."""
    owner = await stage.writer("owner")
    await stage.write(owner, stage.rng.randint(1, 3))
    keeper = Keeper(stage.estate, stage.database, stage.world.node("keeper"))
    older = await stage.world.node("older").run(keeper.create())
    if stage.rng.random() < 0.5:
        await owner.node.run(owner.flush_l0())
    await stage.write(owner, stage.rng.randint(1, 4))
    newer = await stage.world.node("newer").run(keeper.create())
    first, second = stage.world.node("mirrorer1"), stage.world.node("mirrorer2")
    register = stage.hold(first, "register-cas")
    first.spawn(mirror_one(stage.estate, first, newer))
    await register.caught()
    commit = stage.hold(first, "manifest-commit")
    register.release()
    await commit.caught()
    first.crash()
    target = stage.estate.mirrors[0]
    if not await second.run(mirror_one(stage.estate, second, older)):
        raise Violation("stuck", f"{target.name} could not be made to show an older checkpoint")
    if (rows := await _rows(stage, target)) != lasting(older.rows or []):
        raise Violation("mirror", f"{target.name} holds {rows}, the checkpoint {older.rows}")
    heir = await _writer(stage, target, "heir")
    await heir.node.run(heir.db.put(b"after", b"v"))
    await heir.node.run(heir.close())
    if [row for row in await _rows(stage, target) if row[0] != b"after"] != rows:
        raise Violation("mirror", f"{target.name} held {rows}, and holds {await _rows(stage, target)}")
    commit.release()


async def _known_log(stage: LifeStage) -> Session:
    """A writer, in whose log another one's objects lie: the manifest knows those."""
    first = await stage.writer("first")
    await stage.write(first, stage.rng.randint(1, 4))
    first.node.crash()
    owner = await stage.writer("owner")
    await stage.write(owner, stage.rng.randint(0, 3))
    return owner


async def _take_out_of_log(stage: LifeStage, owner: Session) -> None:
    """Write more, move all rows out of the log, and have it collected."""
    await stage.write(owner, stage.rng.randint(0, 3))
    helper = stage.world.node("collector")
    if stage.database.params.wal:
        await owner.node.run(owner.flush_l0())
        start = (await stage.head()).log_start
        await stage.write(owner, stage.rng.randint(0, 2))
    else:
        await stage.compact_all(helper)
        start = (await stage.head()).log_start
        await owner.node.run(owner.close())  # it reads from what was compacted until it polls
    await stage.collect_all(helper)
    lister = stage.database.handle(helper)
    left = [key for key in await helper.run(_rows_in_log(lister)) if position_of(key) < start]
    if left:
        raise Violation("stuck", f"{left} were not collected")


async def _refused_and_nobody_fenced(stage: LifeStage, database: SimulatedDatabase, *, writes: int) -> None:
    """Lose a part of the log's known end under a writer: an opening tells, and the writer goes on; once the objects are
    there again, another opening finds every row."""
    writer = await _writer(stage, database, "living")
    await stage.write(writer, writes)
    rows = await _rows(stage, database)
    lost = await _lose(stage, database)
    if not lost:
        return
    await _named(stage, database, lost)
    opener = Session(database, stage.world.node("opener"), NO_POLLS_MS)
    try:
        await opener.node.run(opener.open())
    except CorruptionError as error:
        if error.object_name not in lost:
            raise
    else:
        raise Violation("lost", f"{database.name} was opened without {', '.join(lost)}")
    try:
        await writer.node.run(writer.db.confirm())
    except FencedError as error:
        raise Violation("fenced", "a writer was fenced by an opening that failed") from error
    helper = database.handle(stage.world.node("healer"))
    for key, data in lost.items():
        await helper.node.run(helper.store.put(key, data))
    await _writer(stage, database, "next")
    if (found := await _rows(stage, database)) != rows:
        raise Violation("lost", f"{database.name} held {rows}, and holds {found}")


async def _named(stage: LifeStage, database: SimulatedDatabase, lost: Iterable[str]) -> None:
    """A verification names what is lost, and nothing else."""
    node = stage.world.node("verifier")

    async def verify() -> set[str]:
        async with stage.estate.admin(node, database) as admin:
            return {finding.object_name for finding in (await admin.verify()).findings}

    if (found := await node.run(verify())) != set(lost):
        raise Violation("lost", f"{sorted(lost)} are lost, and {sorted(found)} are called damaged")


async def _lose(stage: LifeStage, database: SimulatedDatabase) -> dict[str, bytes]:
    """Delete the last objects with rows, some or all, that the manifest knows to be in the log. There may be none: a
    writer that has no room for rows in memory puts them into L0."""
    helper = database.handle(stage.world.node("operator"))

    async def lose() -> dict[str, bytes]:
        state = await helper.driver.load()
        assert state is not None
        known = range(state.log_start, state.log_last_seen + 1)
        rows = [key for key in await _rows_in_log(helper) if position_of(key) in known]
        doomed = rows[stage.rng.randrange(len(rows)) :] if rows else []
        lost = {key: (await helper.store.get(key)).data for key in doomed}
        await helper.store.delete(doomed)
        return lost

    return await helper.node.run(lose())


async def _rows_in_log(helper: Handle) -> list[str]:
    """The keys of all log objects that are more than fences, which stay."""
    return [info.key async for info in helper.store.list(PREFIX) if info.size > HEADER_BYTES]


async def _writer(stage: LifeStage, database: SimulatedDatabase, name: str) -> Session:
    session = Session(database, stage.world.node(name), NO_POLLS_MS)
    if not await session.node.run(session.open()):
        raise Violation("stuck", f"{name} could not take over {database.name}")
    return session


async def _rows(stage: LifeStage, database: SimulatedDatabase) -> Rows:
    node = stage.world.node("reader")

    async def rows() -> Rows:
        async with stage.estate.reader(node, database, pin=False) as reader:
            return lasting(await rows_of(reader))

    return await node.run(rows())


TAILS: Sequence[Scenario] = (
    scripted("flushed-under-a-look", flushed_under_a_look, wal=True),
    scripted("compacted-under-a-look", flushed_under_a_look, wal=False),
    scripted("flushed-under-a-judgement", flushed_under_a_judgement, by_hand=True, wal=True, metadata="server"),
    scripted("flushed-under-a-verification", flushed_under_a_verification, wal=True, protocol="contiguous"),
    scripted("compacted-under-a-verification", flushed_under_a_verification, wal=False, protocol="contiguous"),
    scripted("lost-tail-of-a-clone", lost_tail_of_a_clone, by_hand=True),
    scripted(
        "mirror-begun-again",
        mirror_begun_again,
        by_hand=True,
        protocol="epoch_prefixed",
        metadata="server",
        mirrorers=1,
    ),
    scripted("lost-tail-of-a-mirror", lost_tail_of_a_mirror, by_hand=True, mirrorers=1),
)
