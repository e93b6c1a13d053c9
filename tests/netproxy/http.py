"""As much of HTTP/1.1 as a proxy needs: heads, and where a body ends.

Bodies travel as they stand on the wire, chunk framing included; only their end is looked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from urllib.parse import unquote

MAX_HEAD_BYTES = 65_536
PIECE_BYTES = 65_536
BODYLESS_STATUSES = (204, 304)


class ProtocolError(Exception):
    """The peer does not speak HTTP/1.1 as expected, or ended in the middle of a message."""


class Framing(Enum):
    """How a body's end is found."""

    LENGTH = auto()
    CHUNKED = auto()
    UNTIL_CLOSE = auto()


@dataclass(frozen=True, slots=True)
class Body:
    """A body still to be read: its framing, and its length where that is known."""

    framing: Framing
    length: int = 0


EMPTY = Body(Framing.LENGTH, 0)


@dataclass(frozen=True, slots=True)
class Head:
    """The start line and header fields of a message, as received."""

    start_line: str
    fields: tuple[tuple[str, str], ...]

    def get(self, name: str) -> str:
        """The first field of that lower-case name; empty if there is none."""
        return next((value for field, value in self.fields if field.lower() == name), "")

    def without(self, *names: str) -> Head:
        """This head less the fields of those lower-case names."""
        return Head(self.start_line, tuple(field for field in self.fields if field[0].lower() not in names))

    def plus(self, name: str, value: str) -> Head:
        """This head and one more field."""
        return Head(self.start_line, (*self.fields, (name, value)))

    def encode(self) -> bytes:
        """The bytes on the wire, with the empty line that ends them."""
        lines = [self.start_line, *(f"{name}: {value}" for name, value in self.fields), "", ""]
        return "\r\n".join(lines).encode("latin-1")


@dataclass(frozen=True, slots=True)
class Request:
    """What a test sees of a request: decoded ``path``, raw ``query``, headers by lower-case name, and its
    ``number`` in order of arrival, from 0."""

    number: int
    method: str
    path: str
    query: str
    headers: Mapping[str, str]

    @classmethod
    def of(cls, head: Head, number: int) -> Request:
        """Read a request line and its fields. Raises `ProtocolError`."""
        parts = head.start_line.split(" ")
        if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
            raise ProtocolError(f"not a request line: {head.start_line!r}")
        path, _, query = parts[1].partition("?")
        return cls(number, parts[0], unquote(path), query, {name.lower(): value for name, value in head.fields})

    @property
    def conditional(self) -> bool:
        """Whether it is a write that carries a condition of HTTP's (S3 and Azure)."""
        return self.method in ("PUT", "POST") and ("if-match" in self.headers or "if-none-match" in self.headers)

    @property
    def operation(self) -> str:
        """DynamoDB's name for what is asked, such as ``PutItem``; empty for other protocols."""
        return self.headers.get("x-amz-target", "").rpartition(".")[2]


async def read_head(reader: asyncio.StreamReader) -> Head | None:
    """The next head, or ``None`` if the peer ended before one. Raises `ProtocolError`."""
    try:
        data = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise ProtocolError("the peer ended in the middle of a head") from error
        return None
    except asyncio.LimitOverrunError as error:
        raise ProtocolError(f"a head is larger than {MAX_HEAD_BYTES} bytes") from error
    start_line, *lines = data[:-4].decode("latin-1").split("\r\n")
    fields = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise ProtocolError(f"not a header field: {line!r}")
        fields.append((name, value.strip()))
    return Head(start_line, tuple(fields))


def status_of(head: Head) -> int:
    """The status code of a response's head. Raises `ProtocolError`."""
    parts = head.start_line.split(" ", 2)
    if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not parts[1].isdigit():
        raise ProtocolError(f"not a status line: {head.start_line!r}")
    return int(parts[1])


def _stated(head: Head) -> Body | None:
    if "chunked" in head.get("transfer-encoding").lower():
        return Body(Framing.CHUNKED)
    length = head.get("content-length")
    if not length:
        return None
    if not length.isdigit():
        raise ProtocolError(f"not a length: {length!r}")
    return Body(Framing.LENGTH, int(length))


def request_body(head: Head) -> Body:
    """What follows a request's head. Raises `ProtocolError`."""
    return _stated(head) or EMPTY


def response_body(head: Head, method: str) -> Body:
    """What follows the head of a response to ``method``. Raises `ProtocolError`."""
    status = status_of(head)
    if method == "HEAD" or status in BODYLESS_STATUSES or status < 200:
        return EMPTY
    return _stated(head) or Body(Framing.UNTIL_CLOSE)


async def pieces(reader: asyncio.StreamReader, body: Body) -> AsyncIterator[bytes]:
    """The body's bytes on the wire, in pieces of at most `PIECE_BYTES`. Raises `ProtocolError` if it is cut."""
    if body.framing is Framing.UNTIL_CLOSE:
        while piece := await reader.read(PIECE_BYTES):
            yield piece
    elif body.framing is Framing.LENGTH:
        async for piece in _exactly(reader, body.length):
            yield piece
    else:
        async for piece in _chunks(reader):
            yield piece


async def _exactly(reader: asyncio.StreamReader, length: int) -> AsyncIterator[bytes]:
    while length:
        piece = await reader.read(min(length, PIECE_BYTES))
        if not piece:
            raise ProtocolError(f"the peer ended {length} bytes before the end of a body")
        length -= len(piece)
        yield piece


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while True:
        line = await _line(reader)
        yield line
        try:
            size = int(line.split(b";")[0], 16)
        except ValueError as error:
            raise ProtocolError(f"not a chunk size: {line!r}") from error
        if size == 0:
            break
        async for piece in _exactly(reader, size + 2):
            yield piece
    while True:
        trailer = await _line(reader)
        yield trailer
        if trailer == b"\r\n":
            return


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise ProtocolError("the peer ended in the middle of a chunked body") from error
