"""One value of everything small that tables store, its bytes, and the way back."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa

from slate_async.tables.codec.catalog import decode_catalog, encode_catalog
from slate_async.tables.codec.head import decode_head, encode_head
from slate_async.tables.codec.link import StoredLink, decode_link, decode_whole, digest_of, encode_link, encode_whole
from slate_async.tables.core.append_ids import ids_of
from slate_async.tables.core.catalog import CatalogHead, Database, TableEntry, Tombstone
from slate_async.tables.core.chain import BLOCK, DELETE_FILE, Link
from slate_async.tables.core.head import Head, Job, Kept, LinkRef, Mark, Totals
from slate_async.tables.core.names import block_key, delete_key, link_key
from slate_async.tables.core.row_ids import RowIds, set_of
from slate_async.tables.core.schema import TableSchema

TABLE = UUID("00112233-4455-6677-8899-aabbccddeeff")
TOKEN = "0f" * 16
ARROW = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("price", pa.decimal128(9, 2)),
        pa.field("tags", pa.list_(pa.field("element", pa.string()))),
        pa.field("kind", pa.dictionary(pa.int32(), pa.string())),
    ]
)
SCHEMA = TableSchema.of(ARROW)
LATER = SCHEMA.altered(
    add={"at": pa.timestamp("us", "UTC"), "rate": pa.field("rate", pa.decimal128(5, 3), nullable=False)},
    defaults={"rate": Decimal("1.250"), "at": dt.datetime(2026, 1, 2, tzinfo=dt.UTC)},
    drop=["tags"],
)
BEFORE = LinkRef(link_key(3, TOKEN), 700, bytes(range(16)), covered=True)
NEWEST = LinkRef(link_key(4, "1e" * 16), 512, bytes(range(16, 32)))
HEAD = Head(
    TABLE,
    version=5,
    time_ms=1_700_000_000_123,
    schemas=(SCHEMA, LATER),
    links=(NEWEST, BEFORE),
    oldest=2,
    floor=1,
    pins={"job": Kept(4, TOKEN, 1_700_000_060_000)},
    tags={"day’s end": Kept(3, "2d" * 16)},
    marks={"w1": Mark(7, 5), "app ü": Mark(2**40, 4, kept=True)},
    marks_floor=1,
    next_row=2**40,
    lineage=1,
    removals=2,
    jobs={"load": Job(2, 1_700_000_060_000)},
    key=(1,),
    sort_by=(1, 2),
    totals=Totals(2, 30, 4096),
    properties={"owner": "shop"},
    drops=2,
    token=TOKEN,
)
CATALOG = CatalogHead(
    7,
    {
        "shop": Database("0a" * 16, {"orders": TableEntry(TABLE, 0), "día": TableEntry(UUID(int=7), 1, 2)}),
        "año": Database("0b" * 16),
    },
    {UUID(int=9): Tombstone("shop", "old", TableEntry(UUID(int=9), 2, 1), 1_700_000_000_123, True)},
    floor=1,
)


def _blocks() -> pa.Table:
    rows = [
        {"key": block_key(4, f"{at:032x}"), "first_row": 10 * at, "last_row": 10 * at + 9, "carried": bool(at)}
        | {
            "rows": 10,
            "size": 2048,
            "footer_size": 300,
            "footer_hash": bytes([at] * 16),
            "chunk_sums": bytes(8),
            "schema_id": at,
        }
        for at in range(2)
    ]
    table = pa.Table.from_pylist(rows, schema=BLOCK)
    table = table.append_column("nulls.1", pa.array([0, 3], pa.int64()))
    table = table.append_column("low.2", pa.array([Decimal("-1.00"), None], pa.decimal128(9, 2)))
    return table.append_column("high.2", pa.array([Decimal("5.25"), None], pa.decimal128(9, 2)))


def _files() -> pa.Table:
    row = {"key": delete_key(4, TOKEN), "first_row": 3, "last_row": 900, "rows": 80, "size": 640, "hash": bytes(16)}
    return pa.Table.from_pylist([row], schema=DELETE_FILE)


IDS: RowIds = set_of([0, 7, 8, 2**40])
NAMES = ids_of([("day 7", 1_700_000_000_000, 4, 9), ("día", 1_700_000_000_123, 5, 0)])
LINK = Link(_blocks(), pa.array([block_key(1, TOKEN)]), IDS, _files(), set_of([7]), ids=NAMES)
WHOLE = Link(_blocks(), deleted=IDS, delete_files=_files(), retired=set_of([7]), whole=True, ids=NAMES)
STORED = StoredLink(TABLE, BEFORE, LINK)
STORED_WHOLE = StoredLink(TABLE, None, WHOLE)


def plain(stored: StoredLink) -> tuple[Any, ...]:
    """What compares."""
    link = stored.link
    lists = (link.removed.to_pylist(), link.deleted.tolist(), link.delete_files.to_pylist(), link.retired.tolist())
    lists += (link.ids.to_pylist(),)
    return stored.table, stored.before, link.whole, link.added.to_pylist(), link.added.schema, *lists


def ref_of(data: bytes) -> LinkRef:
    """The name of a link with these bytes."""
    return LinkRef(NEWEST.key, len(data), digest_of(data))


class Sample(NamedTuple):
    """A value as `decode` gives it, and its bytes. ``exact``: equal values have equal bytes, whatever Arrow is used."""

    value: Any
    encode: Callable[[], bytes]
    decode: Callable[[bytes], Any]
    exact: bool


PINNED: dict[str, bytes] = {}
"""What a link's reference is made from: the head that named it knew the bytes."""
SAMPLES = {
    "head": Sample(HEAD, lambda: encode_head(HEAD), lambda data: decode_head(data, 5, TOKEN, object_name="o"), False),
    "link": Sample(
        plain(STORED),
        lambda: encode_link(STORED),
        lambda data: plain(decode_link(data, ref_of(PINNED.get("link", data)), TABLE)),
        False,
    ),
    "whole": Sample(
        plain(STORED_WHOLE),
        lambda: encode_whole(NEWEST.key, STORED_WHOLE),
        lambda data: plain(decode_whole(data, NEWEST.key, TABLE, object_name="o")),
        False,
    ),
    "catalog": Sample(
        CATALOG, lambda: encode_catalog(CATALOG), lambda data: decode_catalog(data, 7, object_name="o"), True
    ),
}
