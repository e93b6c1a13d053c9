"""`slate_async.collections.codec.version`, `.hold`, `.life`, `.index` and `.fields`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slate_async.collections.codec.fields import pack_frontier, pack_sum, unpack_frontier, unpack_sum
from slate_async.collections.codec.index import Index, encode_index
from slate_async.collections.codec.parts import MAX_PARTS, PartRef
from slate_async.collections.codec.version import decode_version, encode_version
from slate_async.collections.core.frontier import DONE
from slate_async.collections.core.times import TIME_END
from slate_async.errors import InvalidError
from tests.support.collection_bytes import AREA, INDEX, PAIRS, U64, batch, frontier


def test_a_version_stays_small() -> None:
    """A collection of 4 billion updates has at most 73 batches."""
    batches = tuple(
        batch(frontier(number * 10**17), frontier((number + 1) * 10**17), frontier(2**62), 2**32 - number)
        for number in range(73)
    )
    full = replace(AREA, upper=batches[-1].bounds.upper, batches=batches)
    data = encode_version(full)
    assert len(data) <= 256 * (2 * 32 + 8)
    assert decode_version(data, full.version, U64, object_name="v") == full


@pytest.mark.parametrize("total", [0, -1, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 2**90, -(2**90), 2**64, 255 << 64])
def test_sums_may_leave_64_bits(total: int) -> None:
    assert unpack_sum(pack_sum(total)) == total


def test_frontiers_are_arrays() -> None:
    assert pack_frontier(frontier(7)) == [7]
    assert pack_frontier(frontier((3, 0), (0, 5))) == [[0, 5], [3, 0]]
    assert pack_frontier(DONE) == []
    for kind, value in ((U64, frontier(TIME_END)), (U64, DONE), (PAIRS, frontier((3, 0), (0, 5))), (PAIRS, DONE)):
        assert unpack_frontier(pack_frontier(value), kind) == value
    for kind, wrong in ((U64, [1, 2]), (PAIRS, [[3, 0], [0, 5]]), (PAIRS, [[0]]), (U64, [True]), (U64, ["1"])):
        with pytest.raises((ValueError, TypeError)):
            unpack_frontier(wrong, kind)


def test_an_index_has_a_limit_and_edges_for_each_part() -> None:
    with pytest.raises(InvalidError, match="at most 10000 parts"):
        encode_index(Index((PartRef(1, 1, 1),) * (MAX_PARTS + 1), INDEX.edges))
    with pytest.raises(InvalidError, match="4 edges do not fit 1 parts"):
        encode_index(replace(INDEX, parts=INDEX.parts[:1]))
    assert INDEX.rows == 72
