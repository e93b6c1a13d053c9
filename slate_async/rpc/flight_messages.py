"""Arrow record batches as messages of Flight, and back. Pure, and for worker threads: nothing here awaits.

A stream is a schema, then batches; dictionaries go before the batch that needs them. Who sends is not trusted: lengths
are checked before anything is decompressed, and each batch is validated whole before anybody computes with it.

Invariant: a decoder that raised decodes nothing more.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from slate_async.errors import InvalidError
from slate_async.rpc.flight_data import FlightData, encode_data
from slate_async.rpc.ipc_header import DICTIONARY, RECORDS, SCHEMA, body_bytes, ipc_header

ALIGNMENT: Final = 8
CONTINUATION: Final = b"\xff\xff\xff\xff"
FREE_ROWS: Final = 1 << 20
"""A batch may have so many rows without a bit for each."""


def schema_message(schema: pa.Schema, *, descriptor: bytes | None = None) -> bytes:
    """The first message of a stream."""
    message = pa.ipc.read_message(schema.serialize())
    return encode_data(message.metadata, descriptor=descriptor)


def sliced(batch: pa.RecordBatch, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """In parts of about ``max_bytes`` by the average row; a row is never cut."""
    if batch.nbytes <= max_bytes:
        yield batch
        return
    step = max(1, batch.num_rows * max_bytes // batch.nbytes)
    for first in range(0, batch.num_rows, step):
        yield batch.slice(first, step)


class BatchEncoder:
    """Of one stream, after its `schema_message`. Batches have its schema.

    Arrow writes to a sink that keeps the columns' own buffers, so each byte is copied once, into its message."""

    def __init__(self, schema: pa.Schema) -> None:
        self._sink = _Sink()
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._sink, mode="w"), schema)
        self._begun = False

    def messages(self, batch: pa.RecordBatch, metadata: bytes = b"") -> list[bytes]:
        """``batch``, after those dictionaries that are not the ones sent last. ``metadata``: for the application."""
        self._writer.write_batch(batch)
        made = self._sink.messages(metadata)
        if self._begun:
            return made
        self._begun = True
        return made[1:]  # Arrow writes the schema with the first batch


class _Sink:
    """What Arrow's writer writes to: prefix, header and buffers of one message after another."""

    closed = False

    def __init__(self) -> None:
        self._parts: deque[Any] = deque()

    def write(self, part: Any) -> int:
        """One more part, of any size; it stays as it is until its message is made."""
        size = len(memoryview(part))
        if size:
            self._parts.append(memoryview(part).cast("B"))
        return size

    def messages(self, metadata: bytes) -> list[bytes]:
        """All that were written; ``metadata`` goes with the last one."""
        made: list[tuple[bytes, list[memoryview]]] = []
        while self._parts:
            prefix = b"".join(self._take(8))
            header = b"".join(self._take(struct.unpack("<i", prefix[4:])[0]))
            made.append((header, self._take(body_bytes(header))))
        last = len(made) - 1
        return [
            encode_data(header, body, metadata=metadata if at == last else b"")
            for at, (header, body) in enumerate(made)
        ]

    def _take(self, nbytes: int) -> list[memoryview]:
        taken: list[memoryview] = []
        while nbytes > 0:
            part = self._parts.popleft()
            if len(part) > nbytes:
                self._parts.appendleft(part[nbytes:])
                part = part[:nbytes]
            taken.append(part)
            nbytes -= len(part)
        return taken

    def flush(self) -> None:
        """Nothing to do."""

    def readable(self) -> bool:
        """It is not."""
        return False

    def seekable(self) -> bool:
        """It is not."""
        return False

    def writable(self) -> bool:
        """It is."""
        return True


