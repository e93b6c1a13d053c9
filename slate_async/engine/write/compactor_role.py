"""`CompactorRole`: which process compacts a writer's database, as far as the writer knows.

The compactor beside the writer (`engine.compaction.embedded`) notes there what it does. The backpressure of compaction
and the database's status read it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from slate_async.engine.write.state import WriterState
from slate_async.errors import SlateError
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.state import ManifestState

_EMBEDDED = re.compile(r"writer-(\d+)\.[0-9a-f]+")


def embedded_token(writer_epoch: int, token: str) -> str:
    """The mark of a compactor that lives and dies with a writer."""
    return f"writer-{writer_epoch}.{token}"


def is_free(state: ManifestState, writer_epoch: int) -> bool:
    """Whether the role may be claimed without waiting: it was released, or its owner died with an older writer, or it
    is this writer's."""
    if not state.compactor_token:
        return True
    match = _EMBEDDED.fullmatch(state.compactor_token)
    return match is not None and int(match[1]) <= writer_epoch


@dataclass(slots=True)
class CompactorRole:
    """Of one writer epoch; a database that opens again after an outage gets a new one with its new writer.

    auto_compaction: whether the compactor beside the writer compacts without being asked
    epoch: that compactor's while it compacts, 0 while it claims the role for that; ``None`` while it does neither
    failure: what ended its compacting, while the writer goes on
    """

    driver: ManifestDriver
    state: WriterState
    auto_compaction: bool
    epoch: int | None = None
    failure: SlateError | None = None

    def newest(self) -> ManifestState:
        """The newest state that is known, seen by the writer or on the way of a commit."""
        return self.driver.head or self.state.manifest

    def describe(self) -> str:
        """Which process compacts, for the log and the status."""
        if self.failure is not None:
            return f"failed: {self.failure}"
        if self.epoch is not None:
            return f"compacting here, epoch {self.epoch}"
        newest = self.newest()
        if newest.compactor_token and not is_free(newest, self.state.epoch):
            return f"compacted elsewhere, epoch {newest.compactor_epoch}"
        return (
            "standing by"
            if self.auto_compaction
            else "no compactor runs; run `slate compactor`, or open with auto_compaction=True"
        )
