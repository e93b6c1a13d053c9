"""Who merges has the operator: a process without it is refused by its name, and has changed nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import slate_async as slate
from slate_async.engine.compaction.executor import RangeTask
from slate_async.merge_operators import registry
from tests.engine import memory_store
from tests.read_model import Version
from tests.support.merge_harness import MergeHarness


class Longest:
    name = "test_longest"

    def check(self, operand: bytes) -> None:
        """Any bytes."""

    def fold(self, operands: Sequence[bytes]) -> bytes:
        return max(operands, key=len)

    def apply(self, base: bytes | None, operands: Sequence[bytes]) -> bytes:
        return max([base or b"", *operands], key=len)


@pytest.fixture
async def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database with operands, whose operator this process had."""
    monkeypatch.setattr(registry, "_registered", {})
    slate.register_merge_operator(Longest())
    place = f"file://{tmp_path}/db"
    settings = slate.Settings(merge_operator="test_longest", auto_compaction=False)
    async with slate.open(place, settings=settings) as db:
        for operand in (b"two", b"three", b"one"):
            await db.merge(b"a", operand)
            await db.flush(l0=True)
    registry._registered.clear()
    return place


async def head_of(place: str) -> int:
    async with slate.open_admin(place) as admin:
        return (await admin.inspect.manifest()).state.version


async def test_roles_that_merge_are_refused_and_change_nothing(place: str) -> None:
    before = await head_of(place)
    for opening in (slate.open, slate.open_reader, slate.open_compactor):
        with pytest.raises(slate.ConfigError, match=r"merges by the operator 'test_longest', which this process"):
            await opening(place)
    assert await head_of(place) == before
    slate.register_merge_operator(Longest())
    async with slate.open(place) as db:
        assert await db.get(b"a") == b"three"
        await db.compact(full=True)
        assert await db.get(b"a") == b"three"


async def test_roles_that_only_copy_rows_need_no_operator(place: str, tmp_path: Path) -> None:
    async with slate.open_admin(place) as admin:
        assert not (await admin.verify()).findings
        checkpoint = await admin.checkpoints.create()
        await admin.mirror(checkpoint.id, f"file://{tmp_path}/mirror")
    async with slate.open_gc(place) as gc:
        await gc.collect()
    slate.register_merge_operator(Longest())
    async with slate.open_reader(f"file://{tmp_path}/mirror") as reader:
        assert await reader.get(b"a") == b"three"


async def test_an_executor_without_it_writes_nothing() -> None:
    """As a task of Spark is: the range says what it is merged by."""
    harness = MergeHarness(memory_store())
    task: RangeTask = await harness.task([Version(b"a", b"x", 1, 2)], merge_operator="test_missing")
    before = [info.key async for info in harness.store.list("")]
    with pytest.raises(slate.ConfigError, match="'test_missing'"):
        await harness.run(task)
    assert [info.key async for info in harness.store.list("")] == before
