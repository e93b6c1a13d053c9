"""`WriteHandle` and `UpdateHandle`: what writes return."""

from __future__ import annotations

from slate_async.database import transact
from slate_async.engine.write import commit_group as group
from slate_async.runtime.loop_thread import LoopThread


class WriteHandle:
    """What a write returns."""

    __slots__ = ("_handle", "_loop", "seq")

    seq: int
    """Sequence number of the last row written."""

    def __init__(self, loop: LoopThread, handle: group.WriteHandle) -> None:
        self._loop = loop
        self._handle = handle
        self.seq = handle.seq

    @property
    def create_time(self) -> float:
        """Seconds since the Unix epoch, the creation time of its rows."""
        return self._handle.create_time

    @property
    def is_durable(self) -> bool:
        """Whether the write is in the object store for good already."""
        return self._handle.is_durable

    def durable(self) -> None:
        """Wait until the write is in the object store for good. Raises as `slate_async.WriteHandle.durable`."""
        self._loop.run(self._handle.durable)

    def __repr__(self) -> str:
        return repr(self._handle).replace("<", "<sync ", 1)


class UpdateHandle(WriteHandle):
    """What an update returns."""

    __slots__ = ("value",)

    value: bytes | None
    """What the key has now; ``None``: the update deleted it, or left it absent."""

    def __init__(self, loop: LoopThread, handle: transact.UpdateHandle) -> None:
        super().__init__(loop, handle)
        self.value = handle.value
