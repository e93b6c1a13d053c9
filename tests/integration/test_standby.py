"""Rolling deploys: of several processes one writes; whatever ends it, another one goes on, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.places import Place, make_place
from tests.integration.processes import ChildProcess
from tests.integration.test_kill import acknowledged, check

HEARTBEAT_MS = 1_500
"""Three of them are longer than a busy machine keeps a process waiting."""
BOUND_S = 60.0
"""A takeover is a matter of a poll, or of three heartbeats; the rest is a busy machine."""
ENOUGH = 20


def standby(place: Place, tag: str) -> ChildProcess:
    arguments = ["tests/integration/writer.py", *place.arguments(), "--tag", tag, "--tasks", "8", "--pause", "0.01"]
    return ChildProcess([*arguments, "--standby"])


async def writes(child: ChildProcess, epoch: int) -> None:
    """It took over, and writes."""
    assert await child.wait_for_line("open", timeout=BOUND_S) == f"open {epoch}"
    await child.wait_for_line(lambda line: len(child.received) > ENOUGH and line.startswith("ack"), timeout=BOUND_S)


def acks(child: ChildProcess) -> dict[int, int]:
    return acknowledged([line for line in child.received if line.startswith(("open", "ack"))])


@pytest.mark.parametrize(
    ("store", "log"),
    [
        ("local", ("contiguous", True)),
        ("s3", ("epoch_prefixed", False)),
        ("s3+dynamodb", ("contiguous", False)),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
@pytest.mark.timeout(300)
async def test_another_one_goes_on(
    store: str,
    log: tuple[str, bool],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    aws_environment: dict[str, str],
) -> None:
    endpoint = None if store == "local" else request.getfixturevalue("s3_endpoint")
    place = await make_place(store, log, tmp_path, endpoint, heartbeat_interval_ms=HEARTBEAT_MS)
    async with standby(place, "a") as first:
        await writes(first, 1)
        async with standby(place, "b") as second:
            first.terminate()  # a clean hand-over, before or after the other one has begun to wait
            assert await first.wait(timeout=BOUND_S) == 0
            assert first.received[-1] == "closed by itself"
            await writes(second, 2)
            await go_on(place, first, second)


async def go_on(place: Place, first: ChildProcess, second: ChildProcess) -> None:
    """The second one writes, and stands still; the third one is killed."""
    async with standby(place, "c") as third:
        await second.freeze()  # it is taken for dead, and wakes as a zombie
        await writes(third, 3)
        second.thaw()
        assert await second.wait_for_line("closed", timeout=BOUND_S) == "closed fenced FencedError"
        async with standby(place, "d") as fourth:
            await third.kill()
            await writes(fourth, 4)
            async with place.open() as db:
                for tag, child in (("a", first), ("b", second), ("c", third)):
                    await check(db, tag, acks(child))
                await fourth.wait_for_line("closed fenced", timeout=BOUND_S)
                await check(db, "d", acks(fourth))
