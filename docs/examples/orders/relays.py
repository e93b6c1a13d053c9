"""A relay process: it brings what the shop writes into two collections, ``orders`` and ``customers``.

Two such processes run, each with subscriptions of its own. Both append the same, and the collection takes each change
once: the faster one counts, and when it dies, nothing needs to be decided. The times of both collections are the
numbers of the database's writes, so one time means the same in both.
"""

from __future__ import annotations

import asyncio
import sys

import places

import slate_async as slate


async def bring(reader: slate.DbReader, lake: slate.Lake, process: str, name: str) -> None:
    """Keep one collection up to date, for ever."""
    start, end = places.KEYS[name]
    async with slate.relay(
        reader, f"{process}-{name}", lake.collection(name), envelope="upsert", start=start, end=end
    ) as relay:
        while True:
            try:
                await relay.run()
            except slate.UnavailableError as error:  # of the store: the next run goes on
                print(f"{process}: {error}", flush=True)


async def main(url: str, process: str) -> None:
    """Both collections, beside a reader: the shop does not know."""
    async with slate.open_reader(places.database(url), settings=slate.Settings(manifest_poll_interval_ms=50)) as reader:
        async with slate.open_collections(places.lake(url)) as lake, asyncio.TaskGroup() as tasks:
            for name in places.KEYS:
                tasks.create_task(bring(reader, lake, process, name))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
