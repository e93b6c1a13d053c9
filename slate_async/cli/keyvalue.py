"""``put``, ``get``, ``exists``, ``count``, ``scan`` and ``status``. Arguments are checked before the database is
opened, since opening it as a writer takes it over."""

from __future__ import annotations

import math
from collections.abc import AsyncIterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from slate_async.cli.encoding import Encoding, json_field, parse, show
from slate_async.cli.exit_codes import NEGATIVE, OK
from slate_async.cli.session import Session
from slate_async.errors import InvalidError
from slate_async.merge_operators.values import unpack_i64
from slate_async.objectstore.costs import SHORTEST_S
from slate_async.runtime.system import SystemClock
from slate_async.storage.liveness.observer import WriterLife

PAGE_ROWS = 500
"""Rows of one table of a scan; a longer scan prints several, so memory stays bounded."""


async def put(
    session: Session,
    key: str,
    value: str | None,
    *,
    file: Path | None,
    ttl: float | None,
    create: bool,
    encoding: Encoding,
) -> int:
    """Set one key."""
    key_bytes = parse(key, encoding, what="KEY")
    value_bytes = _value(value, file, encoding)
    check_ttl(ttl)
    async with session.writing(create=create) as database:
        handle = await database.put(key_bytes, value_bytes, ttl=ttl)
    if session.output.as_json:
        name, shown = json_field("key", key_bytes, encoding)
        session.output.json({name: shown, "seq": handle.seq})
    return OK


def _value(value: str | None, file: Path | None, encoding: Encoding) -> bytes:
    if value is not None and file is None:
        return parse(value, encoding, what="VALUE")
    if value is None and file is not None:
        return file.read_bytes()
    raise InvalidError("give either VALUE or --file")


async def get(
    session: Session, key: str, *, checkpoint: str | None, encoding: Encoding, raw: bool, number: bool = False
) -> int:
    """Print one value. ``number``: as the one that `increment` and ``add_i64`` store."""
    if raw and number:
        raise InvalidError("--raw excludes --i64")
    key_bytes = parse(key, encoding, what="KEY")
    output = session.output
    async with session.reading(checkpoint=checkpoint) as database:
        value = await database.get(key_bytes)
    if raw:
        output.raw(value or b"")
    elif output.as_json:
        members: dict[str, object] = dict([json_field("key", key_bytes, encoding)])
        members["found"] = value is not None
        if value is not None:
            members.update([("number", _number(value)) if number else json_field("value", value, encoding)])
        output.json(members)
    elif value is not None and number:
        output.line(str(_number(value)))
    elif value is not None:
        output.line(show(value, encoding, output.charset))
    if value is None:
        output.note(f"slate: no such key: {show(key_bytes, encoding, output.err.encoding)}")
        return NEGATIVE
    return OK


def _number(value: bytes) -> int:
    try:
        return unpack_i64(value)
    except ValueError as error:
        raise InvalidError(f"the key holds no number: {error}; leave --i64 out") from error


async def exists(session: Session, key: str, *, checkpoint: str | None, encoding: Encoding) -> int:
    """Say whether there is a key."""
    key_bytes = parse(key, encoding, what="KEY")
    async with session.reading(checkpoint=checkpoint) as database:
        found = await database.get(key_bytes) is not None
    if session.output.as_json:
        session.output.json(dict([json_field("key", key_bytes, encoding)]) | {"exists": found})
    else:
        session.output.line("yes" if found else "no")
    return OK if found else NEGATIVE


@dataclass(frozen=True, slots=True)
class Bounds:
    """What part of the keys to scan, as given on the command line."""

    prefix: str | None
    start: str | None
    end: str | None
    limit: int | None = None
    reverse: bool = False

    def parsed(self, encoding: Encoding) -> dict[str, Any]:
        """The arguments of a scan. Raises `InvalidError`."""
        if self.prefix is not None and (self.start is not None or self.end is not None):
            raise InvalidError("--prefix excludes --start and --end")
        given = {"prefix": self.prefix, "start": self.start, "end": self.end}
        keys = {name: text if text is None else parse(text, encoding, what=f"--{name}") for name, text in given.items()}
        return {**keys, "limit": self.limit, "reverse": self.reverse}


