"""Processes merge blocks, vacuum and read old versions of a table, beside those that append to it and delete from it.

``tables-upkeep``: all faults. ``tables-upkeep-calm``: none. Vacuums keep one to three versions, and mostly raise the
floor to their own version, so slow writers, zombies and readers meet deleted objects all the time.

=====================  ================================================================================
what is checked        besides what `Ledger.seen` does
=====================  ================================================================================
linear-heads           a number of a version is committed once
exact-read             all who read a version see the same rows, however often, or that it has expired
kept                   a version that a tag names never expires, nor one that the newest head keeps
unreachable-deleted    in the end all is there that a kept version needs (else `CorruptionError`)
garbage                in the end nothing else is there, once a vacuum has run in peace
=====================  ================================================================================
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from contextlib import aclosing
from typing import Final
from unittest import mock

from metastores.protocol import VersionRef
from slate_async.errors import NotFoundError, UnavailableError
from slate_async.settings import Settings
from slate_async.tables import vacuum as vacuum_module
from slate_async.tables.core.edits import Keep, Release
from slate_async.tables.core.errors import SnapshotExpiredError
from slate_async.tables.core.head import Head, Kept
from slate_async.tables.core.names import whole_key
from slate_async.tables.scan import TableScan
from slate_async.tables.scan_plan import Wanted
from slate_async.tables.store import committer
from slate_async.tables.store.chain import Chain
from slate_async.tables.table import Table
from tests.simulation.checkers import Violation
from tests.simulation.faults import NO_FAULTS
from tests.simulation.node import Node
from tests.simulation.scenarios.protocol import Scenario, Stats
from tests.simulation.scenarios.tables.play import EXPECTED, PAUSE_S, SHOP, TablesPlay
from tests.simulation.scenarios.tiny import tiny_world
from tests.simulation.world import World

ROLES: Final = ("process0", "process1", "merger0", "merger1", "vacuum0", "vacuum1", "reader")
ACTIONS: Final = {
    "process": (("append", "load", "delete", "look"), (5, 2, 3, 2)),
    "merger": (("merge", "look"), (5, 1)),
    "vacuum": (("vacuum",), (1,)),
    "reader": (("reread", "tag", "look"), (4, 1, 1)),
}
ROUNDS: Final = 7
BATCH: Final = 4
"""Objects of one request to delete: a simulated one takes its time for each."""
TRIES: Final = 20


class UpkeepPlay(TablesPlay):
    """One seed's run."""

    lives = 2

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.settings = Settings(retry_deadline_ms=6_000, request_timeout_ms=2_000)
        self.tokens: dict[int, str] = {}  # of each version that somebody knows to be committed
        self.rows: dict[tuple[int, str], frozenset[int]] = {}

    def names(self) -> list[str]:
        """A process for each part; the second merger and vacuum are not always there."""
        return [name for name in ROLES if not name.endswith("1") or self.world.rng.random() < 0.7]

    async def _work(self, node: Node, name: str) -> None:
        rng = node.rng
        kinds, weights = ACTIONS[name.rstrip("01")]
        async with self.opened(node) as catalog:
            table = await catalog.table(SHOP, "rows")
            for _ in range(rng.randrange(3, ROUNDS)):
                kind = rng.choices(kinds, weights)[0]
                try:
                    await getattr(self, f"_{kind}")(node, table, name)
                except EXPECTED:
                    self.ledger.count(f"failed {kind}")
                self._note(table._context.heads.head)
                await node.runtime.clock.sleep(rng.uniform(0, PAUSE_S))

    def _note(self, head: Head | None) -> None:
        if head is not None and self.tokens.setdefault(head.version, head.token) != head.token:
            raise Violation("linear-heads", f"version {head.version} was committed twice")

    async def _merge(self, node: Node, table: Table, name: str) -> None:
        result = await table.compact()
        self.ledger.count("merges", result.merges)
        self.ledger.count("abandoned", result.abandoned)

    async def _vacuum(self, node: Node, table: Table, name: str) -> None:
        rng = node.rng
        report = await table.vacuum(
            retain_ms=0, retain_versions=rng.choice((1, 1, 2, 3)), min_age_ms=rng.choice((0, 0, 200))
        )
        self.ledger.count("vacuumed", report.objects)
        self.ledger.count("left to others", not report.complete)

    async def _reread(self, node: Node, table: Table, name: str) -> None:
        """One version, several times, while others go on."""
        head = await table._context.newest()
        self._note(head)
        for _ in range(node.rng.randint(1, 4)):
            if not await self._exact(node, table, head):
                return
            await node.runtime.clock.sleep(node.rng.uniform(0, 3 * PAUSE_S))

    async def _exact(self, node: Node, table: Table, head: Head) -> bool:
        """Read ``head``; whether it is still there."""
        context = table._context
        context.chain._known.clear()
        context.blocks._deletes.clear()
        context.blocks._footers.clear()
        found: list[int] = []
        try:
            scan = TableScan(context, Wanted.of(None, None, None, row_ids=False))
            async with aclosing(scan._at(head)) as batches:
                async for batch in batches:
                    found.extend(batch.column("row").to_pylist())
        except SnapshotExpiredError:
            newest = await context.newest()
            if newest.keeps(head.version):
                raise Violation("kept", f"{node.name}: version {head.version} expired, and is kept") from None
            self.ledger.count("expired reads")
            return False
        if len(set(found)) < len(found):
            raise Violation("twice", f"{node.name} saw rows of version {head.version} twice: {sorted(found)}")
        known = self.rows.setdefault((head.version, head.token), frozenset(found))
        if known != frozenset(found):
            raise Violation(
                "exact-read", f"{node.name} saw {sorted(found)} in version {head.version}, others {sorted(known)}"
            )
        self.ledger.count("exact reads")
        return True

    async def _tag(self, node: Node, table: Table, name: str) -> None:
        """A version with a name is there until that is released."""
        context = table._context
        head = await context.newest()
        try:
            await context.committer.commit(Keep(f"{name} {head.version}", Kept(head.version, head.token)))
        except NotFoundError:  # it was given up meanwhile
            return
        self.ledger.count("tagged")
        for _ in range(3):
            if not await self._exact(node, table, head):
                raise Violation("kept", f"{node.name}: the tag of version {head.version} does not hold")
            await node.runtime.clock.sleep(node.rng.uniform(0, 3 * PAUSE_S))
        if node.rng.random() < 0.5:
            await context.committer.commit(Release(f"{name} {head.version}", pin=False))

    async def _finish(self, node: Node) -> None:
        await super()._finish(node)
        async with self.opened(node) as catalog:
            table = await catalog.table(SHOP, "rows")
            await table.compact()
            await _vacuumed(table)
            found = (await table.scan().read()).column("row").to_pylist()
            self.ledger.seen("after all", found, self.ledger.acknowledged(), self.ledger.deleted, final=True)
            await self._check_garbage(node, table)

    async def _check_garbage(self, node: Node, table: Table) -> None:
        context = table._context
        newest = await context.newest()
        heads = [newest]
        for kept in newest.tags.values():
            old = await context.heads.read(_ref(kept))
            if old is None or not await self._exact(node, table, old):
                raise Violation("kept", f"version {kept.version} has a tag, and is not there")
            heads.append(old)
        listed = set(await context.blocks.listed())
        needed: set[str] = set()
        for head in heads:
            contents = await context.contents(head)
            needed.update(contents.blocks.column("key").to_pylist(), contents.delete_files.column("key").to_pylist())
            needed |= await _links(context.chain, head, listed)
        if extra := listed - needed:
            raise Violation("garbage", f"nothing needs {sorted(extra)}, and a vacuum left them")
        if lost := needed - listed:
            raise Violation("unreachable-deleted", f"{sorted(lost)} are needed, and not there")


