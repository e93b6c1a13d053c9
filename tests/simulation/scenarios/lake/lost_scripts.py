"""Scripts in which the newest version is lost, or seems to be (C30)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from slate_async.collections.codec.life import Appends
from slate_async.collections.writer.puts import no_merged_files
from slate_async.collections.writer.writer import open_writer
from slate_async.errors import CorruptionError, FencedError
from tests.simulation.checkers import Violation
from tests.simulation.scenarios.lake.stage import LakeStage, lake_script
from tests.simulation.scenarios.protocol import Scenario


async def lost_version(stage: LakeStage) -> None:
    """The newest versions are removed by accident, and restored after a controller wanted the role."""
    restore, _ = await _rolled_back(stage)
    try:
        await stage.rounds(await stage.controller("second"), 2)
    except CorruptionError:
        stage.estate.count("refused")
    restore()
    await stage.look(await stage.reader("reader"), 4)


async def lost_end_of_a_chain(stage: LakeStage) -> None:
    """The newest versions are removed by accident, and a writer looks for the end of the chain."""
    restore, last = await _rolled_back(stage)
    try:
        writer = await stage.writer("w1")
        await stage.append(writer, last, last + 7)
    except CorruptionError:
        stage.estate.count("refused")
    else:
        raise Violation("forked", f"an append at {last} is acknowledged, and the chain had come further")
    restore()
    await stage.look(await stage.reader("reader"), 4)


async def chain_goes_on_elsewhere(stage: LakeStage) -> None:
    """The newest versions are removed by accident; a writer that does not look appends at the end that is left."""
    _, last = await _rolled_back(stage)
    blind = replace(stage.estate.writing(node := stage.world.node("w1"), "w1"), merged_files=no_merged_files)
    writer = node, await node.run(open_writer(blind, Appends.COMPARE))
    await stage.append(writer, last, last + 7)
    try:
        await stage.controller("second")
    except CorruptionError:
        stage.estate.count("refused")
    else:
        raise Violation("forked", "a controller goes on from an append at a name that was collected")


async def absorbed_dead_batch(stage: LakeStage) -> None:
    """A controller that slept takes in a batch that landed at a name that was collected. Nothing was lost."""
    (node, first), writer, zombie = await stage.controller("first"), await stage.writer("w0"), await stage.writer("w1")
    put = stage.hold(zombie[0], "put-create", "pending_batches/")
    late = stage.world.loop.create_task(stage.lost_append(zombie, 0, 7))
    await put.caught()
    listing = stage.hold(node, "list", "pending_batches/")
    absorbing = node.spawn(first.round())
    await listing.caught()
    await stage.append(writer, 0, 3)
    await stage.rounds(await stage.controller("second"))
    put.release()
    await late
    listing.release()
    try:
        await node.join(absorbing)
    except FencedError:
        stage.estate.count("fenced")
    await stage.rounds(await stage.controller("third"))
    await stage.look(await stage.reader("reader"), 2)


async def _rolled_back(stage: LakeStage) -> tuple[Callable[[], None], int]:
    """What brings back the versions that were lost, and the upper of the newest one that is left. What was collected
    stays so."""
    keeper, writer = await stage.controller("first"), await stage.writer("w0")
    (versions,) = stage.world.cloud.metadata.manifests.values()
    left = stage.world.rng.choice((1, 2))
    await stage.append(writer, 0, left)
    await stage.rounds(keeper)
    before = dict(versions.records), versions.head
    await stage.append(writer, left, 5)
    await stage.rounds(keeper)
    await keeper[0].run(keeper[1].close())
    newest = dict(versions.records), versions.head
    versions.records, versions.head = before

    def restore() -> None:
        versions.records, versions.head = newest

    return restore, left


LOST_SCRIPTS: Sequence[Scenario] = (
    lake_script("lost-version", Appends.DEFINITE, lost_version),
    lake_script("lost-version-of-a-chain", Appends.COMPARE, lost_version),
    lake_script("lost-end-of-a-chain", Appends.COMPARE, lost_end_of_a_chain),
    lake_script("chain-goes-on-elsewhere", Appends.COMPARE, chain_goes_on_elsewhere),
    lake_script("absorbed-dead-batch", Appends.COMPARE, absorbed_dead_batch),
)
