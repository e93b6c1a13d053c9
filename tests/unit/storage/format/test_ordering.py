"""The order of rows, against Python's own sort."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slate_async.codec.columns import Columns
from slate_async.codec.key_prefixes import RUN_ROWS
from slate_async.storage.format.ordering import order_of
from tests.support.rows import R, columns_of

prefixes = st.sampled_from([b"", b"p", b"a long prefix of all keys/"])
endings = st.binary(max_size=3) | st.text("\0\1ab", max_size=12).map(str.encode) | st.binary(min_size=8, max_size=20)


def checked(keys: list[bytes], seqs: list[int]) -> None:
    rows = [R(key, b"", seq) for key, seq in zip(keys, seqs, strict=True)]
    found, repeats = order_of(columns_of([R(b"before"), *rows, R(b"behind")]).slice(1, len(rows) + 1))
    expected = sorted(range(len(rows)), key=lambda row: (keys[row], -seqs[row], row))
    assert found.tolist() == expected
    assert repeats.tolist() == [False, *(keys[one] == keys[other] for one, other in pairwise(expected))]


@settings(deadline=None, max_examples=300)
@given(prefixes, st.lists(st.tuples(endings, st.integers(0, 5)), min_size=1, max_size=30))
def test_any_rows(prefix: bytes, rows: list[tuple[bytes, int]]) -> None:
    checked([prefix + ending or b"x" for ending, _ in rows], [seq for _, seq in rows])


@pytest.mark.parametrize("shuffled", [False, True])
def test_runs_and_their_versions(shuffled: bool) -> None:
    """Sorted runs are merged, others sorted anew; the newest version of a key comes first however they lie."""
    many = 4 * RUN_ROWS
    keys = [b"%03d" % (number * 7919 % 100) for number in range(many)] if shuffled else []
    keys = keys or [b"%03d" % (number // 2) for _ in range(2) for number in range(many)]
    checked(keys, [number % 5 for number in range(len(keys))])


def test_one_row() -> None:
    one: Columns = columns_of([R(b"k")])
    order, repeats = order_of(one)
    assert (order.tolist(), repeats.tolist()) == ([0], [False])
