"""What a reader reads from: a living database that is followed, or a checkpoint that never changes."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from slate_async.engine.follow.reader_state import Picture
from slate_async.errors import NotFoundError
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.state import Checkpoint
from slate_async.storage.sst.reader import MissingError


class Source(Protocol):
    """A picture, and what to do when an object of it is missing."""

    @property
    def picture(self) -> Picture:
        """What reads see."""

    @property
    def checkpoint_id(self) -> UUID | None:
        """The checkpoint that keeps the picture's SSTs, if one does."""

    def judged_at(self, now_ms: int) -> int:
        """The time by which a read that begins at ``now_ms`` judges expiry."""

    async def look_past(self, missing: MissingError) -> None:
        """Come to a picture without the object that was missed. Raises, if there is none, why."""


class Fixed:
    """One checkpoint: nothing is written for it and nothing newer is looked for."""

    def __init__(self, picture: Picture, driver: ManifestDriver, checkpoint: Checkpoint) -> None:
        self.picture = picture
        self._checkpoint = checkpoint
        # A copy of a checkpoint names its source's version, which holds the one that was made with it.
        made = [one.create_ms for one in picture.state.checkpoints if one.ref == checkpoint.ref]
        self._moment_ms = min(made, default=checkpoint.create_ms)
        self._driver = driver

    @property
    def checkpoint_id(self) -> UUID | None:
        """See `Source`."""
        return self._checkpoint.id

    def judged_at(self, now_ms: int) -> int:
        """See `Source`. A checkpoint shows what was alive when it was made, or the one it is a copy of."""
        return self._moment_ms

    async def look_past(self, missing: MissingError) -> None:
        """See `Source`. While the checkpoint is there, nothing it names may be missing."""
        head = await self._driver.load()
        if head is None or head.checkpoint(self._checkpoint.id) is None:
            raise NotFoundError(
                f"checkpoint {self._checkpoint.id} was deleted, or expired and was collected, while it was read; open a"
                " reader on another one"
            ) from missing
        raise missing
