"""Whether the view is right: at every time, it is what a computation from nothing gives."""

from __future__ import annotations

from collections import Counter
from typing import Any

import places
from revenue import computed

import slate_async as slate

Rows = Counter[tuple[Any, ...]]


async def history(reader: slate.collections.ReadHandle, until: int) -> dict[int, Rows]:
    """What was added and taken away at each time before ``until``, from the beginning."""
    found: dict[int, Rows] = {}
    async with reader.listen(start=0) as listener:
        while listener.upper.elements[0][0] < until:
            for row in (await anext(listener)).updates.to_pylist():
                time, diff, _ = row.pop("_time"), row.pop("_diff"), row.pop("expire_time", None)
                found.setdefault(time, Counter())[tuple(row.values())] += diff
    return found


async def equal_at_every_time(readers: dict[str, slate.collections.ReadHandle], until: int) -> int:
    """How many times before ``until`` were compared. Raises AssertionError at the first where the view is wrong."""
    changes = {name: await history(reader, until) for name, reader in readers.items()}
    contents: dict[str, Rows] = {name: Counter() for name in readers}
    for time in range(until):
        for name, rows in contents.items():
            rows.update(changes[name].get(time, Counter()))
        orders, customers, view = (+contents[name] for name in (places.ORDERS, places.CUSTOMERS, places.REVENUE))
        for name, rows in contents.items():
            assert min(rows.values(), default=0) >= 0, f"{name} at {time} lacks what was taken away"
        assert set(view) == computed(orders, customers), f"the view is wrong at {time}"
        assert not view or max(view.values()) == 1, f"a row is there twice at {time}"
    return until
