"""Options of ``readStream.format("slate-changes")``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from slate_async.errors import InvalidError
from slate_async.spark.options import Options, byte_count, positive, seconds, time

DEFAULT_ROWS = 1_000_000
DEFAULT_PARTITION_BYTES = 16 << 20
DEFAULT_SUBSCRIPTION_LIFETIME_S = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """What a stream of changes is asked for.

    path, metastore: as of `slate_async.open`
    start, start_time: changes after that sequence number come, or after that time, in seconds since 1970; "now" is the
    newest that is durable. Only of a new query: one that has a checkpoint goes on where it was
    max_rows, max_bytes: of a micro-batch; `DEFAULT_ROWS` if neither is given
    partition_bytes: of keys and values for each task, about
    subscription_lifetime_s: so long after a query was stopped, what it has not consumed is still there
    """

    path: str
    metastore: str | None
    start: int | Literal["now"]
    start_time: float | None
    max_rows: int | None
    max_bytes: int | None
    partition_bytes: int
    subscription_lifetime_s: float

    @classmethod
    def of(cls, options: Mapping[str, str]) -> StreamOptions:
        """Raises `InvalidError` for unknown options and wrong values, by name."""
        given = Options(options)
        start = given.take("startingSeq", start_seq, None)
        start_time = given.take("startingTime", time, None)
        rows = given.take("maxRowsPerTrigger", positive, None)
        nbytes = given.take("maxBytesPerTrigger", byte_count, None)
        stream = cls(
            path=given.path(),
            metastore=given.take("metastore", str, None),
            start=start or 0,
            start_time=start_time,
            max_rows=DEFAULT_ROWS if rows is None and nbytes is None else rows,
            max_bytes=nbytes,
            partition_bytes=given.take("partitionBytes", byte_count, DEFAULT_PARTITION_BYTES),
            subscription_lifetime_s=given.take("subscriptionLifetime", seconds, DEFAULT_SUBSCRIPTION_LIFETIME_S),
        )
        given.finish()
        if start is not None and start_time is not None:
            raise InvalidError("give one of the options startingSeq and startingTime")
        return stream


def start_seq(text: str) -> int | Literal["now"]:
    """A sequence number, by name or as such."""
    if text.lower() == "now":
        return "now"
    if text.lower() == "beginning":
        return 0
    if not text.isdecimal():
        raise ValueError('a sequence number, "beginning" or "now"')
    return int(text)
