"""`slate_async.storage.sst.fitting`: as many blocks as may be decoded, though that becomes less while they are read."""

from __future__ import annotations

import pytest

from slate_async.storage.sst.fitting import TooLargeError, load_fitting


@pytest.mark.parametrize(
    ("limits", "fitting"), [([100], 5), ([30], 3), ([30, 10], 1), ([40, 30, 20], 2), ([5, 5, 5], 1), ([0, 0, 0, 0], 1)]
)
async def test_blocks_that_do_not_fit_are_left(limits: list[int], fitting: int) -> None:
    """Five of 10 bytes. The limit is another one each time; one block always fits."""
    asked: list[list[int]] = []

    async def load(numbers: list[int]) -> list[int]:
        most = limits[min(len(asked), len(limits) - 1)]
        asked.append(numbers)
        if len(numbers) > 1 and 10 * len(numbers) > most:
            raise TooLargeError(dict.fromkeys(numbers, 10), most)
        return numbers

    found, left = await load_fitting(load, [1, 2, 3, 4, 5])
    assert found == [1, 2, 3, 4, 5][:fitting]
    assert found + left == [1, 2, 3, 4, 5]
    assert len(asked) <= len(limits) + 1
