"""Options of the ``slate`` source: strings as Spark hands them over, checked and typed.

Spark folds the case of names. Credentials never belong here: options are part of plans, logs and the Spark UI.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from os import PathLike
from typing import TypeAlias, TypeVar, get_args
from uuid import UUID

from slate_async.arguments import own_path
from slate_async.errors import InvalidError
from slate_async.objectstore.url import parse_url

T = TypeVar("T")
D = TypeVar("D")
OptionValue: TypeAlias = str | int | float | bool | datetime | UUID | None
DEFAULT_PARTITION_BYTES = 128 << 20
DEFAULT_BATCH_ROWS = 32_768
MOST_BATCH_ROWS = 65_536
DEFAULT_LIFETIME_S = 3600.0
LIFETIME = "checkpointLifetime"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a batch read is asked for.

    path, metastore: as of `slate_async.open`
    checkpoint: id or name; ``None``: one is made for the job, of ``lifetime_s`` seconds, lengthened while tasks run
    start, end: the keys ``[start, end)``; a prefix has become both
    keys_only: no column but the key
    at_seq, at_time: the database as of then (one of them)
    partition_bytes: stored bytes for each partition
    batch_rows: rows of an Arrow batch
    push_filters: whether comparisons of the key in a query narrow what is read; docs/guide/spark.md says
        when not to ask for it
    """

    path: str
    metastore: str | None
    checkpoint: str | None
    lifetime_s: float
    start: bytes | None
    end: bytes | None
    prefix: bytes | None
    keys_only: bool
    at_seq: int | None
    at_time: float | None
    partition_bytes: int
    batch_rows: int
    push_filters: bool

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ReadOptions:
        """Raises `InvalidError` for unknown options and wrong values, by name."""
        given = Options(options)
        encoding = given.choice("keyEncoding", ("utf-8", "hex"), "utf-8")

        def key(text: str) -> bytes:
            return _unhexed(text) if encoding == "hex" else text.encode()

        read = cls(
            path=given.path(),
            metastore=given.take("metastore", str, None),
            checkpoint=given.take("checkpoint", str, None),
            lifetime_s=given.take(LIFETIME, seconds, DEFAULT_LIFETIME_S),
            start=given.take("startKey", key, None),
            end=given.take("endKey", key, None),
            prefix=given.take("prefix", key, None),
            keys_only=given.take("keysOnly", boolean, False),
            at_seq=given.take("atSeq", natural, None),
            at_time=given.take("atTime", time, None),
            partition_bytes=given.take("partitionBytes", byte_count, DEFAULT_PARTITION_BYTES),
            batch_rows=given.take("batchRows", positive, DEFAULT_BATCH_ROWS),
            push_filters=given.take("pushFilters", boolean, False),
        )
        given.finish()
        if read.at_seq is not None and read.at_time is not None:
            raise InvalidError("give one of the options atSeq and atTime")
        if read.start is not None and read.end is not None and read.start > read.end:
            raise InvalidError(f"option startKey={read.start!r} is above option endKey={read.end!r}")
        if read.checkpoint is not None and LIFETIME.lower() in map(str.lower, options):
            raise InvalidError(
                "option checkpointLifetime is of a checkpoint that is made; option checkpoint names another"
            )
        if read.batch_rows > MOST_BATCH_ROWS:
            raise InvalidError(f"option batchRows={read.batch_rows}: at most {MOST_BATCH_ROWS}")
        return read


