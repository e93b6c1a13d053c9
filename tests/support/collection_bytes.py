"""One value of everything that a collection stores, its bytes, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa

from metastores.protocol import Committed, Conflict, Unknown
from slate_async.codec.checksum import crc32c
from slate_async.collections.codec.description import Description
from slate_async.collections.codec.hold import decode_hold, encode_hold
from slate_async.collections.codec.index import Index, decode_index, encode_index
from slate_async.collections.codec.life import Appends, Life, LifeState, decode_life, encode_life
from slate_async.collections.codec.parts import PartRef, Section
from slate_async.collections.codec.pending import decode_pending, encode_pending
from slate_async.collections.codec.version import decode_version, encode_version
from slate_async.collections.core.area import Area, Fuel, MergedBatch
from slate_async.collections.core.bounds import Bounds
from slate_async.collections.core.frontier import DONE, Frontier
from slate_async.collections.core.holding import Hold
from slate_async.collections.core.names import MergedName, PendingName
from slate_async.collections.core.times import TIME_END, Time, TimeKind
from slate_async.collections.core.updates import UpdateSchema
from slate_async.collections.store.pending import PendingStore

COLLECTION = UUID("00112233-4455-6677-8899-aabbccddeeff")
OTHER_COLLECTION = UUID("ffffffff-4455-6677-8899-aabbccddeeff")
TOKEN = "0f" * 16
U64, PAIRS = TimeKind.U64, TimeKind.U64X2
BYTES = UpdateSchema.of_bytes(U64)
ORDERS = UpdateSchema(
    PAIRS,
    pa.schema(
        [
            pa.field("customer", pa.string(), nullable=False),
            pa.field("placed", pa.timestamp("s")),
            pa.field("price", pa.float64()),
        ]
    ),
)


def frontier(*elements: int | Time) -> Frontier:
    """Of these times; numbers are u64 times."""
    return Frontier((element,) if isinstance(element, int) else element for element in elements)


def byte_updates(*rows: tuple[bytes, int, int]) -> pa.RecordBatch:
    """Updates of a collection of bytes."""
    data, times, diffs = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(data, pa.binary()), pa.array(times, pa.uint64()), pa.array(diffs, pa.int64())], schema=BYTES.arrow
    )


async def put_batch(
    pending: PendingStore, name: PendingName, description: Description, updates: pa.RecordBatch | pa.Table | None
) -> Committed[str] | Conflict[Description] | Unknown:
    """Put a pending batch."""
    return await pending.put(name, await pending.encoded(name, description, updates))


def many(rows: int) -> pa.RecordBatch:
    """So many updates of a collection of bytes, sorted."""
    data = [b"%09d" % number for number in range(rows)]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(data, pa.binary()),
            pa.array(np.arange(rows, dtype=np.uint64) % 7),
            pa.array(np.ones(rows, np.int64)),
        ],
        schema=BYTES.arrow,
    )


UPDATES = byte_updates((b"", 3, 1), (b"a", 3, -2), (b"a", 4, 2**63 - 1), (b"\xff" * 40, 9, 1))
PAIR_UPDATES = pa.RecordBatch.from_arrays(
    [
        pa.array(["a", "a", "ü"]),
        pa.array([None, 2**60, -1], pa.timestamp("s")),
        pa.array([-0.0, float("nan"), None]),
        pa.array([0, 3, 3], pa.uint64()),
        pa.array([5, 0, TIME_END - 1], pa.uint64()),
        pa.array([1, -1, 7], pa.int64()),
    ],
    schema=ORDERS.arrow,
)
DESCRIPTION = Description(frontier(3), frontier(10), TOKEN, "relay-a", 4, 2**63 - 1)
PAIR_DESCRIPTION = Description(frontier((0, 5), (3, 0)), DONE, TOKEN, "main", 3, 7)
PARTED = replace(DESCRIPTION, rows=9, diff_sum=-(2**70), parts=(PartRef(5, 400, 17), PartRef(4, 390, 2**32 - 1)))
SHARED = replace(
    PARTED,
    parts=(PartRef(5, 400, 17, token="ab" * 16, number=0), PartRef(4, 390, 2**32 - 1, token="cd" * 16, number=3)),
)
PART = replace(DESCRIPTION, part=1)
INDEX = Index(
    (
        PartRef(70, 1000, 5, (Section(60, 700, 1), Section(10, 200, 2), Section(0, 100, 3))),
        PartRef(2, 300, 6, (Section(2, 250, 4), Section(0, 50, 5))),
    ),
    byte_updates((b"a", 0, 1), (b"f", 0, 1), (b"f", 0, 1), (b"x", 0, 1)).select(["data"]),
)
HASHED_UPPER = "+".join(f"{number}.{40 - 2 * number}" for number in range(16))
"""Of a frontier that takes too long a name."""
HASHED_INDEX = replace(INDEX, hashed_upper=HASHED_UPPER)
LIFE = Life(COLLECTION, 1, LifeState.OPEN, BYTES, Appends.DEFINITE)
CREATED_LIFE = replace(LIFE, created_ms=1_790_000_000_123)
COLUMNS_LIFE = Life(OTHER_COLLECTION, 4, LifeState.DELETED, ORDERS, Appends.COMPARE)
HOLD = Hold(7, frontier(40), 30_000, TOKEN, beat=3, note="worker 4")
CRITICAL = Hold(None, frontier((0, 5), (3, 0)), None, TOKEN, note="billing", revoked=True, token="invoice 7")


def batch(lower: Frontier, upper: Frontier, since: Frontier, rows: int, **more: Any) -> MergedBatch:
    """A batch as a version names it."""
    name = str(MergedName(lower, upper, 2, f"{rows:032x}"))
    given = {"keys": rows - 1, "times": 3, "diff_sum": -rows, "nbytes": 20 * rows, "crc": 2**32 - rows}
    return MergedBatch(name, Bounds(lower, upper, since), rows, **{**given, **more})


AREA = Area(
    version=12,
    epoch=2,
    token="c" * 32,
    lower=frontier(0),
    upper=frontier(120),
    since=frontier(60),
    bound=frontier(80),
    floor=9,
    last=TOKEN,
    batches=(
        batch(frontier(0), frontier(100), frontier(60), 1000, parts=3, diff_sum=2**64),
        batch(frontier(100), frontier(110), frontier(0), 60),
        batch(frontier(110), frontier(120), frontier(0), 50),
    ),
    fuel=(
        Fuel(
            batch(frontier(100), frontier(110), frontier(0), 60).name,
            batch(frontier(110), frontier(120), frontier(0), 50).name,
            64,
        ),
    ),
)
PAIR_AREA = Area.first(frontier((0, 0))).following(
    epoch=1, token="d" * 32, upper=DONE, since=DONE, bound=DONE, floor=1, deleted=True
)


class Sample(NamedTuple):
    """A value, its bytes as this release writes them, and what this release takes bytes for.

    exact: whether every release writes these bytes; those that Arrow writes are up to its release"""

    value: Any
    encode: Callable[[], bytes]
    decode: Callable[[bytes], Any]
    exact: bool = True


def _pending(description: Description, updates: pa.RecordBatch | None, schema: UpdateSchema) -> Sample:
    def decode(data: bytes) -> Any:
        found = decode_pending(data, schema, COLLECTION, object_name="p")
        return found.description, None if found.updates is None else as_bits(found.updates)

    value = (description, None if updates is None else as_bits(pa.Table.from_batches([updates])))
    return Sample(value, lambda: encode_pending(description, updates, schema, COLLECTION), decode, updates is None)


def named(data: bytes, rows: int) -> PartRef:
    """What is said of the object ``data`` where it is named."""
    return PartRef(rows, len(data), crc32c(data))


def as_bits(table: pa.Table) -> list[tuple[Any, ...]]:
    """Rows of ``table``, floats as their bits: so NaN equals itself, and -0.0 is not 0.0."""
    columns = [
        [None if value is None else value.hex() if isinstance(value, float) else value for value in column.to_pylist()]
        for column in (
            column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in table.columns
        )
    ]
    return list(zip(*columns, strict=True))


SAMPLES: dict[str, Sample] = {
    "pending": _pending(DESCRIPTION, UPDATES, BYTES),
    "pending-pairs": _pending(PAIR_DESCRIPTION, PAIR_UPDATES, ORDERS),
    "pending-index": _pending(PARTED, None, BYTES),
    "pending-index-shared": _pending(SHARED, None, BYTES),
    "pending-part": _pending(PART, UPDATES, BYTES),
    "index": Sample(INDEX, lambda: encode_index(INDEX), lambda data: decode_index(data, BYTES, object_name="i"), False),
    "index-hashed": Sample(
        HASHED_INDEX,
        lambda: encode_index(HASHED_INDEX),
        lambda data: decode_index(data, BYTES, object_name="i"),
        False,
    ),
    "version": Sample(AREA, lambda: encode_version(AREA), lambda data: decode_version(data, 12, U64, object_name="v")),
    "version-tombstone": Sample(
        PAIR_AREA, lambda: encode_version(PAIR_AREA), lambda data: decode_version(data, 1, PAIRS, object_name="v")
    ),
    "hold": Sample(HOLD, lambda: encode_hold(HOLD), lambda data: decode_hold(data, U64, object_name="h")),
    "hold-critical": Sample(
        CRITICAL, lambda: encode_hold(CRITICAL), lambda data: decode_hold(data, PAIRS, object_name="h")
    ),
    "register": Sample(LIFE, lambda: encode_life(LIFE), lambda data: decode_life(data, object_name="l")),
    "register-created": Sample(
        CREATED_LIFE, lambda: encode_life(CREATED_LIFE), lambda data: decode_life(data, object_name="l")
    ),
    "register-columns": Sample(
        COLUMNS_LIFE, lambda: encode_life(COLUMNS_LIFE), lambda data: decode_life(data, object_name="l"), False
    ),
}