async def _vacuumed(table: Table) -> None:
    """There may be more to delete than one deadline allows."""
    for _ in range(TRIES):
        with contextlib.suppress(UnavailableError):
            await table.vacuum(retain_ms=0, retain_versions=1, min_age_ms=0)
            return
    raise Violation("unfinished", f"a vacuum was not done in {TRIES} tries in peace")


def _ref(kept: Kept) -> VersionRef:
    return VersionRef(kept.version, kept.token)


async def _links(chain: Chain, head: Head, listed: set[str]) -> set[str]:
    """Names of the links that ``head`` needs."""
    found: set[str] = set()
    ref = head.link
    while ref is not None:
        if whole_key(ref.key) in listed:
            return found | {whole_key(ref.key)}
        found.add(ref.key)
        ref = (await chain.taken(ref, listed))[1].before
    return found


async def upkeep(world: World) -> Stats:
    """A run in which whole links are put early."""
    with mock.patch.object(committer, "COVER_LINKS", 3), mock.patch.object(vacuum_module, "BATCH", BATCH):
        return await UpkeepPlay(world).run()


UPKEEP: Sequence[Scenario] = (
    Scenario("tables-upkeep", "merges, vacuums and readers of old versions; all faults", tiny_world, upkeep),
    Scenario(
        "tables-upkeep-calm",
        "the same without faults",
        lambda seed, keep: tiny_world(seed, keep, NO_FAULTS),
        upkeep,
    ),
)
