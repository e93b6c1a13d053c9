"""A log does not grow with the number of openings, and an L0 flush catches up with a manifest that has moved on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pytest

import slate_async as slate
from slate_async.manifest.state import ManifestState
from slate_async.objectstore.protocol import OVERWRITE, Buffer, PutMode
from slate_async.write import l0_flusher, writer
from tests.engine import CONTIGUOUS, EPOCHS, Kind, StoreInHand, contents, memory_store, open_db, until
from tests.unit.engine.manifests import commit

WITH_WAL = pytest.mark.parametrize("kind", [CONTIGUOUS, EPOCHS], ids=str)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> int:
    """What counts as a long log here."""
    monkeypatch.setattr(l0_flusher, "LONG_LOG", 12)
    monkeypatch.setattr(writer, "LONG_LOG", 12)
    return 12


@WITH_WAL
async def test_openings_that_write_little_leave_a_short_log(kind: Kind, short: int) -> None:
    store = memory_store()
    rows: dict[bytes, bytes] = {}
    longest = 0
    for number in range(40):
        async with open_db(store, kind) as db:
            assert await contents(db) == rows
            before = db.status()
            await until(lambda db=db: db.status().log_end - db.status().log_start < short, "a short log")  # type: ignore[misc]
            longest = max(longest, before.log_end - before.log_start)
            rows[b"%d" % number] = b"x"
            await db.put(b"%d" % number, b"x")
            if number % 5 == 0:
                await db.delete(b"%d" % (number // 2))
                rows.pop(b"%d" % (number // 2), None)
    assert longest < 2 * short
    async with open_db(store, kind) as db:
        assert await contents(db) == rows


async def test_openings_that_write_nothing_leave_a_short_log(short: int) -> None:
    store = memory_store()
    async with open_db(store) as db:
        await db.put(b"a", b"1")
        await db.flush(l0=True)
    for _ in range(20):
        async with open_db(store) as db:
            await until(lambda db=db: db.status().log_end - db.status().log_start < short, "a short log")  # type: ignore[misc]
            assert await contents(db) == {b"a": b"1"}
            assert db.status().l0_ssts == 1
    async with open_db(store) as db:
        await db.put(b"b", b"2")
        await db.flush(l0=True)
        assert await contents(db) == {b"a": b"1", b"b": b"2"}


@dataclass(frozen=True)
class RaiseFloor:
    """What a collector does first; ``again``: however high the floor is."""

    again: bool = False

    def apply(self, state: ManifestState) -> ManifestState | None:
        return (
            None if state.sst_floor == state.version and not self.again else replace(state, sst_floor=state.version + 1)
        )


async def test_a_flush_begun_below_the_floor_is_redone_above_it() -> None:
    async with open_db(memory_store()) as db:  # polls far too seldom to notice
        await db.put(b"a", b"1")
        state = await db._driver.commit(RaiseFloor())
        assert db.status().manifest_version < state.sst_floor
        await db.flush(l0=True)
        assert (await db.get(b"a"), db.status().l0_ssts) == (b"1", 1)


class CollectedAtOnce(StoreInHand):
    """A store beside which a collector refuses every L0 SST that was uploaded."""

    async def put(
        self,
        key: str,
        data: Buffer | Sequence[Buffer],
        *,
        mode: PutMode = OVERWRITE,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        etag = await super().put(key, data, mode=mode, metadata=metadata)
        if key.startswith("sst/"):
            await commit(self.inner, RaiseFloor(again=True))
        return etag


async def test_a_writer_whose_flushes_are_all_refused_says_what_to_change() -> None:
    store = memory_store()
    db = await open_db(CollectedAtOnce(store, watch="never/"))
    await db.put(b"a", b"1")
    with pytest.raises(slate.ClosedError):
        await db.flush(l0=True)
    with pytest.raises(slate.ClosedError, match="raise gc_min_age_ms"):
        await db.wait_closed()
    async with open_db(store) as db:
        assert await contents(db) == {b"a": b"1"}
