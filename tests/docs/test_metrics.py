"""docs/reference/metrics.md has every metric of every handle, with the handles that have it."""

from __future__ import annotations

import re
from pathlib import Path

import slate_async as slate

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "metrics.md"
ROW = re.compile(r"^\| `([a-z0-9_.*]+)` \| ([^|]+) \| [^|]+ \|$", re.MULTILINE)
HANDLES = ("Db", "DbReader", "DbCompactor", "GarbageCollector", "IngestJob")
REQUESTS = "store.requests."


async def test_the_page_has_every_metric() -> None:
    found: dict[str, set[str]] = {}
    async with slate.Environment() as env, env.open("memory://metrics/db") as db:
        await db.put(b"k", b"v")
        handles = [db, await env.open_reader("memory://metrics/db"), await env.open_compactor("memory://metrics/db")]
        handles += [await env.open_gc("memory://metrics/db"), await env.open_ingest("memory://metrics/db")]
        lake = await slate.open_collections("memory://metrics/lake", environment=env)
        orders, reader = lake.collection("orders"), await lake.create("orders")
        handles += [lake, reader, await orders.writer(), await orders.controller()]
        handles += [slate.relay(db, "relay-a", orders), slate.relay_to_database(orders, db, "copy")]
        for handle in handles:
            for name in handle.metrics():
                listed = f"{REQUESTS}*" if name.startswith(REQUESTS) else name
                found.setdefault(listed, set()).add(type(handle).__name__)
    described = {
        name: {*(HANDLES if handles.startswith("all") else ()), *re.findall(r"`(\w+)`", handles)}
        for name, handles in ROW.findall(PAGE.read_text(encoding="utf-8"))
    }
    assert described == found
