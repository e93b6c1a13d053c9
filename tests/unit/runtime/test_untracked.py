"""What the cyclic garbage collector is not to run through stays out of its sight."""

from __future__ import annotations

import gc

import pytest

from slate_async.codec.columns import NO_EXPIRY
from slate_async.runtime.untracked import untracked
from slate_async.storage.memtable.memtable import Memtable
from slate_async.storage.memtable.order import BLOCK_KEYS, SortedKeys
from slate_async.types import MAX_SEQ, PUT


def test_a_list_stays_untracked_and_works_as_ever() -> None:
    items = untracked([b"b"])
    items.append(b"a")
    items += [b"c"] * 10_000
    items.sort()
    del items[5:]
    gc.collect()
    assert not gc.is_tracked(items)
    assert items == [b"a", b"b", b"c", b"c", b"c"]
    assert gc.is_tracked(items[:2])


@pytest.mark.parametrize("scanned", [False, True])
def test_no_list_of_a_memtable_grows_with_its_rows(scanned: bool) -> None:
    gc.collect()
    before = {id(found) for found in gc.get_objects() if isinstance(found, list | dict | tuple)}
    table = Memtable()
    keys = [b"%06d" % number for number in range(3 * BLOCK_KEYS)]
    table.append_batch(keys, keys, bytes(len(keys)), 1, None, 0)
    for number, key in enumerate(keys):
        table.append(b"x" + key, key, PUT, len(keys) + 1 + number, NO_EXPIRY, 0)
    if scanned:
        list(table.index_steps(MAX_SEQ))
        list(table.order_steps(MAX_SEQ))
    del keys
    gc.collect()
    found = [found for found in gc.get_objects() if isinstance(found, list | dict | tuple) and id(found) not in before]
    assert [len(container) for container in found if len(container) > BLOCK_KEYS // 2] == []


def test_sorted_keys_stay_untracked_when_keys_come_in_between() -> None:
    order = SortedKeys()
    for start in range(7):
        order.add([b"%06d" % number for number in range(start, 7 * BLOCK_KEYS, 7)])
    assert [gc.is_tracked(block) for block in order._blocks] == [False] * len(order._blocks)
    assert order.ascending(None, None, 3) == [b"000000", b"000001", b"000002"]
