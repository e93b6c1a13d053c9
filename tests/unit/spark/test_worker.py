"""The engine inside a worker process: a loop of its own, few open readers, generators that are left early."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import slate_async as slate
from slate_async.spark.lease import held_checkpoint
from slate_async.spark.worker import OPEN_READERS, ReaderName, Worker
from tests.engine import KINDS


@pytest.fixture
def worker() -> Iterator[Worker]:
    one = Worker()
    yield one
    one.close()


async def test_readers_of_many_checkpoints_take_turns(worker: Worker, tmp_path: Path) -> None:
    names = []
    async with slate.open(tmp_path, settings=KINDS[0].settings()) as db:
        for number in range(OPEN_READERS + 2):
            await db.put(b"k", b"%d" % number)
            names.append(ReaderName(str(tmp_path), None, str((await db.checkpoints.create()).id)))

    async def seen(_: slate.Environment) -> list[bytes | None]:
        found = []
        for name in names:
            async with worker.reader(name) as reader:
                found.append(await reader.get(b"k"))
        return found

    async def used_at_once(_: slate.Environment) -> tuple[list[bytes | None], list[str]]:
        async with AsyncExitStack() as stack:
            readers = [await stack.enter_async_context(worker.reader(name)) for name in names]
            found = [await reader.get(b"k") for reader in readers]
        return found, [reader.status().state for reader in readers]

    values = [b"%d" % number for number in range(len(names))]
    for _ in range(2):
        assert worker.run(seen) == values
    found, states = worker.run(used_at_once)
    assert found == values, "none was closed while it was in use"
    assert states.count("open") == OPEN_READERS


def test_a_generator_that_is_left_early_is_closed(worker: Worker) -> None:
    ended = []

    async def numbers(_: slate.Environment) -> AsyncGenerator[int, None]:
        try:
            for number in range(10):
                yield number
        finally:
            ended.append(True)

    items = worker.iterate(numbers)
    assert [next(items), next(items)] == [0, 1]
    items.close()  # type: ignore[attr-defined]
    assert ended == [True]


async def test_a_held_checkpoint_is_lengthened_and_goes_with_the_block(tmp_path: Path) -> None:
    async with slate.open(tmp_path, settings=KINDS[0].settings()) as db:
        await db.put(b"k", b"v")
    async with slate.open_admin(tmp_path) as admin:
        with held_checkpoint(str(tmp_path), None, 2.0) as checkpoint:
            (first,) = await admin.checkpoints.list()
            assert str(first.id) == checkpoint
            while (await admin.checkpoints.list())[0].expire_time == first.expire_time:
                pass
        assert await admin.checkpoints.list() == []


async def test_a_held_checkpoint_that_was_deleted_already_is_no_error(tmp_path: Path) -> None:
    async with slate.open(tmp_path, settings=KINDS[0].settings()) as db:
        await db.put(b"k", b"v")
    async with slate.open_admin(tmp_path) as admin:
        with held_checkpoint(str(tmp_path), None, 60.0) as checkpoint:
            await admin.checkpoints.delete(checkpoint)
