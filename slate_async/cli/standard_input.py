"""Standard input as a file of lines that can be slow to come.

Reading a pipe waits for its writer. So it happens on a worker thread, while the database goes on flushing and polling.
Ordering rule: a cancelled `pull` first ends the thread's wait and lets it finish; so nothing reads any more when
`close` is called, and the process never hangs on its input.
"""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable
from typing import TypeVar

from slate_async.runtime.system import ThreadOffload

T = TypeVar("T")

CHUNK_BYTES = 1024 * 1024


class WaitingInput:
    """Lines of an open ``descriptor`` (a pipe, a terminal, a file). It stays open; `close` frees only our own."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._woken, self._wake = os.pipe()
        self._thread = ThreadOffload(1)
        self._buffer = bytearray()
        self._start = 0
        self._position = 0
        self._closed = False

    def readline(self) -> bytes:
        """The next line with its newline, ``b""`` at the end or once woken. Waits: call it on a worker thread."""
        searched = self._start
        while (end := self._buffer.find(b"\n", searched) + 1) == 0:
            del self._buffer[: self._start]
            self._start, searched = 0, len(self._buffer)
            chunk = self._read()
            if not chunk:
                end = len(self._buffer)
                break
            self._buffer += chunk
        line = bytes(self._buffer[self._start : end])
        self._start = end
        self._position += len(line)
        return line

    def _read(self) -> bytes:
        ready, _, _ = select.select([self._descriptor, self._woken], [], [])
        return b"" if self._woken in ready else os.read(self._descriptor, CHUNK_BYTES)

    def tell(self) -> int:
        """Bytes of the lines given out."""
        return self._position

    async def pull(self, work: Callable[[], T]) -> T:
        """Run ``work``, which reads lines, on the worker thread; a cancellation makes it see the end of the input."""
        task = asyncio.ensure_future(self._thread.run(work))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            os.write(self._wake, b"!")
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # retrieved here, because the caller gets the cancellation
            raise

    def close(self) -> None:
        """Free what this took. Idempotent."""
        if not self._closed:
            self._closed = True
            self._thread.close()
            os.close(self._woken)
            os.close(self._wake)
