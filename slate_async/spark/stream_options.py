"""Options of ``readStream.format("slate-changes")``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from slate_async.errors import InvalidError
from slate_async.spark.options import Options, byte_count, positive, seconds

DEFAULT_ROWS = 1_000_000
DEFAULT_PARTITION_BYTES = 16 << 20
DEFAULT_SUBSCRIPTION_LIFETIME_S = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """What a stream of changes is asked for.

    path, metastore: as of `slate_async.open`
    start: changes after that sequence number come; "now" is the newest that is durable. Only of a new query: one that
    has a checkpoint goes on where it was
    max_rows, max_bytes: of a micro-batch, one of them
    partition_bytes: of keys and values for each task, about
    subscription_lifetime_s: so long after a query was stopped, what it has not consumed is still there
    """

    path: str
    metastore: str | None
    start: int | Literal["now"]
    max_rows: int | None
    max_bytes: int | None
    partition_bytes: int
    subscription_lifetime_s: float

    @classmethod
    def of(cls, options: Mapping[str, str]) -> StreamOptions:
        """Raises `InvalidError` for unknown options and wrong values, by name."""
        given = Options(options)
        stream = cls(
            path=given.path(),
            metastore=given.take("metastore", str, None),
            start=given.take("startingSeq", _start, 0),
            max_rows=given.take("maxRowsPerTrigger", positive, None),
            max_bytes=given.take("maxBytesPerTrigger", byte_count, None),
            partition_bytes=given.take("partitionBytes", byte_count, DEFAULT_PARTITION_BYTES),
            subscription_lifetime_s=given.take("subscriptionLifetime", seconds, DEFAULT_SUBSCRIPTION_LIFETIME_S),
        )
        given.finish()
        if stream.max_rows is not None and stream.max_bytes is not None:
            raise InvalidError("give one of the options maxRowsPerTrigger and maxBytesPerTrigger")
        return stream


def _start(text: str) -> int | Literal["now"]:
    if text.lower() == "now":
        return "now"
    if text.lower() == "beginning":
        return 0
    if not text.isdecimal():
        raise ValueError('a sequence number, "beginning" or "now"')
    return int(text)
