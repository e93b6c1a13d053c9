"""The envelope of a table's metadata: see `slate_async.codec.envelope` and ``docs/format/table-envelope.md``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from enum import IntEnum

import pyarrow as pa

from slate_async.codec.envelope import Envelope, decoding

ENVELOPE = Envelope(b"SLATETBL", 1, "a table")


class Kind(IntEnum):
    """What an envelope holds. No number is given twice."""

    HEAD = 1
    LINK = 2
    WHOLE = 3
    CATALOG = 4


@contextlib.contextmanager
def decoding_arrow(object_name: str) -> Iterator[None]:
    """As `decoding`, of a map that has Arrow's formats in it."""
    with decoding(object_name):
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            raise ValueError(str(error)) from error
