"""A Python child process that reports line by line, and can be killed, frozen and thawed at any time.

    async with ChildProcess(["tests/integration/writer.py", url]) as child:
        async for line in child.lines():
            if enough(line):
                break
        await child.kill()
        acknowledged = child.received  # all it ever reported, also what nobody waited for

Invariant: a line counts as reported once its newline is in the pipe. Everything the child wrote before its death is
read, whether or not the test waits; a last line without its newline was being written when it died, and is dropped. The
child must flush each line.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.servers.process import ROOT

GUARD = ROOT / "tests" / "servers" / "guard.py"
MAX_LINE_BYTES = 16 * 1024 * 1024
FREEZE_POLLS = 2_000
STDERR_TAIL_CHARS = 12_000


class ChildError(AssertionError):
    """The child did not do what the test waited for; holds the end of its standard error."""


class ChildProcess:
    """One Python child in a process group of its own, ended for sure when the context is left.

    ``arguments`` are those of the interpreter: a script's path from the project's root (or ``-m``, ``-c``), then
    the program's own. ``env`` is added to this process's environment. ``received`` grows by every reported line.
    """

    def __init__(self, arguments: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self._arguments = list(arguments)
        self._env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **(env or {})}
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._news = asyncio.Condition()
        self._ended = False
        # Appending, so that reading its end here does not move the place where the child writes.
        self._stderr = tempfile.TemporaryFile("a+b")  # noqa: SIM115 - closed when the context is left
        self.received: list[str] = []

    async def __aenter__(self) -> ChildProcess:
        guard = ["-I", str(GUARD), str(os.getpid())]
        self._process = await asyncio.create_subprocess_exec(
            *[sys.executable, *guard, sys.executable, *self._arguments],
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._stderr,
            cwd=ROOT,
            env=self._env,
            limit=MAX_LINE_BYTES,
            start_new_session=True,
        )
        self._reader = asyncio.create_task(self._read(), name=f"output of child {self.pid}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.kill()
        finally:
            self._stderr.close()

    @property
    def _running(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise ChildError("the child was never started")
        return self._process

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._running.pid

    @property
    def returncode(self) -> int | None:
        """The exit status (negative: the signal that ended it), ``None`` while it runs."""
        return self._running.returncode

    def stderr_tail(self) -> str:
        """The end of what the child wrote to its standard error."""
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - STDERR_TAIL_CHARS))
        return self._stderr.read().decode(errors="replace")

    async def lines(self, start: int = 0) -> AsyncIterator[str]:
        """Every line from number ``start`` on, without its newline, as it comes; ends with the child's output."""
        position = start
        while True:
            async with self._news:
                while not self._ended and len(self.received) <= position:
                    await self._news.wait()
            if position >= len(self.received):
                return
            yield self.received[position]
            position += 1

    async def wait_for_line(self, wanted: str | Callable[[str], bool], *, start: int = 0, timeout: float = 30.0) -> str:
        """The first line from number ``start`` on that begins with ``wanted`` (or for which it is true).

        Raises `ChildError` if the child ends or ``timeout`` seconds pass first."""
        try:
            async with asyncio.timeout(timeout):
                async for line in self.lines(start):
                    if line.startswith(wanted) if isinstance(wanted, str) else wanted(line):
                        return line
        except TimeoutError as error:
            raise self._disappointed(f"no line {wanted!r} within {timeout} s") from error
        raise self._disappointed(f"ended without a line {wanted!r}")

    async def send(self, line: str) -> None:
        """Write a line to the child's standard input."""
        stdin = self._running.stdin
        if stdin is None:
            raise ChildError("the child has no standard input")
        stdin.write(f"{line}\n".encode())
        await stdin.drain()

    async def wait(self, *, timeout: float = 30.0) -> int:
        """Wait until the child ended by itself and all its output is read; the exit status.

        Raises `ChildError` after ``timeout`` seconds."""
        try:
            async with asyncio.timeout(timeout):
                status = await self._running.wait()
                await self._all_read()
        except TimeoutError as error:
            raise self._disappointed(f"did not end within {timeout} s") from error
        return status

    async def kill(self) -> None:
        """SIGKILL to the whole process group, frozen or not; returns when it has ended and its output is read."""
        self._signal(signal.SIGKILL)
        await self._running.wait()
        await self._all_read()

    async def freeze(self) -> None:
        """SIGSTOP; returns when the child has really stopped."""
        self._signal(signal.SIGSTOP)
        for _ in range(FREEZE_POLLS):
            if _is_stopped(self.pid):
                return
            await asyncio.sleep(0.001)
        raise self._disappointed("did not stop")

    def thaw(self) -> None:
        """SIGCONT: the child goes on where it was."""
        self._signal(signal.SIGCONT)

    def terminate(self) -> None:
        """SIGTERM to the whole process group."""
        self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        if self._running.returncode is not None:
            return
        # It may have ended by itself just now; `wait` reports how.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    async def _read(self) -> None:
        stdout = self._running.stdout
        assert stdout is not None
        try:
            while (line := await stdout.readline()).endswith(b"\n"):
                async with self._news:
                    self.received.append(line[:-1].decode())
                    self._news.notify_all()
        finally:
            self._ended = True
            async with self._news:
                self._news.notify_all()

    async def _all_read(self) -> None:
        if self._reader is not None:
            await asyncio.shield(self._reader)

    def _disappointed(self, message: str) -> ChildError:
        last = self.received[-3:]
        return ChildError(
            f"child {self.pid} ({' '.join(self._arguments[:2])}): {message}; status {self.returncode},"
            f" {len(self.received)} lines, the last {last}; end of its standard error:\n{self.stderr_tail()}"
        )


def _is_stopped(pid: int) -> bool:
    """Whether all threads of a process stand still. True where the system does not say."""
    tasks = Path(f"/proc/{pid}/task")
    if not tasks.exists():
        return True
    states = [(task / "stat").read_text().rsplit(")", 1)[1].split()[0] for task in tasks.iterdir()]
    return all(state in "TtZX" for state in states)
