"""What a reader reads from: a living database that is followed, or a checkpoint that never changes."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from slate_async.engine.follow.reader_state import ReaderState
from slate_async.errors import NotFoundError
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.state import Checkpoint
from slate_async.storage.sst.reader import MissingError


class ReaderSource(Protocol):
    """A reader's state, and what to do when an object of it is missing."""

    @property
    def reader_state(self) -> ReaderState:
        """What reads see."""

    @property
    def checkpoint_id(self) -> UUID | None:
        """The checkpoint that keeps its SSTs, if one does."""

    def expiry_time_ms(self, now_ms: int) -> int:
        """The time by which a read that begins at ``now_ms`` judges expiry."""

    async def advance_past(self, missing: MissingError) -> None:
        """Come to a state without the object that was missed. Raises, if there is none, why."""


class CheckpointSource:
    """One checkpoint: nothing is written for it and nothing newer is looked for."""

    def __init__(self, reader_state: ReaderState, driver: ManifestDriver, checkpoint: Checkpoint) -> None:
        self.reader_state = reader_state
        self._checkpoint = checkpoint
        # A copy of a checkpoint names its source's version, which holds the one that was made with it.
        made = [named.create_ms for named in reader_state.manifest.checkpoints if named.ref == checkpoint.ref]
        self._expiry_time_ms = min(made, default=checkpoint.create_ms)
        self._driver = driver

    @property
    def checkpoint_id(self) -> UUID | None:
        """See `ReaderSource`."""
        return self._checkpoint.id

    def expiry_time_ms(self, now_ms: int) -> int:
        """See `ReaderSource`. A checkpoint shows what was alive when it was made, or the one it is a copy of."""
        return self._expiry_time_ms

    async def advance_past(self, missing: MissingError) -> None:
        """See `ReaderSource`. While the checkpoint is there, nothing it names may be missing."""
        head = await self._driver.load()
        if head is None or head.checkpoint(self._checkpoint.id) is None:
            raise NotFoundError(
                f"checkpoint {self._checkpoint.id} was deleted, or expired and was collected, while it was read; open a"
                " reader on another one"
            ) from missing
        raise missing
