"""The shop: one process that writes orders and customers into its database, until a file says that it closes.

It knows nothing of relays or views.
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

import places

import slate_async as slate

CUSTOMERS = [f"c{number}" for number in range(12)]


def day(rng: random.Random, open_orders: dict[int, str], number: int) -> slate.WriteBatch:
    """Some things that happen together: all of them are seen, or none."""
    batch = slate.WriteBatch()
    for _ in range(rng.choice((1, 1, 2, 4))):
        happens = rng.random()
        if happens < 0.6 or not open_orders:
            order = number + len(batch)
            open_orders[order] = rng.choice(CUSTOMERS)
            put(batch, order, open_orders[order], rng)
        elif happens < 0.75:  # changed
            order = rng.choice(list(open_orders))
            put(batch, order, open_orders[order], rng)
        elif happens < 0.9:  # cancelled
            batch.delete(places.order_key(order := rng.choice(list(open_orders))))
            del open_orders[order]
        elif happens < 0.97:  # renamed, or new
            customer = rng.choice(CUSTOMERS)
            batch.put(places.customer_key(customer), places.encode({"name": f"{customer.upper()} {rng.randrange(99)}"}))
        else:  # gone away, with orders that nobody pays
            batch.delete(places.customer_key(rng.choice(CUSTOMERS)))
    return batch


def put(batch: slate.WriteBatch, order: int, customer: str, rng: random.Random) -> None:
    """An order of ``customer``."""
    batch.put(places.order_key(order), places.encode({"customer": customer, "cents": rng.randrange(100, 10_000)}))


async def main(url: str, seed: int, closing: Path) -> None:
    """Write until the file ``closing`` is there; then say in it which number the last write had."""
    rng, number = random.Random(seed), 0
    open_orders: dict[int, str] = {}
    async with slate.open(places.database(url), settings=slate.Settings(retention_ms=3_600_000)) as db:
        while not closing.exists():
            handle = await db.write(day(rng, open_orders, number))
            number += 10
            await asyncio.sleep(rng.choice((0, 0.005, 0.02)))
        closing.write_text(str(handle.seq))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])))
