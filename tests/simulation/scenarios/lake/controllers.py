"""Controllers as small as the rules allow, with the product's decisions and stores: they merge any neighbours, because
every choice must be right, and fall asleep between any two steps."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from metastores.protocol import Committed
from slate_async.codec.arrays import mask_array
from slate_async.collections.codec.life import Appends
from slate_async.collections.core import garbage, sweep
from slate_async.collections.core.area import Area, MergedBatch
from slate_async.collections.core.bounds import Bounds, spanning
from slate_async.collections.core.consolidate import consolidate
from slate_async.collections.core.coverage import Taken
from slate_async.collections.core.edits import Absorb, Claim, Finalize, Publish, ReplaceMerged
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.garbage import Listed, PendingFile, Picture
from slate_async.collections.core.holding import StoredHold
from slate_async.collections.core.names import MergedName
from slate_async.collections.core.updates import DIFF
from slate_async.collections.reader.follow import PendingBatch, follower
from slate_async.collections.store.merged import MergedSource, MergedWriter, delete_merged, list_merged
from slate_async.errors import ClosedError, ConflictError, FencedError, UnavailableError
from slate_async.objectstore.protocol import ObjectNotFoundError
from tests.simulation.checkers import Violation
from tests.simulation.node import Node
from tests.simulation.scenarios.lake.estate import Estate


async def control(estate: Estate, node: Node) -> None:
    """Claim the role and do rounds, until another one claims it."""
    controller = Controller(estate, node)
    try:
        await controller.claim()
        for _ in estate.turns():
            await controller.nap()
            try:
                await controller.round()
            except UnavailableError:
                estate.count("unavailable")
    except FencedError:
        estate.count("fenced")
    except ClosedError:
        estate.count("closed")


@dataclass
class Controller:
    """See the module docstring. ``quiet``: brings the collection to rest: it does not nap, and takes all leases."""

    estate: Estate
    node: Node
    quiet: bool = False
    epoch: int = 0
    in_flight: set[str] = field(default_factory=set)
    leases: sweep.Leases = field(default_factory=sweep.Leases)

    def __post_init__(self) -> None:
        self.context = self.estate.reading(self.node)
        self.versions, self.holds = self.context.versions, self.context.holds
        self.pending, self.store = self.context.pending, self.context.store
        self.rng: random.Random = self.node.rng

    async def claim(self) -> None:
        """Become the controller."""
        await self.context.head()
        area = await self.versions.commits.commit(Claim(self.node.runtime.ids.token()))
        self.epoch = area.epoch

    async def nap(self) -> None:
        """Now and then."""
        if not self.quiet:
            await self.node.runtime.clock.sleep(self.rng.choice((0, 0, 0, 0.02, 0.2)))

    async def round(self) -> None:
        """Holds, absorb, publish, merge, collect."""
        head = await self.context.head()
        standing = await self._swept(head)
        allowed = sweep.allowed(stored.hold for stored in standing)
        await self.nap()
        absorb = await self._absorb(head)
        try:
            published = await self.versions.commits.commit(Publish(self.epoch, allowed.meet, allowed.oldest, absorb))
        except ConflictError as error:
            if isinstance(error, (FencedError, ClosedError)):
                raise
            self.estate.count("absorbed by another")
            return
        if absorb is not None:
            self.in_flight.discard(absorb.batch.name)
        if Finalize(self.epoch).apply(published) is not None:
            await self.versions.commits.commit(Finalize(self.epoch))
        held = () if allowed.oldest is None else (allowed.oldest,)
        await self._collect(garbage.lowest_needed(head, held))
        if not published.is_ended:
            await self._merge(sweep.compaction_target(head, allowed.meet))
        self.estate.count("rounds")

    # ---- holds

    async def _swept(self, head: Area) -> list[StoredHold]:
        """Those that stand: C18, C19."""
        listing, stored = sweep.Listing(), dict[str, StoredHold]()
        while True:
            listing = listing.listed(await self.holds.list())
            if listing.complete:
                break
            stored |= await self.holds.read_all(listing.unread)
            listing = listing.read()
            await self.nap()
        now = self.node.runtime.clock.monotonic() * 1000
        expired = self.leases.expired(stored, now)
        self.leases = self.leases.noted(stored, now)
        for name in expired:
            await self.nap()
            if await self._is_revoked(name, stored[name]):
                del stored[name]
        await self.holds.remove(sweep.to_remove(head, stored))
        return [found for found in stored.values() if not found.hold.revoked]

    async def _is_revoked(self, name: str, stored: StoredHold) -> bool:
        """By an answer that says so: C19."""
        revoking = sweep.revoking(stored.hold, self.node.runtime.ids.token())
        try:
            answer = await self.holds.write(name, revoking, stored.etag)
        except UnavailableError:
            return False
        self.estate.count("revoked", isinstance(answer, Committed))
        return isinstance(answer, Committed)

    # ---- absorbing and merging

    async def _absorb(self, head: Area) -> Absorb | None:
        found = await follower(self.context).look(head.upper)
        if found.coverage == head.upper:
            return None
        taken: Sequence[Taken[PendingBatch]] = found.taken
        if not self.quiet and self.rng.random() < 0.3:
            taken = taken[:1]
        pieces: list[pa.RecordBatch] = []
        last = ""
        for each in taken:
            read = await self.pending.read(each.batch.name)
            if read is None:
                return None
            tables = [] if read.updates is None else [read.updates]
            if read.description.parts:
                tables = [table async for table in self.pending.parts(each.batch.name, read.description)]
            last = read.description.token
            for table in tables:
                pieces += [self._cut(piece, each.start) for piece in table.combine_chunks().to_batches()]
        bounds = Bounds(head.upper, taken[-1].end, head.since)
        batch = await self._put(pieces, bounds)
        return None if batch is None else Absorb(self.epoch, batch, last)

    def _cut(self, updates: pa.RecordBatch, covered: Frontier) -> pa.RecordBatch:
        schema = self.estate.schema
        return updates.filter(mask_array(covered.mask(schema.times(updates))))

    async def _merge(self, target: Frontier) -> None:
        head = await self.context.head()
        if not head.batches:
            return
        inputs = head.batches
        if not self.quiet:
            start = self.rng.randrange(len(inputs))
            inputs = inputs[start : start + self.rng.choice((1, 2, 2, 3))]
        elif len(inputs) == 1 and inputs[0].bounds.since == target:
            return
        pieces: list[pa.RecordBatch] = []
        try:
            for batch in inputs:
                source = await MergedSource.open(self.store, self.estate.schema, batch, self.node.runtime.offload)
                pieces += [piece async for table in source.updates() for piece in table.to_batches()]
        except ObjectNotFoundError as error:
            now = await self.context.head()
            if now.epoch == self.epoch and all(batch in now.batches for batch in inputs):
                raise Violation("missing", f"the live controller misses {error.key}") from error
            return
        output = await self._put(pieces, spanning([batch.bounds for batch in inputs]).compacted(target))
        if output is None:
            return
        await self.nap()
        try:
            await self.versions.commits.commit(ReplaceMerged(self.epoch, tuple(batch.name for batch in inputs), output))
            self.estate.count("merges")
        except ConflictError as error:
            if isinstance(error, (FencedError, ClosedError)):
                raise
            self.estate.count("merged by another")
        self.in_flight.discard(output.name)

    async def _put(self, pieces: list[pa.RecordBatch], bounds: Bounds) -> MergedBatch | None:
        """The batch of ``pieces``, advanced to its since; ``None`` if it was given up: it stays in flight (C22)."""
        schema = self.estate.schema
        whole = pa.Table.from_batches(pieces, schema.arrow).combine_chunks().to_batches()
        updates = whole[0] if whole else schema.empty()
        updates = schema.with_times(updates, bounds.since.advance_by(schema.times(updates)))
        updates = consolidate(updates, schema)
        name = MergedName(bounds.lower, bounds.upper, self.epoch, self.node.runtime.ids.token())
        if not updates.num_rows:
            return MergedBatch(str(name), bounds, 0, 0, 0, 0, 0, 0)
        self.in_flight.add(str(name))
        try:
            writer = MergedWriter(self.store, schema, name, self.node.runtime.offload)
            await writer.add(updates)
            stored = await writer.finish()
        except UnavailableError:
            return None
        rows = updates.to_pylist()
        columns = self.estate.params.kind.columns
        points = {tuple(row[column] for column in columns) for row in rows}
        keys, diffs = {row["data"] for row in rows}, sum(row[DIFF] for row in rows)
        return MergedBatch(
            str(name), bounds, stored.rows, len(keys), len(points), diffs, stored.nbytes, stored.crc, stored.parts
        )

    # ---- garbage

    async def _collect(self, lowest: int) -> None:
        """C17, C22 to C25, C27."""
        await self.nap()
        files = tuple(await list_merged(self.store, self.estate.schema))
        listed = Listed(lowest, files, frozenset(self.in_flight))
        head = await self.context.head()
        picture = Picture.of(listed.at(head), await self.versions.read_range(lowest, head))
        if picture is None:
            return
        await self.nap()
        is_compare = self.estate.params.appends is Appends.COMPARE
        pending: list[PendingFile] = []
        async for found in self.pending.list():
            name = found.name
            assert isinstance(name.lower, Frontier)
            assert name.upper is None or isinstance(name.upper, Frontier)
            if is_compare == (name.upper is None):
                pending.append(PendingFile(found.key, name.lower, name.upper))
        dead = [found.key for found in picture.dead_pending(pending)]
        await self.nap()
        await self.pending.delete(dead)
        await delete_merged(self.store, [found.key for found in picture.dead_merged(self.epoch)])
        await self.versions.collect(min(lowest, head.version), head)
        self.estate.count("deleted", len(dead))
