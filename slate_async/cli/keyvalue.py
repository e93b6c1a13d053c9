"""``put``, ``get``, ``delete``, ``scan`` and ``status``. Arguments are checked before the database is opened, since
opening it as a writer takes it over."""

from __future__ import annotations

import math
from collections.abc import AsyncIterable
from dataclasses import asdict, dataclass
from pathlib import Path

from slate_async.cli.encoding import Encoding, json_field, parse, show
from slate_async.cli.failures import NEGATIVE, OK
from slate_async.cli.session import Session
from slate_async.errors import InvalidError

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


async def get(session: Session, key: str, *, checkpoint: str | None, encoding: Encoding, raw: bool) -> int:
    """Print one value."""
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
            members.update([json_field("value", value, encoding)])
        output.json(members)
    elif value is not None:
        output.line(show(value, encoding, output.charset))
    if value is None:
        output.note(f"slate: no such key: {show(key_bytes, encoding, output.err.encoding)}")
        return NEGATIVE
    return OK


async def delete(session: Session, key: str, *, encoding: Encoding) -> int:
    """Remove one key."""
    key_bytes = parse(key, encoding, what="KEY")
    async with session.writing(create=False) as database:
        handle = await database.delete(key_bytes)
    if session.output.as_json:
        name, shown = json_field("key", key_bytes, encoding)
        session.output.json({name: shown, "seq": handle.seq})
    return OK


@dataclass(frozen=True, slots=True)
class Bounds:
    """What part of the keys to scan, as given on the command line."""

    prefix: str | None
    start: str | None
    end: str | None
    limit: int | None
    reverse: bool


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
    if bounds.prefix is not None and (bounds.start is not None or bounds.end is not None):
        raise InvalidError("--prefix excludes --start and --end")
    prefix = None if bounds.prefix is None else parse(bounds.prefix, encoding, what="--prefix")
    start = None if bounds.start is None else parse(bounds.start, encoding, what="--start")
    end = None if bounds.end is None else parse(bounds.end, encoding, what="--end")
    printer = _Printer(session, keys_only=keys_only, encoding=encoding, raw=raw)
    async with session.reading(checkpoint=checkpoint, pin=pin) as database:
        rows = database.scan(start, end, prefix=prefix, reverse=bounds.reverse, limit=bounds.limit)
        count = await printer.print(rows)
    session.output.note(f"{count:,} row{'' if count == 1 else 's'}")
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
    session.output.fields("status", values)
    return OK


def check_ttl(ttl: float | None) -> None:
    """Raise `InvalidError` unless ``ttl`` is ``None`` or a finite number of seconds above 0."""
    if ttl is not None and not (math.isfinite(ttl) and ttl > 0):
        raise InvalidError("--ttl must be a number of seconds above 0")
