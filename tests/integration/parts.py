"""The parts in a database's long life: processes whose word is judged, line by line, against what others said before.

A writer finds every write that was acknowledged before it was started. A reader shows only states that were, one after
another and none older than what was acknowledged before it was started. Nobody fails.
"""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from tests.integration.processes import ChildProcess

PATIENCE_S = 120.0
"""For a process of a crowded machine to do its next piece of work."""
ENDED = ("failed", "closed", "refused")


@dataclass
class Life:
    """What all parts did so far.

    acknowledged: the newest state that a writer called durable; seen: the newest one that readers showed
    counts: of what was done, by part"""

    acknowledged: int = 0
    seen: int = 0
    counts: Counter[str] = field(default_factory=Counter)


class Part:
    """One process. ``work`` begins the lines that say that something was done."""

    work: tuple[str, ...] = ()

    def __init__(self, name: str, life: Life, arguments: list[str]) -> None:
        self.name = name
        self._life = life
        self._child = ChildProcess(arguments)
        self._stack = AsyncExitStack()
        self._heard = 0
        self._floor = 0

    async def start(self) -> None:
        self._floor = self._life.acknowledged
        await self._stack.enter_async_context(self._child)
        self._life.counts[f"{self.name}: started"] += 1

    @property
    def begun(self) -> bool:
        """Whether it said anything yet."""
        return bool(self._child.received)

    async def kill(self) -> None:
        """SIGKILL. What it said before counts."""
        try:
            self.hear()
            await self._child.kill()
            self._judge_news()
        finally:
            await self.stop()

    async def stop(self) -> None:
        """End it, whatever it says."""
        await self._stack.aclose()

    def hear(self) -> None:
        """Judge what it said since the last call. Raises `AssertionError` for what must not be; it lives, too."""
        status = self._child.returncode
        self._judge_news()
        assert status is None, f"{self.name} ended by itself with status {status}\n{self._child.stderr_tail()}"

    async def works(self) -> None:
        """Wait until it did something more."""
        self.hear()
        start = len(self._child.received)
        await self._child.wait_for_line(
            lambda line: line.startswith((*self.work, *ENDED)), start=start, timeout=PATIENCE_S
        )
        self.hear()

    def _judge_news(self) -> None:
        news = self._child.received[self._heard :]
        self._heard += len(news)
        for line in news:
            words = line.split()
            assert words[0] not in ENDED, f"{self.name} said {line}\n{self._child.stderr_tail()}"
            self.judge(words)
            self._life.counts[f"{self.name}: {words[0]}"] += 1

    def judge(self, words: list[str]) -> None:
        """Raise `AssertionError` unless it may say that now."""


class Writer(Part):
    """Writes one state after another."""

    work = ("wrote",)

    def judge(self, words: list[str]) -> None:
        state = int(words[1])
        if words[0] == "wrote":
            self._life.acknowledged = max(self._life.acknowledged, state)
        else:
            assert state >= self._floor, f"a writer found state {state}, but {self._floor} was acknowledged"

    async def opens(self) -> int:
        """Wait until it may write; the state it found."""
        line = await self._child.wait_for_line(lambda line: line.startswith(("open", *ENDED)), timeout=PATIENCE_S)
        self._judge_news()
        return int(line.split()[1])

    async def is_fenced(self, found: int) -> None:
        """Another took over and found state ``found``: this one must notice and end by itself."""
        await self._child.wait_for_line("failed FencedError", timeout=PATIENCE_S)
        last = max((int(line.split()[1]) for line in self._child.received if line.startswith("wrote")), default=0)
        assert last <= found, f"a new writer found state {found}, but the old one acknowledged {last}"
        await self.stop()
        self._life.counts["writer: taken over"] += 1


class Reader(Part):
    """Shows one state after another; ``stays`` at one if it reads a checkpoint. Later lives go on where it was."""

    work = ("saw",)

    def __init__(self, name: str, life: Life, arguments: list[str], stays: int | None = None) -> None:
        super().__init__(name, life, arguments)
        self._stays = stays
        self._last = 0

    def judge(self, words: list[str]) -> None:
        state = int(words[1])
        least = max(self._floor, self._last)
        if self._stays is None:
            assert state >= least, f"{self.name} shows state {state} after {least} was acknowledged, or shown"
            self._life.seen = max(self._life.seen, state)
        else:
            assert state == self._stays, f"{self.name} shows state {state}, its checkpoint is of {self._stays}"
        self._last = state


class Compactor(Part):
    """Compacts what is due."""

    work = ("committed", "moved")


class GarbageCollector(Part):
    """Collects garbage."""

    work = ("collected",)
