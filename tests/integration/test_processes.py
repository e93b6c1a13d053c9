"""Children report every line they wrote before they died, and stand still when frozen."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.integration.processes import ChildError, ChildProcess

COUNTER = """
import itertools
for number in itertools.count():
    print(number, flush=True)
"""
ECHO = """
import sys
for line in sys.stdin:
    print("echo " + line, end="", flush=True)
"""


async def test_every_line_before_a_kill_is_received() -> None:
    async with ChildProcess(["-c", COUNTER]) as child:
        async for line in child.lines():
            if int(line) == 1_000:
                break
        await child.kill()
        assert child.returncode == -signal.SIGKILL
        assert child.received == [str(number) for number in range(len(child.received))]
        assert len(child.received) > 1_000
        assert [line async for line in child.lines(start=999)][:2] == ["999", "1000"]


async def test_a_line_without_its_end_is_dropped() -> None:
    async with ChildProcess(["-c", "print('whole'); print('half', end='')"]) as child:
        assert await child.wait() == 0
        assert child.received == ["whole"]


async def test_a_frozen_child_says_nothing_until_thawed() -> None:
    async with ChildProcess(["-c", ECHO]) as child:
        await child.send("one")
        await child.wait_for_line("echo one")
        await child.freeze()
        await child.send("two")
        with pytest.raises(ChildError, match=r"no line 'echo two' within 0\.1 s"):
            await child.wait_for_line("echo two", timeout=0.1)
        child.thaw()
        assert await child.wait_for_line(lambda line: "two" in line) == "echo two"


async def test_a_frozen_child_can_be_killed() -> None:
    async with ChildProcess(["-c", COUNTER]) as child:
        await child.wait_for_line("10")
        await child.freeze()
    assert child.returncode == -signal.SIGKILL


async def test_an_early_end_is_reported_with_the_childs_error() -> None:
    async with ChildProcess(["-c", "raise SystemExit('no such luck')"]) as child:
        with pytest.raises(ChildError, match=r"ended without a line 'ready'(.|\n)*no such luck"):
            await child.wait_for_line("ready")
        assert await child.wait() == 1


async def test_the_environment_is_passed_on(tmp_path: Path) -> None:
    async with ChildProcess(["-c", "import os; print(os.environ['WHERE'], os.getppid())"], {"WHERE": "here"}) as child:
        assert await child.wait_for_line("here") == f"here {os.getpid()}"


async def _fail_inside(child: ChildProcess) -> None:
    async with child:
        await child.wait_for_line("3")
        raise ZeroDivisionError


async def test_leaving_the_context_by_an_error_kills_the_child() -> None:
    child = ChildProcess(["-c", COUNTER])
    with pytest.raises(ZeroDivisionError):
        await _fail_inside(child)
    assert child.returncode == -signal.SIGKILL