class Options:
    """Options given by name, in any case; each is taken once, and options that were not taken are refused."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._left = {name.lower(): value for name, value in options.items()}
        self._known: list[str] = []

    def path(self) -> str:
        """The option every use needs."""
        path = self.take("path", str, "")
        if not path:
            raise InvalidError('option path is missing: .option("path", "s3://bucket/db"), or .load("s3://bucket/db")')
        return place(path)

    def take(self, name: str, parse: Callable[[str], T], default: D) -> T | D:
        """The value of ``name``. Raises `InvalidError` if ``parse`` raises ValueError."""
        self._known.append(name)
        text = self._left.pop(name.lower(), None)
        if text is None:
            return default
        try:
            return parse(text)
        except ValueError as error:
            raise InvalidError(f"option {name}={text!r}: {error}") from None

    def choice(self, name: str, among: tuple[str, ...], default: str) -> str:
        """One of ``among``."""

        def chosen(text: str) -> str:
            folded = text.lower()
            if folded not in among:
                raise ValueError(f"one of {', '.join(among)}")
            return folded

        return self.take(name, chosen, default)

    def finish(self) -> None:
        """Refuse the rest. Their values are not repeated: one may hold a secret."""
        if self._left:
            unknown = ", ".join(sorted(self._left))
            raise InvalidError(
                f"unknown option {unknown}; there are {', '.join(self._known)}. Credentials come from the environment"
                " of the executors, never from options"
            )


def place(path: str | PathLike[str]) -> str:
    """``path`` as it means the same in every process of this machine, whatever folder that works in. Raises
    `InvalidError` for what is no path, or means another place to each process."""
    text = own_path(path, "database")
    url = parse_url(text)
    if url.scheme == "memory":
        raise InvalidError("memory:// is the memory of one process, and Spark's are many: use a folder or a bucket")
    return text if "://" in text else url.bucket


def as_strings(options: Mapping[str, object]) -> dict[str, str]:
    """``options`` as Spark hands them over; without those that are ``None``. Raises `InvalidError` for what has no
    text of its own: that of bytes would be another key."""
    for name, value in options.items():
        if value is not None and not isinstance(value, str | int | float | datetime | UUID):
            advice = "; give keys as text, or in hexadecimal with keyEncoding='hex'" if isinstance(value, bytes) else ""
            raise InvalidError(f"option {name} is text, a number, true or false, not {type(value).__name__}{advice}")
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
        if value is not None
    }


def at_checkpoint(options: Mapping[str, OptionValue], checkpoint: str) -> dict[str, OptionValue]:
    """``options`` of a read, with the id of the checkpoint it sees."""
    return {
        **{name: value for name, value in options.items() if name.lower() not in (LIFETIME.lower(), "checkpoint")},
        "checkpoint": checkpoint,
    }


def check_choice(name: str, value: object, among: object) -> None:
    """Raise `InvalidError` unless ``value`` is of the `Literal` ``among``."""
    if value not in get_args(among):
        raise InvalidError(f"{name} is one of {', '.join(map(repr, get_args(among)))}, not {value!r}")


def boolean(text: str) -> bool:
    """``true`` or ``false``, as Spark writes them."""
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def positive(text: str) -> int:
    """A whole number from 1 on."""
    return _whole(text, 1, "a whole number of 1 or more")


def byte_count(text: str) -> int:
    """A number of bytes, from 1 on."""
    return _whole(text, 1, "a number of bytes, without a unit, e.g. 67108864 for 64 MiB")


def natural(text: str) -> int:
    """A whole number from 0 on."""
    return _whole(text, 0, "a whole number of 0 or more")


def _whole(text: str, least: int, wanted: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise ValueError(wanted) from None
    if number < least:
        raise ValueError(wanted)
    return number


def seconds(text: str) -> float:
    """A duration."""
    wanted = "a positive number of seconds, without a unit"
    try:
        number = float(text)
    except ValueError:
        raise ValueError(wanted) from None
    if not 0 < number < float("inf"):
        raise ValueError(wanted)
    return number


def _unhexed(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise ValueError("pairs of hexadecimal digits, for keyEncoding is hex, e.g. 757365723a") from None


def time(text: str) -> float:
    """Seconds since the epoch, or a date with time and time zone in ISO 8601."""
    try:
        number = float(text)
    except ValueError:
        when = _date(text)
    else:
        if not math.isfinite(number):
            raise ValueError("a finite number of seconds")
        return number
    if when.tzinfo is None:
        raise ValueError("a time needs its time zone: 2026-01-31T12:00:00+00:00")
    return when.timestamp()


def _date(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("seconds since 1970, or a time with its zone: 2026-01-31T12:00:00+00:00") from None
