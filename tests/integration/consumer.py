"""A process that consumes the change feed of the database `counting.py` writes, with a subscription by name:

    consumer.py PATH [--metastore M] [--settings JSON]

Lines: ``begin SEQ`` · ``row SEQ OP KEY NUMBER`` · ``acknowledged SEQ`` (written down).
"""

from __future__ import annotations

import argparse
import asyncio
import json

import slate_async as slate
from tests.integration.counting import say

SUBSCRIPTION = "consumer"
ACKNOWLEDGE_EVERY = 3


async def consume(path: str, metastore: str | None, settings: slate.Settings) -> None:
    async with (
        slate.open_reader(path, metastore=metastore, settings=settings) as reader,
        reader.changes(subscription=SUBSCRIPTION) as feed,
    ):
        say(f"begin {feed.seq}")
        number = 0
        async for batch in feed.batches(max_rows=40):
            columns = [batch.column(name).to_pylist() for name in ("seq", "op", "key", "value")]
            for seq, op, key, value in zip(*columns, strict=True):
                said = "-" if value is None else value.partition(b".")[0].decode()
                say(f"row {seq} {op} {key.decode()} {said}")
            number += 1
            if number % ACKNOWLEDGE_EVERY == 0:
                await feed.acknowledge(feed.seq, now=True)
                say(f"acknowledged {feed.seq}")
            await asyncio.sleep(0.01)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("--metastore")
    parser.add_argument("--settings", default="{}")
    given = parser.parse_args()
    asyncio.run(consume(given.path, given.metastore, slate.Settings(**json.loads(given.settings))))


if __name__ == "__main__":
    main()
