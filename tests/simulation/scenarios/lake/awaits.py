"""Each fault at each await of each role, in short plays: a role does a few things, and one of them goes wrong.

The others go on meanwhile: a writer, and a controller that revokes leases and takes the role. After the fault the role
begins anew, as a process that was started again. Then the collection is judged as in any other play.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from slate_async.collections.codec.life import Appends
from slate_async.collections.controller.context import controlling
from slate_async.collections.controller.controller import open_controller
from slate_async.collections.core.errors import LeaseLostError, SinceError, UpperMismatchError
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.times import TimeKind
from slate_async.collections.expiring import expire
from slate_async.collections.reader.critical import open_critical
from slate_async.collections.reader.handle import open_reader
from slate_async.collections.reader.lending import TaskHold, adopt_hold, share_hold
from slate_async.collections.verify.verifier import verify
from slate_async.collections.writer.writer import Writer, open_writer
from slate_async.errors import FencedError, NotFoundError, UnavailableError
from tests.simulation.checkers import Violation
from tests.simulation.faults import NO_FAULTS
from tests.simulation.loop import Interleaving
from tests.simulation.node import Node
from tests.simulation.runtime import derived_rng
from tests.simulation.scenarios.lake.controllers import control
from tests.simulation.scenarios.lake.estate import Ack, Estate, Row
from tests.simulation.scenarios.lake.eye import Eye
from tests.simulation.scenarios.lake.lenders import Lending
from tests.simulation.scenarios.lake.listeners import Listening
from tests.simulation.scenarios.lake.pairs import LEASE_MS, Fated, Pair, Role, pairs_of
from tests.simulation.scenarios.lake.params import LakeParams, draw
from tests.simulation.scenarios.lake.pinners import Pinning
from tests.simulation.scenarios.lake.play import LATENCY, LakePlay
from tests.simulation.scenarios.lake.readers import Reading
from tests.simulation.scenarios.lake.writers import write
from tests.simulation.scenarios.protocol import Scenario
from tests.simulation.world import World

FROZEN_SECONDS = 12 * LEASE_MS / 1000
"""A controller sees a lease end after five looks, between which it works."""
EXPECTED = (LeaseLostError, SinceError, UpperMismatchError, UnavailableError, FencedError, NotFoundError)
Act = Callable[[Estate, Eye, Node], Awaitable[None]]


# ---- roles


async def _append(estate: Estate, node: Node, writer: Writer, number: int) -> None:
    """One append from where the writer is; of a compare collection something that only this one brings."""
    lower = writer.upper
    upper = Frontier([(lower.elements[0][0] + 2,)])
    if estate.params.appends is Appends.COMPARE:
        rows: list[Row] = [(estate.mark(f"{node.name}-{number}"), lower.elements[0], 1), (b"0", lower.elements[0], 1)]
    else:
        rows = estate.rows(lower, upper)
    if estate.params.part_bytes:
        async with writer.batch(lower, upper=upper) as batch:
            for row in rows:
                await batch.add([row])
    else:
        await writer.append(rows, lower=lower, upper=upper)
    estate.acks.append(Ack(lower, upper, rows, node.name))


async def append_some(estate: Estate, node: Node, writer: Writer) -> None:
    """Two appends, if others leave room for them."""
    done = 0
    for number in range(6):
        try:
            await _append(estate, node, writer, number)
        except UpperMismatchError:  # another writer was first
            continue
        done += 1
        if done == 2:
            break


async def _writes(estate: Estate, eye: Eye, node: Node) -> None:
    writer = await open_writer(estate.writing(node, "w1"), estate.params.appends, flush_parallelism=2)
    try:
        await append_some(estate, node, writer)
    finally:
        await writer.close()


async def _reads(estate: Estate, eye: Eye, node: Node) -> None:
    reader = await open_reader(estate.stores(node).reading())
    expired = eye.believe(node, lambda: reader._hold.handle)
    try:
        reading = Reading(estate, eye, node, reader)
        for _ in range(2):
            await reading.look()
            await reading.give_up()
    finally:
        expired()
        await reader.expire()


async def _clones(estate: Estate, eye: Eye, node: Node) -> None:
    reader = await open_reader(estate.stores(node).reading())
    expired = eye.believe(node, lambda: reader._hold.handle)
    try:
        await Reading(estate, eye, node, reader).clone()
    finally:
        expired()
        await reader.expire()


async def _pins(estate: Estate, eye: Eye, node: Node) -> None:
    await Pinning(estate, eye, node, "billing").run(2)


async def _listens(estate: Estate, eye: Eye, node: Node) -> None:
    reader = await open_reader(estate.stores(node).reading())
    expired = eye.believe(node, lambda: reader._hold.handle)
    try:
        listening = Listening(estate, node, reader, "listener")
        for _ in range(2):
            await listening.some(2)
    finally:
        expired()
        await reader.expire()


async def _controls(estate: Estate, eye: Eye, node: Node) -> None:
    controller = await open_controller(controlling(estate.stores(node)), background=False)
    try:
        await controller.round()
        await controller.merge(everything=True)
        await controller.round()
    finally:
        await controller.close()


async def _lends(estate: Estate, eye: Eye, node: Node) -> None:
    """A hold is lent and left, prolonged by one that reads under it, adopted, moved and given up."""
    lending = Lending(estate, eye, node)
    shared, _ = await share_hold(lending.context, node.name)
    try:
        job = await lending.plan(shared)
    finally:
        await shared.leave()
    if job is None:
        return
    await lending.read(job)
    await TaskHold(lending.context, job.lent).prolong()
    adopted, _ = await adopt_hold(lending.context, job.lent, node.name)
    expired = eye.believe(node, lambda: adopted._hold.handle)
    try:
        again = await lending.plan(adopted)
        await lending.read(job)
        if again is not None:
            await adopted.move(version=again.lent.version, since=again.lower.step_back())
            await lending.read(again)
    finally:
        expired()
        await adopted.expire()


async def _reads_under_a_pin(estate: Estate, eye: Eye, node: Node) -> None:
    pin = await open_critical(estate.stores(node).reading(), "billing")
    eye.criticals.add("billing")
    reader = await pin.reader("under a pin")
    expired = eye.believe(node, lambda: reader._hold.handle)
    try:
        await Reading(estate, eye, node, reader).clone()
    finally:
        expired()
        await reader.expire()


async def _verifies(estate: Estate, eye: Eye, node: Node) -> None:
    report = await verify(estate.stores(node).reading())
    if report.findings:
        raise Violation("alarm", f"a verification found {report.findings}")


async def _expires(estate: Estate, eye: Eye, node: Node) -> None:
    """A reader's hold is taken from it, on somebody's word: what it reads is right or refused."""
    reader = await open_reader(estate.stores(node).reading(), note="expired")
    expired = eye.believe(node, lambda: reader._hold.handle)
    try:
        await expire(estate.stores(node).reading(), reader._hold.handle.reader)
        await Reading(estate, eye, node, reader).look()
    finally:
        expired()
        await reader.expire()


DEFINITE, COMPARE = {"appends": Appends.DEFINITE}, {"appends": Appends.COMPARE}
ROLES: Sequence[Role[Act]] = (
    Role("definite-writer", _writes, DEFINITE),
    Role("compare-writer", _writes, COMPARE),
    Role("definite-parts", _writes, {**DEFINITE, "part_bytes": 60}),
    Role("compare-parts", _writes, {**COMPARE, "part_bytes": 60}),
    Role("definite-reader", _reads, DEFINITE),
    Role("compare-reader", _reads, COMPARE),
    Role("definite-cloner", _clones, DEFINITE),
    Role("compare-cloner", _clones, COMPARE),
    Role("definite-pinner", _pins, DEFINITE),
    Role("definite-under-a-pin", _reads_under_a_pin, DEFINITE),
    Role("compare-under-a-pin", _reads_under_a_pin, COMPARE),
    Role("definite-lender", _lends, DEFINITE),
    Role("compare-lender", _lends, COMPARE),
    Role("definite-handed-over", _listens, {**DEFINITE, "near": 1}),
    Role("compare-handed-over", _listens, {**COMPARE, "near": 1}),
    Role("definite-listener", _listens, DEFINITE),
    Role("compare-listener", _listens, COMPARE),
    Role("definite-controller", _controls, DEFINITE),
    Role("compare-controller", _controls, COMPARE),
    Role("definite-verifier", _verifies, DEFINITE),
    Role("compare-verifier", _verifies, COMPARE),
    Role("definite-expirer", _expires, DEFINITE),
    Role("compare-expirer", _expires, COMPARE),
)


# ---- plays


class AwaitPlay(LakePlay):
    """One pair."""

    def __init__(self, world: World, pair: Pair[Act]) -> None:
        params = params_of(world.seed, pair.role)
        if pair.what == "freeze":
            params = replace(params, active_seconds=params.active_seconds + FROZEN_SECONDS)
        super().__init__(world, params)
        self._act = pair.role.act
        self.fated = Fated(world, pair, EXPECTED, frozen_seconds=FROZEN_SECONDS)

    def people(self) -> None:
        """The role, and who goes on beside it."""
        estate = self.estate
        self.start("writer-w0", lambda node: write(estate, node, "w0"))
        self.start("controller", lambda node: control(estate, node))
        self.tasks.append(self.world.loop.create_task(self._role(), name="life of the role"))

    async def _role(self) -> None:
        await asyncio.sleep(0.08)
        await self.fated.play(lambda node: self._act(self.estate, self.eye, node))


def params_of(seed: int, role: Role[Act]) -> LakeParams:
    """A small collection, of which little goes wrong but what is meant to."""
    fixed = {"kind": TimeKind.U64, "lease_ms": LEASE_MS, "poll_ms": 20, "edge": 10, "closed": 0.0, "lives": 1}
    calm = {"crashes": 0.0, "freezes": 0.0, "parallelism": 2, "page_keys": 1000, "pace": 0.05, "active_seconds": 0.5}
    return draw(derived_rng(seed, "params"), {**fixed, **calm, **role.fixed})


def world_of(seed: int, keep_trace: bool = False) -> World:
    """Without faults."""
    interleaving = (Interleaving.DOMAINS, Interleaving.FIFO)[seed % 2]
    return World(seed, plan=replace(NO_FAULTS, latency=LATENCY), interleaving=interleaving, keep_trace=keep_trace)


def awaits_of(role: Role[Act]) -> tuple[int, int]:
    """How many callbacks and requests the role has when nothing goes wrong."""
    world = world_of(0)
    play = AwaitPlay(world, Pair(role, "crash", 0))
    world.run(play.run())
    return play.fated.awaits


@functools.cache
def all_pairs() -> Sequence[Pair[Act]]:
    """Of all roles."""
    return list(pairs_of(ROLES, awaits_of))


def _make(seed: int, keep_trace: bool) -> World:
    all_pairs()  # which runs worlds of its own
    return world_of(seed, keep_trace)


AWAITS = Scenario(
    "collections-awaits",
    "each fault at each await of each role of collections: a seed is one of the pairs",
    _make,
    lambda world: AwaitPlay(world, all_pairs()[world.seed % len(all_pairs())]).run(),
)
