"""How the process of a stream's planner ends when Spark terminates it."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import slate_async as slate
from tests.unit.spark.test_stream_plan import feed_subscriptions

RUNNER = """
import sys
from pyspark.sql.streaming.datasource import ReadAllAvailable
from slate_async.spark.stream_options import StreamOptions
from slate_async.spark.stream_reader import ChangesReader

reader = ChangesReader(StreamOptions.of({"path": sys.argv[1]}))
try:
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    reader.commit(end)
    print("ready", flush=True)
    sys.stdin.read()  # as Spark waits for the next call
finally:
    reader.stop()
    print("stopped", flush=True)  # where Spark would answer a JVM that no longer listens
"""


async def planner_ended_by(path: Path, *signals: signal.Signals) -> tuple[str, int]:
    """What a runner of a planner says to its end, and its exit code; without signals its input ends."""
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", RUNNER, str(path), stdin=pipe, stdout=pipe)
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        async with asyncio.timeout(120):
            assert await child.stdout.readline() == b"ready\n"
            for number in signals:
                child.send_signal(number)
            if not signals:
                child.stdin.close()
            said = (await child.stdout.read()).decode()
            return said, await child.wait()
    finally:
        if child.returncode is None:
            child.kill()


@pytest.mark.parametrize("signals", [(), (signal.SIGTERM,), (signal.SIGTERM, signal.SIGTERM)], ids=len)
async def test_a_planner_that_is_terminated_gives_back_what_it_has(
    signals: tuple[signal.Signals, ...], tmp_path: Path
) -> None:
    async with slate.open(tmp_path) as db:
        await db.put(b"k", b"v")
        said, code = await planner_ended_by(tmp_path, *signals)
        assert (said, code) == ("" if signals else "stopped\n", 0)
        async with slate.open_admin(tmp_path) as admin:
            assert sorted(kept.owner for kept in await admin.checkpoints.list()) == ["feed", "writer"]
        [subscription] = await feed_subscriptions(tmp_path)
        async with db.changes(subscription=subscription.name, follow=False) as feed:
            assert feed.acknowledged == 1
