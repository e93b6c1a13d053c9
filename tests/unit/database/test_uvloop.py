"""The main story on uvloop, another event loop with asyncio's interface; and which loops are claimed at all."""

from __future__ import annotations

import asyncio
import re
import tomllib
from collections.abc import Callable, Coroutine
from pathlib import Path
from uuid import uuid4

import pytest

import slate_async as slate
from tests.engine import Kind, contents

ROOT = Path(__file__).resolve().parents[3]
ROWS = {b"user:%04d" % number: b"value %d" % number for number in range(300)}
Story = Callable[[], Coroutine[object, object, None]]


def on_uvloop(story: Story) -> None:
    """Run ``story`` to its end on a fresh uvloop."""
    uvloop = pytest.importorskip("uvloop", reason="uvloop has no release for this platform")

    async def checked() -> None:
        assert isinstance(asyncio.get_running_loop(), uvloop.Loop)
        await story()
        assert [task.get_name() for task in asyncio.all_tasks()] == [_this_task()]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(checked())


def _this_task() -> str:
    task = asyncio.current_task()
    assert task is not None
    return task.get_name()


@pytest.fixture(params=["file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty place."""
    return f"memory://{uuid4().hex}" if request.param == "memory" else (tmp_path / "db").as_uri()


def test_the_main_story(url: str, kind: Kind) -> None:
    settings = kind.settings(l0_sst_bytes=4096, block_bytes=256, flush_bytes=1024)

    async def put(db: slate.Db, key: bytes) -> slate.WriteHandle:
        return await db.put(key, ROWS[key])

    async def story() -> None:
        async with slate.Environment() as env:  # which keeps what is in memory from one opening to the next
            async with env.open(url, settings=settings) as db:
                handles = await asyncio.gather(*(put(db, key) for key in ROWS))
                assert sorted(handle.seq for handle in handles) == list(range(1, len(ROWS) + 1))
                async with db.snapshot() as before:
                    await db.delete(b"user:0007")
                    await db.flush(l0=True)
                    assert await before.get(b"user:0007") == ROWS[b"user:0007"]
                await db.put(b"late", b"row")
                expected = {**ROWS, b"late": b"row"}
                del expected[b"user:0007"]
                assert await contents(db) == expected
                tables = [batch async for batch in db.scan(prefix=b"user:", reverse=True).batches()]
                assert sum(batch.num_rows for batch in tables) == len(ROWS) - 1
            async with env.open(url, settings=settings, create=False) as again:
                assert again.status().epoch == 2
                assert await contents(again) == expected
                assert await again.get_many([b"late", b"user:0007"]) == [b"row", None]

    on_uvloop(story)


def test_a_take_over_and_a_cancelled_put(url: str, kind: Kind) -> None:
    settings = kind.settings(manifest_poll_interval_ms=20)

    async def story() -> None:
        async with slate.Environment() as env:
            older = await env.open(url, settings=settings)
            await older.put(b"a", b"1")
            cancelled = asyncio.ensure_future(older.put(b"b", b"2"))
            await asyncio.sleep(0)
            cancelled.cancel()
            await older.flush()
            async with env.open(url, settings=settings) as newer:
                with pytest.raises(slate.FencedError):
                    await older.wait_closed()
                await older.close()
                assert await newer.get_many([b"a", b"b"]) == [b"1", b"2"]  # in, for it had begun

    on_uvloop(story)


def test_only_asyncio_and_loops_with_its_interface_are_claimed() -> None:
    """Trio is not: neither by the package's metadata nor by its documents."""
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    assert [classifier for classifier in classifiers if classifier.startswith("Framework")] == ["Framework :: AsyncIO"]
    for document in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for line in document.read_text().splitlines():
            assert not re.search(r"\btrio\b", line, re.I) or "not" in line, f"{document.name}: {line}"
