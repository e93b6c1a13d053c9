"""Races: exclusive creates and replaces, a counter without lost updates, cancelled puts, readers beside writers."""

from __future__ import annotations

import asyncio

from slate_async.errors import ConflictError, UnavailableError
from slate_async.objectstore.protocol import (
    CREATE,
    Match,
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    ObjectStore,
    PutMode,
)
from slate_async.objectstore.testing.base import ConformanceBase, outcome_of


class RaceTests(ConformanceBase):
    """Several callers, on two handles where the backend has a peer."""

    async def test_one_creator_wins(self) -> None:
        async with self.opened_twice() as stores:
            for number in range(self.rounds):
                await self._race(stores, f"race/{number}", number, CREATE, ObjectExistsError)

    async def test_one_replacer_wins(self) -> None:
        async with self.opened_twice() as stores:
            etag = await stores[0].put("race", b"start")
            for number in range(self.rounds):
                etag = await self._race(stores, "race", number, Match(etag), ObjectChangedError)

    async def _race(
        self, stores: tuple[ObjectStore, ObjectStore], key: str, number: int, mode: PutMode, loss: type[ConflictError]
    ) -> str:
        bodies = [b"racer %d of round %d" % (racer, number) for racer in range(self.racers)]
        puts = [stores[racer % 2].put(key, body, mode=mode) for racer, body in enumerate(bodies)]
        outcomes = await asyncio.gather(*map(outcome_of, puts))
        winners = [racer for racer, outcome in enumerate(outcomes) if isinstance(outcome, str)]
        assert len(winners) == 1, f"{len(winners)} of {self.racers} won {key}"
        for outcome in outcomes:
            undecided = isinstance(outcome, UnavailableError) and outcome.outcome == "not_applied"
            assert isinstance(outcome, (str, loss)) or undecided, outcome
        result = await stores[0].get(key)
        assert result.data == bodies[winners[0]]
        assert result.info.etag == outcomes[winners[0]]
        return result.info.etag

    async def test_counter_loses_no_update(self) -> None:
        async with self.opened_twice() as stores:
            await stores[0].put("counter", b"0")
            tasks = min(8, self.increments)

            async def add(store: ObjectStore, times: int, worker: int) -> None:
                for _ in range(times):
                    while True:
                        seen = await store.get("counter")
                        value = int(seen.data.split()[0]) + 1
                        body = b"%d by %d" % (value, worker)
                        outcome = await outcome_of(store.put("counter", body, mode=Match(seen.info.etag)))
                        if isinstance(outcome, str):
                            break
                        assert getattr(outcome, "outcome", None) == "not_applied", outcome

            await asyncio.gather(*(add(stores[n % 2], self.increments // tasks, n) for n in range(tasks)))
            total = int((await stores[0].get("counter")).data.split()[0])
            assert total == self.increments // tasks * tasks

    async def test_overwrites_beside_replaces(self) -> None:
        """A replace never undoes an overwrite that ended before the replace's etag could have been read."""
        async with self.opened_twice() as (store, peer):
            for number in range(min(20, self.rounds)):
                key = f"mixed/{number}"
                etag = await store.put(key, b"old")
                replaced, _ = await asyncio.gather(
                    outcome_of(store.put(key, b"replaced", mode=Match(etag))), peer.put(key, b"overwritten")
                )
                assert isinstance(replaced, (str, ObjectChangedError)), replaced
                assert (await store.get(key)).data == b"overwritten", replaced

    async def test_replace_beside_delete(self) -> None:
        """The object is deleted, whichever comes first."""
        async with self.opened_twice() as (store, peer):
            for number in range(min(20, self.rounds)):
                key = f"deleted/{number}"
                etag = await store.put(key, b"old")
                replaced, _ = await asyncio.gather(
                    outcome_of(store.put(key, b"replaced", mode=Match(etag))), peer.delete([key])
                )
                assert isinstance(replaced, (str, ObjectChangedError)), replaced
                with self.refused(ObjectNotFoundError):
                    await store.get(key)

    async def test_readers_see_whole_versions(self) -> None:
        async with self.opened_twice() as (store, peer):
            size = 200_000
            await store.put("key", b"0" * size, metadata={"version": "0"})

            async def write() -> None:
                for number in range(1, 10):
                    await store.put("key", b"%d" % number * (size + number), metadata={"version": str(number)})

            writing = asyncio.ensure_future(write())
            last = 0
            while not writing.done():
                result = await peer.get("key")
                version = int(result.info.metadata["version"])
                assert version >= last
                assert result.data == b"%d" % version * (size + version)
                last = version
            await writing

    async def test_cancelled_puts_are_whole_or_absent(self) -> None:
        async with self.opened() as store:
            body = bytes(range(256)) * 8192
            for number in range(10):
                key = f"cancelled/{number}"
                task = asyncio.ensure_future(store.put(key, body, mode=CREATE, metadata={"n": str(number)}))
                for _ in range(number):
                    await asyncio.sleep(0.001 if number > 5 else 0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                found = await outcome_of(store.get(key))
                if not isinstance(found, ObjectNotFoundError):
                    assert not isinstance(found, Exception), found
                    assert found.data == body
                    assert dict(found.info.metadata) == {"n": str(number)}
                await store.put(f"after/{number}", b"the store still works")
            async for info in store.list("cancelled/"):
                assert info.size == len(body)
