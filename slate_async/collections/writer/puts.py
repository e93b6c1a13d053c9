"""`Puts`: puts of pending batches, repeated until they are answered, within a deadline.

Rule: after an outcome that is unknown the SAME put is sent again, under the same name and with the same token. So at
most one of its attempts makes the batch while its name is not collected, and what lies there says whose it is.

Invariant: an error's outcome is ``"not_applied"`` only if none of the attempts may have put anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import pyarrow as pa

from metastores.protocol import Committed, Unknown
from slate_async.collections.codec.description import Description
from slate_async.collections.codec.parts import PartRef
from slate_async.collections.core.area import Area
from slate_async.collections.core.garbage import MergedFile
from slate_async.collections.core.names import PendingName
from slate_async.collections.core.updates import UpdateSchema
from slate_async.collections.stats import AppendStats
from slate_async.collections.store.acknowledged import KEPT_BYTES, AcknowledgedBatch, AcknowledgedBatches
from slate_async.collections.store.pending import PendingStore
from slate_async.collections.store.versions import AreaVersions
from slate_async.errors import Outcome, UnavailableError
from slate_async.runtime.backoff import Backoff
from slate_async.runtime.pokes import Pokes
from slate_async.runtime.protocol import Runtime

T = TypeVar("T")


async def no_merged_files() -> Sequence[MergedFile]:
    """Nothing was absorbed yet."""
    return ()


async def as_listed(files: Sequence[MergedFile]) -> Sequence[MergedFile]:
    """Nothing more is known of ``files`` than their names say."""
    return files


@dataclass(frozen=True, slots=True)
class WriterContext:
    """What the appends of a writer work with.

    name: of the collection, for messages
    shard: what the appends go to: the writer's name, or the one shard of ``compare`` appends
    deadline_ms: of one append, all its attempts included
    poll_interval_ms: between two looks at the head, for what waits
    part_bytes: updates of a part of a large batch, before they are compressed
    max_pending: appends of one writer that wait for the controller; more of them wait to be appended
    merged_files: lists the merged area; ``read_uppers``: has files say where they end whose names do not
    acknowledged: what listeners in this process are handed over
    pokes: poked after each acknowledgement, so that readers in this process look at once
    """

    name: str
    shard: str
    schema: UpdateSchema
    pending: PendingStore
    versions: AreaVersions
    runtime: Runtime
    deadline_ms: int
    poll_interval_ms: int = 500
    part_bytes: int = 16 << 20
    max_pending: int = 10_000
    merged_files: Callable[[], Awaitable[Sequence[MergedFile]]] = no_merged_files
    read_uppers: Callable[[Sequence[MergedFile]], Awaitable[Sequence[MergedFile]]] = as_listed
    acknowledged: AcknowledgedBatches = field(default_factory=AcknowledgedBatches)
    pokes: Pokes = field(default_factory=Pokes)
    stats: AppendStats = field(default_factory=AppendStats)

    def backoff(self, what: str) -> Backoff:
        """Attempts of ``what``, within the deadline."""
        return Backoff(self.runtime, self.deadline_ms, f"{what} of {self.name}")

    async def answered(self, what: str, call: Callable[[], Awaitable[T]], outcome: Outcome | None) -> T:
        """What ``call`` gives, which changes nothing if repeated. Raises `UnavailableError` with ``outcome`` past the
        deadline."""
        backoff = self.backoff(what)
        while True:
            try:
                return await backoff.attempt(call())
            except UnavailableError as error:
                await backoff.wait(error, outcome)

    def tell(self, put: AcknowledgedBatch | None) -> None:
        """Have readers in this process look for what was acknowledged; ``put``: what they need not look for."""
        if put is not None:
            self.acknowledged.add(put)
        self.pokes.poke()

    async def head(self, outcome: Outcome | None) -> Area:
        """The newest version, by a read that begins now."""
        return await self.answered("a read of the head", self.versions.load, outcome)


class Resolved(NamedTuple):
    """How a put ended.

    there: what the batch says that lay there already; ``None``: it was put
    maybe_put: whether an earlier attempt may have put it as well
    put: what listeners may be handed over once the batch is acknowledged; ``None`` if it lay there already, has parts,
        or is too large
    """

    there: Description | None
    maybe_put: bool
    put: AcknowledgedBatch | None


class Puts:
    """Puts of one writer. Each is encoded once: all its attempts send the same bytes."""

    def __init__(self, context: WriterContext) -> None:
        self._context = context

    async def batch(self, name: PendingName, description: Description, updates: pa.RecordBatch | None) -> Resolved:
        """Put a batch, unless there is one of that name. Raises `InvalidError` for one that is too large,
        `UnavailableError` with the outcome past the deadline."""
        backoff = self._context.backoff(f"the append from {description.lower} to {description.upper}")
        outcome: Outcome = "not_applied"
        data = await self._context.pending.encoded(name, description, updates)
        while True:
            try:
                put = await backoff.attempt(self._context.pending.put(name, data))
            except UnavailableError as error:
                cause = error
                if error.outcome != "not_applied":
                    outcome = "unknown"
            else:
                if isinstance(put, Committed):
                    return Resolved(None, outcome == "unknown", _to_hand_over(name, description, data))
                if not isinstance(put, Unknown):
                    return Resolved(put.current, outcome == "unknown", None)
                cause, outcome = UnavailableError(put.cause), "unknown"
            self._context.stats.retries += 1
            await backoff.wait(cause, outcome)

    async def part(self, name: PendingName, description: Description, updates: pa.Table) -> PartRef:
        """Put a part of a large batch, over what former attempts left. Nothing is in by it, so the outcome of its
        errors is ``"not_applied"``."""
        return await self._context.answered(
            f"part {name.part} of a batch",
            lambda: self._context.pending.put_part(name, description, updates),
            "not_applied",
        )


def _to_hand_over(name: PendingName, description: Description, data: bytes) -> AcknowledgedBatch | None:
    if description.parts or len(data) > KEPT_BYTES:
        return None
    return AcknowledgedBatch(description.lower, description.upper, name, description.token, data)
