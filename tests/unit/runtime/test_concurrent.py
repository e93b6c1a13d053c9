"""What is closed together is closed whole, however much of it there is and whatever fails."""

from __future__ import annotations

from functools import partial

import pytest

from slate_async.runtime.concurrent import each_of

MANY = 10_000
"""More than calls can nest."""


async def test_each_of_many_is_called_the_last_one_first() -> None:
    called: list[int] = []

    async def close(number: int) -> None:
        called.append(number)

    await each_of([partial(close, number) for number in range(MANY)])
    assert called == list(range(MANY))[::-1]


async def test_a_failure_stops_no_other_and_is_raised() -> None:
    called: list[int] = []

    async def close(number: int) -> None:
        called.append(number)
        if number in (1, 3):
            raise ValueError(number)

    with pytest.raises(ValueError, match="1") as caught:
        await each_of([partial(close, number) for number in range(5)])
    assert called == [4, 3, 2, 1, 0]
    assert str(caught.value.__context__) == "3"
