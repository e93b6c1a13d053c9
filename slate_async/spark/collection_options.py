"""Options of ``format("slate-collection")``: of batch reads, streams and writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.names import check_name
from slate_async.collections.core.times import Time, TimeKind
from slate_async.errors import InvalidError
from slate_async.spark.options import (
    DEFAULT_LIFETIME_S,
    Options,
    boolean,
    byte_count,
    natural,
    positive,
    seconds,
)

DEFAULT_PARTITION_BYTES = 16 << 20
"""Of merged batches, which are compressed: some million rows."""
DEFAULT_TIMEOUT_S = 60.0
DEFAULT_STREAM_LIFETIME_S = 7 * 86_400.0
STREAM_ONLY = {"startat", "maxtimespertrigger"}
"""Options of streams, of which a batch read has none."""


@dataclass(frozen=True, slots=True)
class CollectionPlace:
    """Which collection is meant: ``collection`` of the lake at ``path``; ``metastore`` as of `slate_async.open`."""

    path: str
    metastore: str | None
    collection: str

    @classmethod
    def of(cls, given: Options) -> CollectionPlace:
        """Raises `InvalidError` if one is missing or cannot be meant."""
        path, metastore = given.path(), given.take("metastore", str, None)
        collection = given.take("collection", _collection, None)
        if collection is None:
            raise InvalidError("option collection is missing: the name of a collection of the lake at that path")
        return cls(path, metastore, collection)


@dataclass(frozen=True, slots=True)
class CollectionRead:
    """What a batch read is asked for.

    as_of: the time of the contents, as text; ``None``: the greatest that is definite now
    push_filters: whether comparisons of data columns in a query narrow what is read
    partition_bytes: stored bytes of merged batches for each partition
    lifetime_s: of the hold that is taken for the job; tasks prolong it
    timeout_s: so long is waited until ``as_of`` is definite
    hold: name and beat of a hold that another process keeps, in place of one that is taken
    """

    place: CollectionPlace
    as_of: str | None
    push_filters: bool
    partition_bytes: int
    lifetime_s: float
    timeout_s: float
    hold: tuple[str, int] | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> CollectionRead:
        """Raises `InvalidError` for unknown options and wrong values, by name."""
        given = Options(options)
        read = cls(
            place=CollectionPlace.of(given),
            as_of=given.take("asOf", str, None),
            push_filters=given.take("pushFilters", boolean, False),
            partition_bytes=given.take("partitionBytes", byte_count, DEFAULT_PARTITION_BYTES),
            lifetime_s=given.take("leaseLifetime", seconds, DEFAULT_LIFETIME_S),
            timeout_s=given.take("timeout", seconds, DEFAULT_TIMEOUT_S),
            hold=given.take("hold", _hold, None),
        )
        given.finish()
        return read

    def time(self, kind: TimeKind) -> Time | None:
        """``as_of``, of that kind. Raises `InvalidError`."""
        return None if self.as_of is None else time_of(self.as_of, kind, "asOf")


@dataclass(frozen=True, slots=True)
class CollectionStream:
    """What a stream is asked for.

    start: where a query without a checkpoint begins: "since" is the contents at the earliest time that can be read,
    and all updates after them; "now" is what is appended from now on; a number: updates at that time and later ones
    max_times: of a micro-batch
    partition_bytes: stored bytes for each task, about
    lifetime_s: so long after a query was stopped it can go on
    """

    place: CollectionPlace
    start: int | Literal["since", "now"]
    max_times: int | None
    partition_bytes: int
    lifetime_s: float

    @classmethod
    def of(cls, options: Mapping[str, str]) -> CollectionStream:
        """Raises `InvalidError` for unknown options and wrong values, by name."""
        given = Options(options)
        stream = cls(
            place=CollectionPlace.of(given),
            start=given.take("startAt", _start, "since"),
            max_times=given.take("maxTimesPerTrigger", positive, None),
            partition_bytes=given.take("partitionBytes", byte_count, DEFAULT_PARTITION_BYTES),
            lifetime_s=given.take("leaseLifetime", seconds, DEFAULT_STREAM_LIFETIME_S),
        )
        given.finish()
        return stream


@dataclass(frozen=True, slots=True)
class CollectionWrite:
    """What a write is asked for.

    time: of all rows of a frame; ``None``: where the collection ends
    job_id: of a frame: rows under a job id and a time that are in already are not taken again
    first_time: of a stream: the time of its first batch
    app_id: of a stream: its name, in place of its query's id
    checkpoint_location: Spark's own, of a stream
    """

    place: CollectionPlace
    time: int | None
    job_id: str | None
    first_time: int
    app_id: str | None
    checkpoint_location: str | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> CollectionWrite:
        """Raises `InvalidError` for unknown options and wrong values, by name."""
        given = Options(options)
        write = cls(
            place=CollectionPlace.of(given),
            time=given.take("time", _time, None),
            job_id=given.take("jobId", str, None),
            first_time=given.take("firstTime", _time, 0),
            app_id=given.take("appId", str, None),
            checkpoint_location=given.take("checkpointLocation", str, None),
        )
        given.finish()
        return write


def time_of(text: str, kind: TimeKind, option: str) -> Time:
    """A time as text. Raises `InvalidError`."""
    wanted = "a number, such as 120" if kind is TimeKind.U64 else "a pair, such as (3,0)"
    try:
        [time] = Frontier.parse(text, kind).elements
    except (InvalidError, ValueError):
        raise InvalidError(f"option {option}={text!r}: a time of this collection is {wanted}") from None
    return kind.time(time)


def check_read_or_stream(options: Mapping[str, str]) -> None:
    """Raise `InvalidError` for options that neither a batch read nor a stream has: where Spark asks for the schema, it
    does not say which is meant. One that only streams have says that a stream is."""
    try:
        CollectionRead.of(options)
    except InvalidError as error:
        try:
            CollectionStream.of(options)
        except InvalidError as of_stream:
            is_stream = any(name.lower() in STREAM_ONLY for name in options)
            raise (of_stream if is_stream else error) from None


def _collection(text: str) -> str:
    try:
        return check_name(text, "collection")
    except InvalidError as error:
        raise ValueError(str(error)) from None


def _hold(text: str) -> tuple[str, int]:
    reader, colon, beat = text.rpartition(":")
    if not colon or not beat.isdecimal():
        raise ValueError("the name of a hold and its beat, as slate_spark.reading_collection gives it")
    return reader, int(beat)


def _start(text: str) -> int | Literal["since", "now"]:
    folded = text.lower()
    if folded == "since" or folded == "now":
        return "since" if folded == "since" else "now"
    if not text.isdecimal():
        raise ValueError('a time, "since" or "now"')
    return natural(text)


def _time(text: str) -> int:
    try:
        return TimeKind.U64.time(natural(text))[0]
    except InvalidError as error:
        raise ValueError(str(error)) from None
