"""The bytes of collections, pinned. ``SLATE_REGEN_GOLDEN=1`` writes the files anew; do that only for a change of format
that ``docs/format`` and the changelog tell of."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from slate_async.collections.codec.merged import encode_merged
from slate_async.collections.codec.merged_read import END_BYTES, decode_merged, footer_of, hashed_upper
from tests.support.collection_bytes import BYTES, HASHED_UPPER, ORDERS, PAIR_UPDATES, SAMPLES, UPDATES, as_bits, named

GOLDEN = Path(__file__).parents[3] / "golden" / "collections"
MERGED = {
    "merged": (UPDATES, BYTES, None),
    "merged-pairs": (PAIR_UPDATES, ORDERS, None),
    "merged-hashed": (PAIR_UPDATES, ORDERS, HASHED_UPPER),
}


def golden(name: str, made: bytes) -> bytes:
    """The pinned bytes, written first when asked to."""
    if os.environ.get("SLATE_REGEN_GOLDEN") == "1":
        (GOLDEN / name).write_bytes(made)
    return (GOLDEN / name).read_bytes()


@pytest.mark.parametrize("name", SAMPLES)
def test_pinned_bytes_are_read_and_written(name: str) -> None:
    sample = SAMPLES[name]
    made = sample.encode()
    pinned = golden(f"{name}.bin", made)
    assert sample.decode(pinned) == sample.decode(made) == sample.value
    if sample.exact:
        assert made == pinned


@pytest.mark.parametrize("name", MERGED)
def test_pinned_merged_batches_are_read(name: str) -> None:
    updates, schema, upper = MERGED[name]
    pinned = golden(f"{name}.parquet", bytes(encode_merged(updates, schema, upper).data))
    table = decode_merged(pinned, named(pinned, updates.num_rows), schema, object_name="m")
    assert as_bits(table) == as_bits(pa.Table.from_batches([updates]))
    footer = pinned[footer_of(pinned[-END_BYTES:], len(pinned), object_name="m")]
    assert hashed_upper(footer, object_name="m") == upper
