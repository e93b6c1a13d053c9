"""A namespace behaves as a database of its own: each is compared with a plain dict, beside others of close names.

The database's own rows, a namespace, one whose name goes on where that ends, and a namespace in a namespace have the
same keys. Each has another default time to live."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import slate_async as slate
from tests.engine import CONTIGUOUS, CONTIGUOUS_SST, Kind, ManualClock, memory_store, open_db, open_reader
from tests.property.machines import run_machine

T = TypeVar("T")
FIRST = b"\xfe"
"""Every prefix begins with it; keys that do as well lie among those of inner namespaces."""
KEYS = st.sampled_from([b"\0", b"a", b"a\0", b"a\xff", b"b", b"\xfd", FIRST, FIRST + b"in", b"\xff", b"\xff\xff"])
VALUES = st.binary(max_size=3)
TTLS = st.sampled_from([None, None, 5, 20, float("inf")])
BOUNDS = st.none() | KEYS
NAMES = ["a", "ab", "a/in"]
PLACES = st.sampled_from(NAMES)
DEFAULTS = {"a": None, "ab": 15.0, "a/in": 8.0}
INNER = FIRST + b"in\0"


@dataclass
class Kept:
    """A snapshot of a namespace, and what it has to give for ever."""

    snapshot: slate.Snapshot
    rows: dict[bytes, bytes]


class NamespaceMachine(RuleBasedStateMachine):
    """See the module docstring. Of a key of a model: value, and when it expires in seconds or `None`."""

    kind: Kind = CONTIGUOUS

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.store = memory_store()
        self.models: dict[str, dict[bytes, tuple[bytes, float | None]]] = {"a": {}, "ab": {}}
        self.kept: Kept | None = None
        self.open()

    def run(self, step: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(step)

    def open(self) -> None:
        settings = {"merge_operator": "append", "auto_compaction": False}
        self.opened = open_db(self.store, self.kind, clock=self.clock, **settings)
        self.db = self.run(self.opened.__aenter__())
        self.run(self.db.put(b"a", b"the database's own"))

    def teardown(self) -> None:
        self.run(self.opened.__aexit__(None, None, None))
        self.loop.close()

    def space(self, name: str) -> slate.Namespace:
        if name == "a/in":
            return self.db.namespace("a").namespace("in", default_ttl=DEFAULTS[name])
        return self.db.namespace(name, default_ttl=DEFAULTS[name])

    # ---- the dicts

    def now(self) -> float:
        return self.clock.wall_ms / 1000

    def rows(self, name: str) -> dict[bytes, bytes]:
        """What the namespace is to have."""
        begin = INNER if name == "a/in" else b""
        model = self.models[name[:1] if begin else name]
        return {
            key[len(begin) :]: value
            for key, (value, expires) in sorted(model.items())
            if key.startswith(begin) and (expires is None or expires > self.now())
        }

    def set(self, name: str, key: bytes, value: bytes | None, ttl: float | None) -> None:
        own, model = (INNER + key, self.models["a"]) if name == "a/in" else (key, self.models[name])
        life = DEFAULTS[name] if ttl is None else ttl
        if value is None:
            model.pop(own, None)
        else:
            model[own] = (value, None if life is None or life == float("inf") else self.now() + life)

    def drop(self, name: str, start: bytes, end: bytes | None) -> None:
        for key in self.stored(name):
            if start <= key and (end is None or key < end):
                self.set(name, key, None, None)

    def stored(self, name: str) -> list[bytes]:
        begin = INNER if name == "a/in" else b""
        model = self.models[name[:1] if begin else name]
        return [key[len(begin) :] for key in list(model) if key.startswith(begin)]

    # ---- steps

    @rule(name=PLACES, key=KEYS, value=VALUES, ttl=TTLS)
    def put(self, name: str, key: bytes, value: bytes, ttl: float | None) -> None:
        self.run(self.space(name).put(key, value, ttl=ttl, await_durable=False))
        self.set(name, key, value, ttl)

    @rule(name=PLACES, key=KEYS)
    def delete(self, name: str, key: bytes) -> None:
        self.run(self.space(name).delete(key, await_durable=False))
        self.set(name, key, None, None)

    @rule(name=PLACES, key=KEYS, value=VALUES)
    def put_if_absent(self, name: str, key: bytes, value: bytes) -> None:
        there = key in self.rows(name)
        try:
            self.run(self.space(name).put(key, value, if_absent=True))
        except slate.ConflictError:
            assert there
        else:
            assert not there
            self.set(name, key, value, None)

    @rule(name=PLACES, key=KEYS, ttl=TTLS)
    def touch(self, name: str, key: bytes, ttl: float | None) -> None:
        found = self.rows(name).get(key)
        if ttl is None and DEFAULTS[name] is None:
            ttl = 9
        assert self.run(self.space(name).touch(key, ttl=ttl)).value == found
        if found is not None:
            self.set(name, key, found, ttl)

    @rule(name=PLACES, key=KEYS, value=VALUES)
    def update(self, name: str, key: bytes, value: bytes) -> None:
        new = self.rows(name).get(key, b"") + value
        assert self.run(self.space(name).update(key, lambda found: (found or b"") + value)).value == new
        self.set(name, key, new, None)

    @rule(name=PLACES, key=KEYS, value=VALUES)
    def merge(self, name: str, key: bytes, value: bytes) -> None:
        """Of a key that lives for ever, or is not there: else it expires when its first part does."""
        model = self.models[name[:1] if name == "a/in" else name]
        known = model.get(INNER + key if name == "a/in" else key)
        if known is not None and known[1] is not None and key in self.rows(name):
            return
        new = self.rows(name).get(key, b"") + value
        self.run(self.space(name).merge(key, value, ttl=float("inf")))
        self.set(name, key, new, float("inf"))

    @rule(name=PLACES, rows=st.lists(st.tuples(KEYS, st.none() | VALUES, TTLS), min_size=1, max_size=5))
    def batch(self, name: str, rows: list[tuple[bytes, bytes | None, float | None]]) -> None:
        batch = slate.WriteBatch()
        for key, value, ttl in rows:
            batch.delete(key) if value is None else batch.put(key, value, ttl=ttl)
            self.set(name, key, value, ttl)
        self.run(self.space(name).write(batch, await_durable=False))

    @rule(name=PLACES, key=KEYS, value=VALUES)
    def transact(self, name: str, key: bytes, value: bytes) -> None:
        async def step(tx: slate.Transaction) -> None:
            assert dict([row async for row in tx.scan()]) == self.rows(name)
            assert await tx.get(key) == self.rows(name).get(key)
            tx.put(key, value)

        self.run(self.space(name).transact(step))
        self.set(name, key, value, None)

    @rule(name=PLACES, start=BOUNDS, end=BOUNDS)
    def delete_range(self, name: str, start: bytes | None, end: bytes | None) -> None:
        if not self.kind.wal_enabled or (end is not None and end <= (start or b"\0")):
            return
        self.run(self.space(name).delete_range(start, end))
        self.drop(name, start or b"", end)

    @rule(name=PLACES, prefix=KEYS)
    def delete_prefix(self, name: str, prefix: bytes) -> None:
        if self.kind.wal_enabled:
            self.run(self.space(name).delete_prefix(prefix))
            for key in self.stored(name):
                if key.startswith(prefix):
                    self.set(name, key, None, None)

    @rule(name=PLACES)
    def clear(self, name: str) -> None:
        self.run(self.space(name).clear())
        self.drop(name, b"", None)

    @rule(seconds=st.integers(1, 12))
    def wait(self, seconds: int) -> None:
        self.clock.wall_ms += 1000 * seconds
        self.kept = None  # its rows expire as well

    @rule(full=st.booleans())
    def flush_or_compact(self, full: bool) -> None:
        self.run(self.db.flush(l0=True))
        if full:
            self.run(self.db.compact(full=True))

    @rule()
    def open_again(self) -> None:
        self.kept = None
        self.run(self.opened.__aexit__(None, None, None))
        self.open()

    @rule(name=PLACES)
    def keep(self, name: str) -> None:
        self.kept = Kept(self.run(self.snapshot(name)), self.rows(name))

    async def snapshot(self, name: str) -> slate.Snapshot:
        return self.space(name).snapshot()

    # ---- what is read

    @rule(name=PLACES, start=BOUNDS, end=BOUNDS, reverse=st.booleans(), limit=st.none() | st.integers(1, 4))
    def scan(self, name: str, start: bytes | None, end: bytes | None, reverse: bool, limit: int | None) -> None:
        async def rows() -> list[tuple[bytes, bytes]]:
            return [row async for row in self.space(name).scan(start, end, reverse=reverse, limit=limit)]

        if start is not None and end is not None and end < start:
            return
        wanted = [
            (key, value)
            for key, value in self.rows(name).items()
            if (start or b"") <= key and (end is None or key < end)
        ]
        assert self.run(rows()) == (wanted[::-1] if reverse else wanted)[:limit]

    @rule(name=PLACES, keys=st.lists(KEYS, max_size=4))
    def get_many(self, name: str, keys: list[bytes]) -> None:
        assert self.run(self.space(name).get_many(keys)) == [self.rows(name).get(key) for key in keys]

    @rule(name=PLACES)
    def a_reader_looks(self, name: str) -> None:
        async def rows() -> dict[bytes, bytes]:
            await self.db.flush()
            async with open_reader(self.store, clock=self.clock) as reader:
                first, _, inner = name.partition("/")
                view = reader.namespace(first)
                return dict([row async for row in (view.namespace(inner) if inner else view).scan()])

        assert self.run(rows()) == self.rows(name)

    @invariant()
    def each_is_as_its_dict(self) -> None:
        async def check() -> None:
            for name in NAMES:
                space, wanted = self.space(name), self.rows(name)
                assert [row async for row in space.scan()] == list(wanted.items()), name
                assert (await space.stats()).live == len(wanted)
            assert await self.db.get(b"a") == b"the database's own"
            if self.kept is not None:
                assert dict([row async for row in self.kept.snapshot.scan()]) == self.kept.rows

        self.run(check())


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("kind", [CONTIGUOUS, CONTIGUOUS_SST], ids=str)
def test_a_namespace_agrees_with_a_dict(kind: Kind, full: bool, slice_seed: int) -> None:
    run_machine(NamespaceMachine, kind, slice_seed, examples=600 if full else 8, steps=30)