class BatchDecoder:
    """Of one stream.

    max_bytes: what one message may take in memory, decompressed
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._source = _Source()
        self._reader: Any = None
        self._failed = False
        self.count = 0
        self.schema: pa.Schema | None = None
        """Once the first message was decoded."""

    def decode(self, message: FlightData, keep: object = None) -> pa.RecordBatch | None:
        """The batch that ``message`` ends; ``None`` for one that has none. Raises `InvalidError` naming its number.

        keep: lives until all that is made of the batch's memory is freed"""
        if self._failed:
            raise InvalidError("the stream is broken")
        self.count += 1
        try:
            return self._decode(message, keep)
        except (pa.ArrowException, OSError, InvalidError, OverflowError, UnicodeDecodeError) as error:
            self._failed = True
            raise InvalidError(f"message {self.count} of the stream: {_first_line(error)}") from error
        except BaseException:
            self._failed = True
            raise

    def _decode(self, message: FlightData, keep: object) -> pa.RecordBatch | None:
        if not len(message.header):
            if len(message.body):
                raise InvalidError("it has a body and no header")
            return None
        header = ipc_header(message.header, message.body)
        if header.body_bytes != len(message.body):
            raise InvalidError(f"its header says {header.body_bytes} bytes, and the body has {len(message.body)}")
        if self.schema is None:
            if header.kind != SCHEMA:
                raise InvalidError("the first message of a stream is its schema")
            self._source.add(message)
            self._reader = pa.ipc.open_stream(pa.PythonFile(self._source, mode="r"))
            self.schema = self._reader.schema
            self._source.check_used()
            return None
        if header.decoded_bytes > self._max_bytes:
            raise InvalidError(
                f"it takes {header.decoded_bytes} bytes in memory, and {self._max_bytes} are the most; send smaller"
                " batches"
            )
        if header.rows > max(FREE_ROWS, 8 * header.decoded_bytes):
            raise InvalidError(f"it has {header.rows} rows in {header.decoded_bytes} bytes")
        if header.kind not in (DICTIONARY, RECORDS):
            raise InvalidError("it is neither rows nor a dictionary")
        self._source.add(message, keep)
        if header.kind == DICTIONARY:
            if self._source.waiting > self._max_bytes:
                raise InvalidError(f"the dictionaries before a batch have more than {self._max_bytes} bytes")
            return None
        batch = self._reader.read_next_batch()
        self._source.check_used()
        batch.validate(full=True)
        return batch if header.decoded_bytes == header.body_bytes else _kept(batch, keep)


class _Source:
    """What Arrow's reader reads from: messages that have come, each as prefix, header and body."""

    closed = False

    def __init__(self) -> None:
        self._parts: deque[Any] = deque()
        self.waiting = 0

    def add(self, message: FlightData, keep: object = None) -> None:
        """One more message."""
        header = bytes(message.header)
        self._parts += [CONTINUATION, struct.pack("<i", len(header)), header]
        if len(message.body):
            self._parts.append(_aligned(message.body, keep))
        self.waiting += len(message.body)

    def check_used(self) -> None:
        """Raises `InvalidError` if something is left."""
        if self._parts:
            raise InvalidError("its header and its body do not fit")
        self.waiting = 0

    def read(self, nbytes: int = -1) -> Any:
        """The next part, if it has that size: Arrow asks for just these."""
        if not self._parts:
            return b""
        part = self._parts.popleft()
        if len(memoryview(part)) != nbytes:
            raise OSError("its header and its body do not fit")
        return part

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is not."""
        return False

    def writable(self) -> bool:
        """It is not."""
        return False


def _aligned(body: memoryview, keep: object) -> pa.Buffer:
    """Where columns can be computed with, as it is or a copy, with ``keep`` for as long as any part of it is used."""
    buffer = pa.py_buffer(body)
    if buffer.address % ALIGNMENT:
        buffer = pa.allocate_buffer(len(body))
        memoryview(buffer).cast("B")[:] = body
    return pa.foreign_buffer(buffer.address, buffer.size, (buffer, keep))


def _kept(batch: pa.RecordBatch, keep: object) -> pa.RecordBatch:
    """The same in memory that keeps ``keep``: what Arrow decompressed has no owner that we know."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    buffer = sink.getvalue()
    return pa.ipc.open_stream(pa.foreign_buffer(buffer.address, buffer.size, (buffer, keep))).read_next_batch()


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:500]
