"""The view: one process that keeps revenue per customer, by what changed in two collections.

It stores nothing but the view itself. Where that ends is where it goes on: it reads what orders and customers were just
before, adds up, and continues with their deltas. Critical holds keep that readable while no view runs. Each append says
where the view ended, so of two processes, or of one that was thought dead and another, only one moves it on.
"""

from __future__ import annotations

import asyncio
import sys

import places
import pyarrow as pa
from revenue import Revenue, Update

import slate_async as slate


def updates_of(found: pa.Table) -> list[Update]:
    """The rows of a delta."""
    names = ("_time", "key", "value", "_diff")
    times, keys, values, diffs = (found.column(name).to_pylist() for name in names)
    return list(zip(times, zip(keys, values, strict=True), diffs, strict=True))


async def keep(lake: slate.Lake) -> None:
    """Go on where the view ends, for ever."""
    pins = [await lake.collection(name).critical("view") for name in (places.ORDERS, places.CUSTOMERS)]
    async with (
        lake.collection(places.REVENUE).writer() as writer,
        await pins[0].reader("view") as orders,
        await pins[1].reader("view") as customers,
    ):
        view, waiting = Revenue(), list[Update]()
        (ended,) = writer.upper.elements[0]
        if ended:
            inputs = [reader.subscribe(as_of=ended - 1) for reader in (orders, customers)]
            for contents in inputs:
                view.add(updates_of((await anext(contents)).updates))
        else:
            inputs = [reader.listen(start=0) for reader in (orders, customers)]
        while True:
            behind = min(inputs, key=lambda listener: listener.upper.elements)
            waiting += updates_of((await anext(behind)).updates)
            upper = min(listener.upper.elements[0][0] for listener in inputs)
            if upper <= ended:
                continue
            changes = view.add(update for update in waiting if update[0] < upper)  # both inputs are whole until there
            waiting = [update for update in waiting if update[0] >= upper]
            await writer.append(changes, lower=ended, upper=upper)
            ended = upper
            for reader, pin in zip((orders, customers), pins, strict=True):
                await reader.downgrade_since(upper)
                await pin.compare_and_downgrade(pin.token, str(upper), upper - 1)


async def main(url: str) -> None:
    """Begin again after whatever a store or another process does."""
    async with slate.open_collections(places.lake(url)) as lake:
        while True:
            try:
                await keep(lake)
            except (slate.ConflictError, slate.UnavailableError) as error:
                print(f"view: {error}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
