"""A database's long life: all that ever works on one, at once, each part killed and started again at random.

A writer under load (killed, or taken over by another while it runs), a compactor, a collector with the shortest legal
ages, three followers (one of which pins nothing), a reader of a checkpoint, and one that scans more slowly than its
checkpoints live. `live` lets them, then judges what is left: everything acknowledged, every state that was shown, the
checkpoint as it was, nothing wrong in any byte, and in the store what something names and no more.

The same for as long as one likes, anywhere: ``scripts/soak``.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

import slate_async as slate
from tests.integration import counting
from tests.integration.at_rest import check_exact
from tests.integration.parts import PATIENCE_S, Compactor, GarbageCollector, Life, Part, Reader, Writer
from tests.integration.places import Place

SMALL: dict[str, object] = {
    "auto_compaction": False,
    "l0_sst_bytes": 30_000,
    "sst_bytes": 30_000,
    "block_bytes": 1_000,
    "block_cache_bytes": 0,
    "reader_memtable_bytes": 100_000,
    "l0_compact_ssts": 2,
    "min_merge_width": 2,
    "level_base_bytes": 60_000,
    "level_size_multiplier": 3,
    "manifest_poll_interval_ms": 200,
    "manifest_full_every": 4,
    "checkpoint_lifetime_ms": 5_000,
    "gc_min_age_ms": 0,
    "version_keep_ms": 0,
    "gc_clock_skew_ms": 0,
    "gc_interval_ms": 500,
}
"""Many SSTs, compactions, checkpoints and rounds of collection in a short time."""
FARTHER: dict[str, object] = {
    "manifest_poll_interval_ms": 500,
    "checkpoint_lifetime_ms": 20_000,
    "gc_interval_ms": 1_000,
}
"""Where each request takes its time: a checkpoint must be refreshed before it expires."""
SCAN_PAUSES = 10
"""In the life of a checkpoint; the slow scan makes over a dozen."""
TAKE_OVERS = 0.5
"""Of the writer's lives, those that end with another writer rather than with SIGKILL."""
BEGUN = 0.8
"""Of the processes that are killed, so many have begun to work."""
STATES_BEFORE = 4
"""Bursts that are written before the checkpoint is made."""
SCRIPT = "tests/integration/counting.py"


@dataclass(frozen=True)
class Kept:
    """A checkpoint, and the state it keeps."""

    checkpoint: UUID
    state: int


class Play:
    """The parts on stage. ``tell`` is given a line now and then."""

    def __init__(self, place: Place, rng: random.Random, tell: Callable[[str], None]) -> None:
        self._place = place
        self._rng = rng
        self._tell = tell
        self.life = Life()
        self._stage: dict[str, Part] = {}

    async def run(self, seconds: float, pause: float) -> None:
        """Kill somebody every ``pause`` seconds or so, for ``seconds``; then let all go on, and end."""
        loop = asyncio.get_running_loop()
        try:
            await self._begin()
            ends = loop.time() + seconds
            while loop.time() < ends:
                await asyncio.sleep(self._rng.uniform(0, 2 * pause))
                for part in self._stage.values():
                    part.hear()
                name = self._victim()
                await self._disturb(name)
                self._tell(f"{ends - loop.time():.0f} s left, state {self.life.acknowledged}, disturbed {name}")
            await asyncio.gather(*(part.works() for part in self._stage.values()))
            for part in self._stage.values():
                await part.kill()
        finally:
            for part in self._stage.values():
                await part.stop()

    async def _begin(self) -> None:
        writer = await self._enter("writer")
        for _ in range(STATES_BEFORE):
            await writer.works()
        self.kept = await keep(self._place)
        self._tell(f"checkpoint {self.kept.checkpoint} of state {self.kept.state}")
        for name in ("compactor", "collector", "follower 1", "follower 2", "follower 3", "holder", "scanner"):
            await self._enter(name)

    async def _enter(self, name: str) -> Part:
        part = self._stage[name] = self._cast(name)
        await part.start()
        return part

    def _cast(self, name: str) -> Part:
        place = self._place.arguments()
        pause_s = slate.Settings(**self._place.settings).checkpoint_lifetime_ms / 1000 / SCAN_PAUSES
        match name.split():
            case ["writer"]:
                return Writer(name, self.life, [SCRIPT, "write", *place])
            case ["compactor"]:
                return Compactor(name, self.life, ["tests/integration/compactor.py", *place])
            case ["collector"]:
                return GarbageCollector(name, self.life, ["tests/integration/garbage_collector.py", *place])
            case ["follower", number]:
                return Reader(name, self.life, [SCRIPT, "follow", *place, *(["--no-pin"] if number == "3" else [])])
            case ["holder"]:
                arguments = [SCRIPT, "follow", *place, "--checkpoint", str(self.kept.checkpoint)]
                return Reader(name, self.life, arguments, stays=self.kept.state)
            case _:
                return Reader(name, self.life, [SCRIPT, "scan", *place, "--pause", str(pause_s)])

    def _victim(self) -> str:
        """Any process; most times one that has begun to work, or on a slow machine none would ever begin."""
        names = sorted(self._stage)
        begun = [name for name in names if self._stage[name].begun]
        return self._rng.choice(begun if begun and self._rng.random() < BEGUN else names)

    async def _disturb(self, name: str) -> None:
        """Kill one and start it again, or let another writer take over from it."""
        part = self._stage[name]
        if isinstance(part, Writer) and self._rng.random() < TAKE_OVERS:
            await part.opens()
            found = await self._take_over()
            await part.is_fenced(found)
        else:
            await part.kill()
            await self._enter(name)

    async def _take_over(self) -> int:
        newer = await self._enter("writer")
        assert isinstance(newer, Writer)
        return await newer.opens()


