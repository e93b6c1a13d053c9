"""`SortedKeys`: the distinct keys of a memtable in byte order, in blocks of bounded length.

Invariant: every block is sorted and not empty, ``_lasts[i]`` is the last key of block ``i``, and the blocks follow
one another in order. A lookup is two binary searches; an insertion moves at most one block's worth of pointers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort

from slate_async.runtime.untracked import untracked

BLOCK_KEYS = 1024
"""Keys of a freshly cut block; one is cut again when it has grown to twice this."""

RESORT_SHARE = 8
"""A block that receives more than a ``1/RESORT_SHARE`` of its length is sorted once instead of key by key."""


class SortedKeys:
    """A sorted set of keys that grows. The caller never adds a key twice."""

    __slots__ = ("_blocks", "_count", "_lasts")

    def __init__(self) -> None:
        self._blocks: list[list[bytes]] = []
        self._lasts: list[bytes] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, keys: list[bytes]) -> None:
        """Insert ``keys``, which are distinct and not in the set yet, in any order. O(len(keys) · log n)."""
        pending = sorted(keys)
        self._count += len(pending)
        position = 0
        if pending and not self._blocks:
            self._place(0, 0, pending)
            return
        while position < len(pending):
            number = bisect_left(self._lasts, pending[position])
            if number >= len(self._blocks) - 1:
                number = len(self._blocks) - 1
                stop = len(pending)
            else:
                stop = bisect_right(pending, self._lasts[number], position)
            self._insert(number, pending[position:stop])
            position = stop

    def _insert(self, number: int, keys: list[bytes]) -> None:
        block = self._blocks[number]
        if len(keys) * RESORT_SHARE > len(block):
            block += keys
            block.sort()
        else:
            for key in keys:
                insort(block, key)
        if len(block) > 2 * BLOCK_KEYS:
            self._place(number, number + 1, block)
        else:
            self._lasts[number] = block[-1]

    def _place(self, first: int, stop: int, keys: list[bytes]) -> None:
        """Put ``keys``, cut into blocks, where blocks ``first`` to ``stop`` (exclusive) are."""
        blocks = [untracked(keys[i : i + BLOCK_KEYS]) for i in range(0, len(keys), BLOCK_KEYS)]
        self._blocks[first:stop] = blocks
        self._lasts[first:stop] = [block[-1] for block in blocks]

    def drop_last(self, blocks: int) -> None:
        """Take the last ``blocks`` blocks out, or all there are."""
        self._count -= sum(map(len, self._blocks[-blocks:]))
        del self._blocks[-blocks:], self._lasts[-blocks:]

    def ascending(self, start: bytes | None, end: bytes | None, count: int) -> list[bytes]:
        """The first ``count`` keys of ``[start, end)``, ascending; ``None`` is unbounded."""
        number = 0 if start is None else bisect_left(self._lasts, start)
        found: list[bytes] = []
        while number < len(self._blocks) and len(found) < count:
            block = self._blocks[number]
            low = 0 if start is None or found else bisect_left(block, start)
            high = min(len(block), low + count - len(found))
            if end is not None and block[high - 1] >= end:
                found += block[low : bisect_left(block, end, low, high)]
                break
            found += block[low:high]
            number += 1
        return found

    def descending(self, start: bytes | None, end: bytes | None, count: int) -> list[bytes]:
        """The last ``count`` keys of ``[start, end)``, in ascending order; ``None`` is unbounded."""
        number = len(self._blocks) - 1 if end is None else min(bisect_left(self._lasts, end), len(self._blocks) - 1)
        parts: list[list[bytes]] = []
        missing = count
        while number >= 0 and missing > 0:
            block = self._blocks[number]
            high = len(block) if end is None or parts else bisect_left(block, end)
            low = max(0, high - missing)
            if start is not None and low < high and block[low] < start:
                low = bisect_left(block, start, low, high)
                missing = high - low
            parts.append(block[low:high])
            missing -= high - low
            number -= 1
        return [key for part in reversed(parts) for key in part]
