"""Options of the ``slate`` source: strings as Spark hands them over, checked and typed.

Spark folds the case of names. Credentials never belong here: options are part of plans, logs and the Spark UI.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
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
"""What an option of the data source may be; ``None`` is its default."""
DEFAULT_PARTITION_BYTES = 128 << 20
DEFAULT_LIFETIME_S = 3600.0
HADOOP_PATH = re.compile(r"(?!file:)[a-z][a-z0-9+.-]+:/(?!/)", re.IGNORECASE)
"""How a path of Hadoop may begin: a file system of its own, its default place, and no folder below the working one."""
TABLE_PROPERTIES = {"owner", "provider"}
"""Spark adds them to the options where CREATE TABLE asks which columns there are."""
INSTEAD_OF_TABLES = (
    "Spark does not keep the options of a table: use CREATE TEMPORARY VIEW … USING … OPTIONS (path 's3://bucket/db'),"
    " or name them in each query of the table, FROM name WITH (path = 's3://bucket/db')"
)


class Options:
    """Options given by name, in any case; each is taken once, and options that were not taken are refused."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._left = {name.lower(): value for name, value in options.items()}
        self._written = {name.lower(): name for name in options}
        if self._left.keys() >= TABLE_PROPERTIES:
            raise InvalidError(f"CREATE TABLE makes none of slate: {INSTEAD_OF_TABLES}")
        self._known: list[str] = []

    def path(self) -> str:
        """The option every use needs."""
        path = self.take("path", str, "")
        if not path:
            raise InvalidError(f'option path is missing: .load("s3://bucket/db") or .save(…). {INSTEAD_OF_TABLES}')
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
            unknown = ", ".join(self._written[name] for name in sorted(self._left))
            raise InvalidError(
                f"unknown option {unknown}; there are {', '.join(self._known)}. Credentials come from the environment"
                " of the executors, never from options"
            )


def place(path: str | PathLike[str]) -> str:
    """``path`` as it means the same in every process of this machine, whatever folder that works in. Raises
    `InvalidError` for what is no path, or means another place to each process."""
    text = own_path(path, "database")
    if HADOOP_PATH.match(text):
        raise InvalidError(
            f"{text.partition(':')[0]}:/ is a file system of Hadoop's, which only Spark can read: give the bucket's URL"
            " (s3://, az://, gs://), or a folder that every machine mounts (of dbfs:/x that is /dbfs/x)"
        )
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


def check_choice(name: str, value: object, among: object) -> None:
    """Raise `InvalidError` unless ``value`` is of the `Literal` ``among``."""
    if value not in get_args(among):
        raise InvalidError(f"{name} is one of {', '.join(map(repr, get_args(among)))}, not {value!r}")


def names(text: str) -> tuple[str, ...]:
    """Names, with commas between."""
    found = tuple(name.strip() for name in text.split(","))
    if not all(found) or len(set(found)) < len(found):
        raise ValueError("names with commas between, none twice: key,seq")
    return found


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