def settings_for(store: str, compaction: str) -> dict[str, object]:
    """Of a database that lives in ``store`` (see `places`)."""
    return {**SMALL, **({} if store == "local" else FARTHER), "compaction_style": compaction}


async def keep(place: Place) -> Kept:
    """Make the checkpoint that is to stay as it is."""
    async with slate.open_admin(place.path, metastore=place.metastore) as admin:
        checkpoint = (await admin.checkpoints.create(name="kept")).id
    return Kept(checkpoint, await state_of(place, checkpoint))


async def state_of(place: Place, checkpoint: UUID | None) -> int:
    """Which state a reader in this process is shown."""
    settings = slate.Settings(**place.settings)
    async with slate.open_reader(
        place.path, checkpoint=checkpoint, metastore=place.metastore, settings=settings
    ) as reader:
        return counting.count_of({key: value async for key, value in reader.scan()})


async def live(
    place: Place, *, seconds: float, pause: float, rng: random.Random, tell: Callable[[str], None] = lambda line: None
) -> Life:
    """Let a database live at ``place``, which is empty; then judge what is left of it. What was done.

    Raises `AssertionError` for whatever is not as the module says."""
    play = Play(place, rng, tell)
    await play.run(seconds, pause)
    life, kept = play.life, play.kept
    tell(f"at rest with state {life.acknowledged} acknowledged, {life.seen} seen")
    async with place.open() as db:
        last = counting.count_of({key: value async for key, value in db.scan()})
    assert last >= max(life.acknowledged, life.seen), f"state {last} is left of {life}"
    await forget_readers(place)
    await check_exact(place)
    async with slate.open_admin(place.path, metastore=place.metastore) as admin:
        report = await admin.verify()
        assert report.clean, report.findings
        assert report.notes == (), report.notes
    assert await state_of(place, None) == last
    assert await state_of(place, kept.checkpoint) == kept.state
    tell(f"{report.ssts} SSTs, {report.rows} rows, {report.versions} versions verified")
    return life


async def forget_readers(place: Place) -> None:
    """Wait until the checkpoints of the readers that were killed have expired and are collected."""
    collecting = slate.Settings(
        **{name: value for name, value in place.settings.items() if name.startswith(("gc_", "version_"))}
    )
    async with (
        asyncio.timeout(PATIENCE_S),
        slate.open_admin(place.path, metastore=place.metastore) as admin,
        slate.open_gc(place.path, metastore=place.metastore, settings=collecting, periodic=False) as collector,
    ):
        while any(checkpoint.owner == "reader" for checkpoint in await admin.checkpoints.list()):
            await collector.collect()
            await asyncio.sleep(0.2)
