"""One simulated process: its tasks, its clock, its ways to die.

* `Node.crash` is a power cut: no task of it runs again, no ``finally`` block, no callback; what it had sent may land.
* `Node.freeze` is SIGSTOP: no task of it runs until it thaws, then it goes on as if nothing had been, with timers
  overdue and answers waiting. What it had sent lands meanwhile.

A restarted process is a new `Node` under the same name, with new randomness and nothing kept in memory.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar

from metastores.factories import IfMatchFactory, PutIfAbsentFactory
from metastores.runtime import MetaRuntime
from slate_async.runtime.protocol import Runtime
from tests.simulation.loop import DOMAIN, SimLoop, SimTask
from tests.simulation.metadata import SimMetadata, SimMetaStoreFactory
from tests.simulation.network import Network
from tests.simulation.runtime import OffloadDelay, SimClock, derived_rng, sim_runtime
from tests.simulation.store import FaultyStore, SimStore
from tests.simulation.trace import Trace

T = TypeVar("T")


class NodeCrashedError(Exception):
    """The process that should have done it has ended."""


class Node:
    """See the module docstring. Made by `World.node`.

    name: unique to this life: ``writer``, after a restart ``writer.2``
    runtime: what the engine in this process gets
    metadata_runtime: what a metastore of the product in this process gets
    rng: for the workload that runs in this process
    """

    def __init__(
        self, loop: SimLoop, network: Network, trace: Trace, name: str, seed: int, clock: SimClock, delay: OffloadDelay
    ) -> None:
        self._loop = loop
        self._network = network
        self._trace = trace
        self.name = name
        self.clock = clock
        self.runtime: Runtime = sim_runtime(clock, seed, name, delay)
        self.rng: random.Random = derived_rng(seed, name, "workload")
        self.fault_rng: random.Random = derived_rng(seed, name, "faults")
        self.metadata_runtime = MetaRuntime(sleep=clock.sleep, rng=derived_rng(seed, name, "metadata"))
        self._world = contextvars.copy_context()
        self.domain = loop.add_domain(name)
        self.context: Context = contextvars.copy_context()
        self.context.run(DOMAIN.set, self.domain)
        self._crashed: asyncio.Future[None] = loop.create_future()
        self._freezes = 0

    def __repr__(self) -> str:
        return f"<Node {self.name}{' dead' if self.dead else ' frozen' if self.domain.frozen else ''}>"

    # ---- work

    def spawn(self, work: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        """Run ``work`` as a task of this process. Wait for it with `join`, which also ends when the process does."""
        if self.dead:
            work.close()
            raise NodeCrashedError(f"{self.name} crashed")
        return self._loop.create_task(work, name=name, context=self.context.copy())

    async def join(self, task: asyncio.Task[T]) -> T:
        """The result of a task of this process; `NodeCrashedError` if the process dies first."""
        both: list[asyncio.Future[Any]] = [task, self._crashed]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise NodeCrashedError(f"{self.name} crashed")

    async def run(self, work: Coroutine[Any, Any, T], name: str | None = None) -> T:
        """`spawn` and `join`."""
        return await self.join(self.spawn(work, name))

    # ---- death and sleep

    @property
    def dead(self) -> bool:
        """Whether it crashed."""
        return self.domain.dead

    @property
    def frozen(self) -> bool:
        """Whether it stands still."""
        return self.domain.frozen

    @property
    def crashed(self) -> asyncio.Future[None]:
        """Done once it crashed."""
        return self._crashed

    def crash(self) -> None:
        """Power cut. Idempotent."""
        if self.dead:
            return
        self._trace.add(self.name, "crash", "", "")
        self._loop.drop_domain(self.domain)
        self._network.crashed(self)
        self._crashed.set_result(None)

    def freeze(self, seconds: float | None = None) -> None:
        """Stand still for some virtual seconds, or until `thaw`. A second freeze replaces the first's end."""
        if self.dead:
            return
        self._trace.add(self.name, "freeze", "", "" if seconds is None else f"{seconds:.6f}")
        self.domain.frozen = True
        self._freezes += 1
        if seconds is not None:
            self._loop.call_later(seconds, self._thaw_if, self._freezes, context=self._world)

    def _thaw_if(self, freeze: int) -> None:
        if freeze == self._freezes:
            self.thaw()

    def thaw(self) -> None:
        """Go on. Idempotent."""
        if self.domain.frozen and not self.dead:
            self._trace.add(self.name, "thaw", "", "")
            self._freezes += 1
            self.domain.frozen = False

    def crash_after(self, steps: int) -> None:
        """Crash right after ``steps`` more callbacks of this process: between any two of its awaits."""
        self._after(steps, self.crash)

    def freeze_after(self, steps: int, seconds: float | None = None) -> None:
        """Freeze right after ``steps`` more callbacks of this process."""
        self._after(steps, lambda: self.freeze(seconds))

    def _after(self, steps: int, action: Callable[[], None]) -> None:
        self.domain.call_after_steps(steps, lambda: self._world.run(action))

    def pending(self) -> list[SimTask]:
        """Tasks of this process that have not ended."""
        return [] if self.dead else self.domain.pending()


class Cloud:
    """What all processes of a world share: the objects and the metadata."""

    def __init__(self, network: Network, store: SimStore) -> None:
        self.network = network
        self.store = store
        self.metadata = SimMetadata()

    def objects(self, node: Node, *, page_keys: int = 1000) -> FaultyStore:
        """A new handle of the object store in that process."""
        return FaultyStore(self.network, node, self.store, page_keys=page_keys)

    def metastore(self, node: Node) -> SimMetaStoreFactory:
        """The database-like metastore in that process."""
        return SimMetaStoreFactory(self.network, node, self.metadata)

    def put_if_absent(self, node: Node) -> PutIfAbsentFactory:
        """The product's default metastore in that process, which keeps everything in the object store."""
        return PutIfAbsentFactory(node.metadata_runtime)

    def if_match(self, node: Node) -> IfMatchFactory:
        """The product's If-Match metastore in that process."""
        return IfMatchFactory(node.metadata_runtime)
