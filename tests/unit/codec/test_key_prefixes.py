"""Keys as numbers: where two differ, the keys are in their order."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slate_async.codec.key_prefixes import RUN_ROWS, order_of_numbers, prefix_numbers

PREFIXES = st.sampled_from([b"", b"p", b"a long prefix of all keys/"])
ENDINGS = st.binary(max_size=3) | st.text("\0\1ab", max_size=12).map(str.encode) | st.binary(min_size=8, max_size=20)


@given(PREFIXES, st.lists(ENDINGS, min_size=1, max_size=20))
def test_numbers_are_in_the_order_of_keys(prefix: bytes, endings: list[bytes]) -> None:
    keys = sorted(prefix + ending for ending in endings)
    column = pa.array([b"before", *keys, b"behind"]).slice(1, len(keys))
    numbers, whole = prefix_numbers(column)
    if not len(numbers):
        return
    for (one, other), (key, next_key) in zip(pairwise(numbers.tolist()), pairwise(keys), strict=True):
        assert one <= other
        assert one == other if key == next_key else one < other or not whole


@pytest.mark.parametrize("run", [1, 3 * RUN_ROWS])
def test_numbers_are_sorted_in_runs_or_without(run: int) -> None:
    numbers = np.concatenate([np.arange(run, dtype=np.uint64) + np.uint64(7 * n % 5) for n in range(60)])
    order = order_of_numbers(numbers)
    assert sorted(order.tolist()) == list(range(len(numbers)))
    assert numbers[order].tolist() == sorted(numbers.tolist())
