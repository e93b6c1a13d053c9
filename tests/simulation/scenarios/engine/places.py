"""Scripts of wrong places: the same name leads to another folder, or the folder vanishes under an opening."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import slate_async as slate
from slate_async.codec.header import HEADER_BYTES
from slate_async.errors import CorruptionError, FencedError, InvalidError, SlateError
from slate_async.objectstore.prefixed import PrefixedStore
from slate_async.objectstore.protocol import OVERWRITE, ByteRange, GetResult, ObjectInfo, ObjectStore, PutMode
from slate_async.storage.log.names import PREFIX
from slate_async.types import Buffer
from tests.engine import on
from tests.simulation.checkers import Violation
from tests.simulation.history import History
from tests.simulation.node import Cloud, Node
from tests.simulation.scenarios.engine.adoptions import ADOPTIONS
from tests.simulation.scenarios.engine.database import SimulatedDatabase
from tests.simulation.scenarios.engine.play import drawn_params, make_world
from tests.simulation.scenarios.engine.stage import CALM, NO_POLLS_MS, Stage, summary_of
from tests.simulation.scenarios.engine.workload import Session
from tests.simulation.scenarios.protocol import Scenario, Stats
from tests.simulation.world import World

HERE, THERE = "here", "there"


async def wrong_place(stage: Stage) -> None:
    """An opener comes to another, empty folder by the same name, while the writer lives."""
    owner = await stage.writer("owner")
    await stage.write(owner, stage.rng.randint(1, 3))
    await _mistaken(stage, Session(replace(stage.database, folder=THERE), stage.world.node("mistaken"), NO_POLLS_MS))
    await _not_fenced(owner)
    await stage.write(owner, stage.rng.randint(1, 3))
    await owner.node.run(owner.close())


async def lost_place(stage: Stage) -> None:
    """The folder is unmounted when an opening that has claimed lists its log: what is there then is empty."""
    owner = await stage.writer("owner")
    await stage.write(owner, stage.rng.randint(1, 3))
    owner.node.crash()
    database = Unmounted(**{name: getattr(stage.database, name) for name in DATABASE_FIELDS})
    await _mistaken(stage, Session(database, stage.world.node("unlucky"), NO_POLLS_MS))


async def lost_place_of_a_verification(stage: Stage) -> None:
    """The folder is unmounted when a verification lists the log: nothing is damaged by that."""
    first = await stage.writer("first")
    await stage.write(first, stage.rng.randint(1, 3))
    first.node.crash()
    await stage.writer("owner")  # it has noted how far the log goes
    database = Unmounted(**{name: getattr(stage.database, name) for name in DATABASE_FIELDS}, looks=0)
    node = stage.world.node("verifier")

    async def verify() -> slate.VerifyReport:
        store, factory, settings = (
            database.store(node),
            database.factory(node),
            database.params.settings(node.rng, None),
        )
        async with on(node.runtime).open_admin(
            store, name=database.name, metastore=factory, settings=settings
        ) as admin:
            return await admin.verify()

    try:
        report = await node.run(verify())
    except InvalidError:
        return
    raise Violation("damage", f"a sound database is called {'damaged' if report.findings else 'sound'} from elsewhere")


async def lost_tail(stage: Stage) -> None:
    """Objects of the log's tail are deleted after the writer has closed; they are put back once that was noticed."""
    owner = await stage.writer("owner")
    await stage.write(owner, stage.rng.randint(1, 4))
    await owner.node.run(owner.close())
    helper = stage.database.handle(stage.world.node("operator"))

    async def lose() -> dict[str, bytes]:
        tail = [info.key async for info in helper.store.list(PREFIX) if info.size > HEADER_BYTES]
        lost = {key: (await helper.store.get(key)).data for key in tail[stage.rng.randrange(len(tail)) :]}
        await helper.store.delete(list(lost))
        return lost

    lost = await helper.node.run(lose())
    opener = stage.session("opener")
    try:
        opened = await opener.node.run(opener.open())
    except CorruptionError:
        for key, data in lost.items():
            await helper.node.run(helper.store.put(key, data))
    else:
        if opened:
            await stage.write(opener, 1)


async def _mistaken(stage: Stage, session: Session) -> None:
    """Open; if it comes to that, write what will be lost."""
    with contextlib.suppress(InvalidError):
        if await session.node.run(session.open()):
            await stage.write(session, 1)
            with contextlib.suppress(SlateError):
                await session.node.run(session.close())


async def _not_fenced(owner: Session) -> None:
    try:
        await owner.node.run(owner.db.confirm())
    except FencedError as error:
        raise Violation("fenced", "a writer was fenced from a wrong place") from error


@dataclass(slots=True)
class Unmounted(SimulatedDatabase):
    """Its folder is another, empty one from the first listing of the log after ``looks`` of them on."""

    looks: int = 1
    """That before the claim."""

    def store(self, node: Node, cloud: Cloud | None = None, *, page_keys: int = 1000) -> ObjectStore:
        """See `SimulatedDatabase.store`."""
        objects = self.world.cloud.objects(node, page_keys=page_keys)
        return Mount(PrefixedStore(objects, self.folder), PrefixedStore(objects, THERE), self.looks)


DATABASE_FIELDS = ("world", "params", "history", "name", "folder", "rows", "attempts", "counts")


class Mount:
    """``inner`` until the log was listed ``looks`` times; then ``empty``."""

    def __init__(self, inner: ObjectStore, empty: ObjectStore, looks: int) -> None:
        self._inner = inner
        self._empty = empty
        self._looks = looks

    async def list(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """Objects in byte order."""
        if prefix.startswith(PREFIX):
            if not self._looks:
                self._inner = self._empty
            self._looks -= 1
        async for info in self._inner.list(prefix, start_after=start_after):
            yield info

    async def put(
        self,
        key: str,
        data: Buffer | Sequence[Buffer],
        *,
        mode: PutMode = OVERWRITE,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        """Write an object."""
        return await self._inner.put(key, data, mode=mode, metadata=metadata)

    async def get(self, key: str, byte_range: ByteRange | None = None) -> GetResult:
        """Read an object."""
        return await self._inner.get(key, byte_range)

    async def head(self, key: str) -> ObjectInfo:
        """What is known of it."""
        return await self._inner.head(key)

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove objects."""
        await self._inner.delete(keys)

    async def close(self) -> None:
        """Nothing to release."""


def _scripted(name: str, script: Callable[[Stage], Coroutine[Any, Any, None]], **fixed: Any) -> Scenario:
    """As `scripted`, in a folder of a store that has others, with metadata elsewhere."""
    chosen = {**CALM, **fixed}

    async def play(world: World) -> Stats:
        stage = Stage(SimulatedDatabase(world, drawn_params(world.seed, chosen), History(world.loop.time), folder=HERE))
        await stage.database.create()
        await script(stage)
        return await stage.end()

    return Scenario(f"script-{name}", summary_of(script), lambda seed, keep: make_world(seed, keep, chosen), play)


PLACES: Sequence[Scenario] = (
    _scripted("wrong-place", wrong_place, metadata="server"),
    _scripted("wrong-place-register", wrong_place, metadata="register"),
    _scripted("lost-place", lost_place, metadata="server", protocol="contiguous", wal=True),
    _scripted("lost-place-of-a-verification", lost_place_of_a_verification, metadata="server", protocol="contiguous"),
    _scripted("lost-tail", lost_tail, protocol="contiguous"),
    _scripted("lost-tail-epochs", lost_tail, protocol="epoch_prefixed"),
    *ADOPTIONS,
)
