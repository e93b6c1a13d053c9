"""What a collection really is, at every time: each version as it lands, each link of the chain, each deletion.

The eye reads the shared store and metadata directly, without network and without time, so it judges a request in the
very step in which it takes effect. It remembers what was wrong; the end of the scenario raises it.

==========  ==========================================================================================================
kind        what must hold
==========  ==========================================================================================================
version     versions are consecutive, and nothing goes back (P10, C26)
zombie      a version of an epoch is of the process whose claim began that epoch (P10)
dangling    a version names no object that is not there
deleted     nothing is deleted that the head names, or that lies beyond its upper
unasked     what is published to be given up some hold had given up (C29)
promise     while a hold stands that its owner believes, nothing is deleted that a version at or above its own names,
            and no version is compacted past its since (P8)
==========  ==========================================================================================================
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pyarrow as pa

from metastores.names import MERGED_AREAS
from slate_async.collections.codec.hold import decode_hold
from slate_async.collections.codec.life import Appends
from slate_async.collections.core import holding, names
from slate_async.collections.core.area import Area, check_successor
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.holding import Handle, StoredHold
from slate_async.errors import InternalError
from tests.simulation.checkers import Violation
from tests.simulation.network import Request
from tests.simulation.node import Node
from tests.simulation.scenarios.lake.estate import FOLDER, Estate, Row
from tests.simulation.scenarios.life.eye import at_once, nearby

_PENDING, _MERGED = f"{FOLDER}/{names.PENDING_BATCHES}", f"{FOLDER}/{names.MERGED_BATCHES}"
_VERSIONS = f"{FOLDER}/{MERGED_AREAS.folder}"
_READERS = f"{FOLDER}/{names.READERS}"


@dataclass(frozen=True, slots=True)
class Believed:
    """A handle that its process believes to have."""

    node: Node
    handle: Callable[[], Handle]


@dataclass(frozen=True, slots=True)
class ChainLink:
    """A batch that was the first at the end of the chain."""

    lower: Frontier
    upper: Frontier
    token: str
    rows: tuple[Row, ...]


class Eye:
    """See the module docstring."""

    def __init__(self, estate: Estate) -> None:
        self._estate = estate
        world = estate.world
        node = world.node("eye")
        self._objects = world.cloud.store.objects
        stores = estate.stores(node, nearby(world))
        self._area, self._pending = stores.versions, stores.pending
        self.head = Area.first(estate.minimum)
        self.versions: dict[int, Area] = {0: self.head}
        self.chain: list[ChainLink] = []
        self.handles: dict[int, Believed] = {}
        self.criticals: set[str] = set()
        """Names of critical holds that somebody was told are there."""
        self.given_up = estate.minimum
        """By any hold so far."""
        self.wrong: list[Violation] = []
        self.claims: dict[int, str] = {}
        """Who claimed the role of the controller, by epoch."""
        self._decoded: dict[str, StoredHold] = {}
        world.network.observers.append(self)

    def believe(self, node: Node, handle: Callable[[], Handle]) -> Callable[[], None]:
        """A process has a handle from now on, until what is returned is called, or it crashes."""
        number = max(self.handles, default=0) + 1
        self.handles[number] = Believed(node, handle)

        def over() -> None:
            self.handles.pop(number, None)

        return over

    def check(self) -> None:
        """Raise the first thing that was wrong."""
        if self.wrong:
            raise self.wrong[0]

    def is_held(self, name: str) -> bool:
        """Whether a hold of that name stands."""
        stored = self._stored(name)
        return stored is not None and not stored.hold.revoked

    # ---- requests (see `tests.simulation.network.Observer`)

    def landing(self, request: Request) -> None:
        """Judge a deletion."""
        if request.operation == "delete" and request.key in self._objects:
            self._judge_deletion(request.sender.name, request.key)

    def landed(self, request: Request) -> None:
        """See what a write made."""
        if request.error is not None:
            return
        operation, key = request.operation, request.key
        if operation.startswith("put-"):
            if key.startswith(_VERSIONS):
                self._look(request.sender.name)
            elif key.startswith(_READERS):
                stored = self._stored(names.parse_hold(key.removeprefix(f"{FOLDER}/")) or "")
                self.given_up = self.given_up if stored is None else self.given_up.join(stored.hold.since)
            elif key.startswith(_PENDING) and self._estate.params.appends is Appends.COMPARE:
                self._extend_chain(key.removeprefix(f"{FOLDER}/"))
        elif operation.startswith(("register-cas", "manifest-commit", "item-put")):
            self._look(request.sender.name)

    # ---- versions

    def _look(self, author: str) -> None:
        area = at_once(self._area.load())
        if area.version == self.head.version:
            return
        before, self.head = self.head, area
        self.versions[area.version] = area
        self._judge_version(before, area, author)

    def _judge_version(self, before: Area, area: Area, author: str) -> None:
        try:
            check_successor(before, area)
        except InternalError as error:
            self._note("version", f"{author}: {error}")
        if area.epoch != before.epoch:
            self.claims[area.epoch] = author
        elif self.claims.get(area.epoch) != author:
            self._note("zombie", f"{author} commits version {area.version} in an epoch of {self.claims[area.epoch]}")
        for batch in area.batches:
            if batch.rows and batch not in before.batches and f"{FOLDER}/{batch.name}" not in self._objects:
                self._note("dangling", f"{author} commits version {area.version}, which names {batch.name}")
        if area.deleted:  # whoever reads is told
            return
        if not area.bound <= self.given_up:
            self._note("unasked", f"{author} publishes {area.bound}, and holds have given up {self.given_up}")
        for name in sorted(self.criticals):
            stored = self._stored(name)
            if stored is not None and not stored.hold.revoked and not area.since <= stored.hold.since:
                self._note("promise", f"{author} compacts to {area.since}, and {name} holds {stored.hold.since}")
        for handle in self._standing():
            if not area.since <= handle.since:
                self._note(
                    "promise",
                    f"{author} compacts to {area.since} in version {area.version}, and {handle.reader} holds"
                    f" {handle.since}",
                )

    # ---- deletions

    def _judge_deletion(self, author: str, key: str) -> None:
        name, head = key.removeprefix(f"{FOLDER}/"), self.head
        if head.deleted:
            return
        if key.startswith(_MERGED):
            parsed = names.parse_merged(name, self._estate.params.kind)
            assert parsed is not None
            batch = name if parsed.part is None else name[: name.rindex(".p")]
            if batch in head.names():
                self._note("deleted", f"{author} deletes {name}, which version {head.version} names")
            self._judge_promise(author, batch)
        elif key.startswith(_PENDING):
            self._judge_pending(author, name)

    def _judge_promise(self, author: str, batch: str) -> None:
        for handle in self._standing():
            named = [
                number
                for number, area in self.versions.items()
                if handle.version is not None and number >= handle.version and batch in area.names()
            ]
            if named:
                self._note("promise", f"{author} deletes {batch} of version {named[0]}, and {handle.reader} holds that")

    def _judge_pending(self, author: str, name: str) -> None:
        parsed = names.parse_pending(name, self._estate.params.kind)
        assert parsed is not None
        assert isinstance(parsed.lower, Frontier)
        if isinstance(parsed.upper, Frontier):
            if not parsed.upper <= self.head.upper:
                self._note("deleted", f"{author} deletes {name}, and version {self.head.version} has not come to it")
        elif self.head.upper <= parsed.lower and any(link.lower == parsed.lower for link in self.chain):
            self._note("deleted", f"{author} deletes {name}, and version {self.head.version} has not come to it")

    # ---- holds

    def _standing(self) -> list[Handle]:
        """What processes that live believe to hold, and do."""
        found = []
        for number, believed in list(self.handles.items()):
            if believed.node.dead:
                del self.handles[number]
                continue
            handle = believed.handle()
            if holding.is_own(handle, self._stored(handle.reader)):
                found.append(handle)
        return found

    def _stored(self, reader: str) -> StoredHold | None:
        stored = self._objects.get(f"{FOLDER}/{names.hold_name(reader)}")
        if stored is None:
            return None
        etag = stored.info.etag
        if etag not in self._decoded:
            hold = decode_hold(stored.data, self._estate.params.kind, object_name=reader)
            self._decoded[etag] = StoredHold(hold, etag)
        return self._decoded[etag]

    # ---- the chain

    def _extend_chain(self, key: str) -> None:
        """The first batch that lies at the end of the chain decides what follows."""
        name = names.parse_pending(key, self._estate.params.kind)
        end = self.chain[-1].upper if self.chain else self._estate.minimum
        if name is None or name.part is not None or name.lower != end:
            return
        found = at_once(self._pending.read(name))
        assert found is not None
        description = found.description
        tables = [] if found.updates is None else [found.updates]
        if description.parts:
            tables = at_once(_all(self._pending.parts(name, description)))
        columns = self._estate.params.kind.columns
        rows = tuple(
            (row["data"], tuple(row[column] for column in columns), row["_diff"])
            for table in tables
            for row in table.to_pylist()
        )
        self.chain.append(ChainLink(description.lower, description.upper, description.token, rows))
        self._estate.truth.extend(rows)

    def _note(self, kind: str, message: str) -> None:
        self.wrong.append(Violation(kind, f"{self._estate.world.loop.time():.6f} {message}"))


async def _all(tables: AsyncIterator[pa.Table]) -> list[pa.Table]:
    return [table async for table in tables]
