"""XXH3 by columns: the same as the library's, for keys of every length, beside one another and cut from an array."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
import xxhash

from slate_async.storage.format.xxh3 import MAX_VECTOR_BYTES, xxh3_64_each


def of_library(keys: list[bytes]) -> list[int]:
    return [xxhash.xxh3_64_intdigest(key) for key in keys]


@pytest.mark.parametrize("length", range(1, MAX_VECTOR_BYTES + 3))
def test_keys_of_one_length(length: int) -> None:
    rng = random.Random(length)
    keys = [rng.randbytes(length) for _ in range(40)]
    keys += [b"\0" * length, b"\xff" * length]
    assert xxh3_64_each(pa.array(keys, pa.binary())).tolist() == of_library(keys)


def test_many_keys_and_slices() -> None:
    rng = random.Random(1)
    equal = [rng.randbytes(16) for _ in range(6000)]
    mixed = [rng.randbytes(rng.randrange(1, 40)) for _ in range(6000)]
    keys = equal + mixed
    array = pa.array(keys, pa.binary())
    assert xxh3_64_each(array).tolist() == of_library(keys)
    assert xxh3_64_each(array[4095:10_001]).tolist() == of_library(keys[4095:10_001])
    assert xxh3_64_each(array[:0]).tolist() == []
