"""Databases, the changes of which go into collections."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

import slate_async as slate
from slate_async.bridges.envelopes import Envelope, relay_schema
from slate_async.bridges.relay import Relay, relay
from tests.engine import memory_store, open_db
from tests.unit.bridges.shelf import Shelf

Contents = dict[bytes, bytes]


@dataclass
class Town:
    """A database whose writes are remembered by number, and a collection."""

    db: slate.Db
    shelf: Shelf
    seq: int = 0
    history: dict[int, Contents] = field(default_factory=dict)
    contents: Contents = field(default_factory=dict)

    async def write(self, *rows: tuple[bytes, bytes | None]) -> None:
        """In one batch; a delete has no value."""
        batch = slate.WriteBatch()
        for key, value in rows:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        await self.db.write(batch)
        for key, value in rows:
            self.happened(key, value)

    def happened(self, key: bytes, value: bytes | None) -> None:
        """One row, with a number of its own."""
        self.contents = {**self.contents, key: value} if value is not None else dict(self.contents)
        if value is None:
            self.contents.pop(key, None)
        self.seq += 1
        self.history[self.seq] = self.contents

    async def busy(self, rng: random.Random, writes: int) -> None:
        """Random batches of random rows."""
        for _ in range(writes):
            rows = [
                (rng.choice((b"a", b"b", b"c", b"d")), rng.choice((None, b"1", b"2", b"%d" % self.seq)))
                for _ in range(rng.choice((1, 1, 2, 5)))
            ]
            await self.write(*rows)

    def relay(self, subscription: str = "relay-a", envelope: Envelope = "upsert", **options: int) -> Relay:
        return relay(self.db, subscription, self.shelf, envelope=envelope, **options)

    async def caught_up(self, subscription: str = "relay-a", envelope: Envelope = "upsert") -> None:
        """Relay what there is."""
        async with asyncio.timeout(20), self.relay(subscription, envelope) as made:
            await made.run(until=self.seq + 1)

    async def lose_subscriptions(self) -> None:
        """As an operator does."""
        for found in await self.db.checkpoints.list():
            if found.owner == "feed":
                await self.db.checkpoints.delete(found.id)

    async def is_right(self, first: int = 1) -> None:
        """An ``upsert`` collection has, at each time from ``first`` on, what the database had."""
        assert await self.shelf.upper() == self.seq + 1
        for seq in range(first, self.seq + 1):
            assert await self.shelf.values(seq) == self.history[seq], f"at {seq}"


@pytest.fixture
async def town() -> AsyncIterator[Town]:
    async with open_db(memory_store(), retention_ms=3_600_000) as db:
        yield Town(db, Shelf(relay_schema("upsert")))


@pytest.fixture
async def forgetful() -> AsyncIterator[Town]:
    """A town whose database keeps no history."""
    async with open_db(memory_store()) as db:
        yield Town(db, Shelf(relay_schema("upsert")))