async def count(session: Session, bounds: Bounds, *, checkpoint: str | None, pin: bool, encoding: Encoding) -> int:
    """Print how many keys there are."""
    asked = bounds.parsed(encoding)
    found = 0
    async with session.reading(checkpoint=checkpoint, pin=pin) as database:
        async for _ in database.scan(**asked):
            found += 1
    if session.output.as_json:
        session.output.json({"count": found})
    else:
        session.output.line(str(found))
    return OK


async def scan(
    session: Session,
    bounds: Bounds,
    *,
    checkpoint: str | None,
    pin: bool,
    keys_only: bool,
    encoding: Encoding,
    raw: bool,
) -> int:
    """Print rows in key order, as they arrive."""
    asked = bounds.parsed(encoding)
    printer = _Printer(session, keys_only=keys_only, encoding=encoding, raw=raw)
    async with session.reading(checkpoint=checkpoint, pin=pin) as database:
        printed = await printer.print(database.scan(**asked))
    session.output.note(f"{printed:,} row{'' if printed == 1 else 's'}")
    return OK


class _Printer:
    """Prints the rows of a scan in the form asked for."""

    def __init__(self, session: Session, *, keys_only: bool, encoding: Encoding, raw: bool) -> None:
        self._output = session.output
        self._keys_only = keys_only
        self._encoding = encoding
        self._raw = raw
        self._page: list[tuple[str, ...]] = []

    async def print(self, rows: AsyncIterable[tuple[bytes, bytes]]) -> int:
        """Print all rows; returns how many."""
        count = 0
        async for key, value in rows:
            count += 1
            if self._raw:
                self._output.raw(*((key, b"\n") if self._keys_only else (key, b"\t", value, b"\n")))
            elif self._output.as_json:
                self._json(key, value)
            else:
                self._line(key, value)
        self._flush()
        return count

    def _json(self, key: bytes, value: bytes) -> None:
        members = dict([json_field("key", key, self._encoding)])
        if not self._keys_only:
            members.update([json_field("value", value, self._encoding)])
        self._output.json(members)

    def _line(self, key: bytes, value: bytes) -> None:
        charset = self._output.charset
        shown = show(key, self._encoding, charset)
        self._page.append((shown,) if self._keys_only else (shown, show(value, self._encoding, charset)))
        if len(self._page) >= PAGE_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._page:
            self._output.table("", ("key",) if self._keys_only else ("key", "value"), self._page)
            self._page = []


async def status(session: Session, *, metrics: bool) -> int:
    """Show the database's status."""
    async with session.reading() as database:
        values = asdict(database.status())
        if metrics:
            values["metrics"] = dict(database.metrics())
        if hasattr(database, "writer_life"):  # a writer, which a shell may have open, has reported its own life above
            values["writer"] = _writer(await database.writer_life())
    session.output.fields("status", values)
    return OK


def _writer(life: WriterLife) -> dict[str, object]:
    """Whether a writer lives, as far as the clocks of this machine and the store agree."""
    now_ms = SystemClock().now_ms()
    heard_s = None if life.seen_ms is None else round(max(0, now_ms - life.seen_ms) / 1000, 1)
    return {
        "state": life.guess(now_ms),
        "epoch": life.epoch,
        "heard_of_seconds_ago": heard_s,
        **_estimate(life, now_ms),
    }


def _estimate(life: WriterLife, now_ms: int) -> dict[str, object]:
    """What the writer's requests come to in a month, by itself; else why that is not known."""
    month = life.monthly_requests
    if month is not None and life.beat_ms is not None:
        ago_s = max(0, now_ms - life.beat_ms) / 1000
        why = f"the writer's own, as of its last beat, {ago_s:.1f} s ago"
    elif life.state in ("never", "closed"):
        why = "none: no writer has the database open"
    elif life.interval_ms is None:
        why = "none: the writer's beats are off (heartbeat_interval_ms)"
    elif life.beat_ms is None:
        why = "none: the writer's first beat has not come yet"
    else:
        why = f"none: at its last beat the writer had not counted for {SHORTEST_S:.0f} s"
    return {
        "estimate": why,
        "monthly_requests": None if month is None else asdict(month),
        "monthly_dollars": None if month is None else round(month.dollars(), 2),
    }


def check_ttl(ttl: float | None, option: str = "--ttl") -> None:
    """Raise `InvalidError` unless ``ttl`` is ``None`` or a finite number of seconds above 0."""
    if ttl is not None and not (math.isfinite(ttl) and ttl > 0):
        raise InvalidError(f"{option} must be a number of seconds above 0")
