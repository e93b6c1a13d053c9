"""A database that uses what an older release does not know is refused by that, by the name of the feature, and so are
its copies; one that does not is opened as ever."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import slate_async as slate
from slate_async.storage.manifest import codec

Use = Callable[[slate.Db], Awaitable[object]]


async def a_range_in_a_batch(db: slate.Db) -> None:
    batch = slate.WriteBatch()
    batch.put(b"a", b"")
    batch.delete_range(b"b", b"c")
    await db.write(batch)


USES: dict[str, tuple[str, dict[str, str], Use]] = {
    "an operand": ("merge", {"merge_operator": "append"}, lambda db: db.merge(b"a", b"1")),
    "an operator alone": ("merge", {"merge_operator": "append"}, lambda db: db.put(b"a", b"1")),
    "a range delete": ("range_deletes", {}, lambda db: db.delete_range(b"a", b"b")),
    "a prefix": ("range_deletes", {}, lambda db: db.delete_prefix(b"a")),
    "a range in a batch": ("range_deletes", {}, a_range_in_a_batch),
    "a range of a namespace": ("range_deletes", {}, lambda db: db.namespace("n").delete_range(None, None)),
}


def is_older(monkeypatch: pytest.MonkeyPatch, feature: str) -> None:
    """From here on the release is one that does not know ``feature``."""
    assert feature in codec.KNOWN_FEATURES
    monkeypatch.setattr(codec, "KNOWN_FEATURES", codec.KNOWN_FEATURES - {feature})


@pytest.mark.parametrize("name", USES)
async def test_it_refuses_what_it_does_not_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    feature, chosen, use = USES[name]
    settings = slate.Settings(auto_compaction=False, **chosen)  # type: ignore[arg-type]
    async with slate.open(tmp_path / "db", settings=settings) as db:
        await db.put(b"a", b"0")
        await use(db)
        await db.checkpoints.create(name="then")
    async with slate.open_admin(tmp_path / "db") as admin:
        await admin.clone(tmp_path / "clone")
        await admin.mirror("then", tmp_path / "mirror")
    is_older(monkeypatch, feature)
    for place in ("db", "clone", "mirror"):
        before = {path: path.read_bytes() for path in (tmp_path / place).rglob("*") if path.is_file()}
        for opening in (slate.open, slate.open_reader, slate.open_compactor, slate.open_gc):
            with pytest.raises(slate.ConfigError, match=feature):
                await opening(tmp_path / place)
        assert {path: path.read_bytes() for path in (tmp_path / place).rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("feature", ["merge", "range_deletes"])
async def test_it_opens_what_does_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, feature: str) -> None:
    """Transactions, conditions, namespaces and maps are rows like any others."""
    async with slate.open(tmp_path / "db") as db:
        async with db.transaction() as tx:
            tx.put(b"a", b"1")
        await db.put(b"b", b"1", if_absent=True)
        await db.increment(b"c", token=b"d")
        await db.namespace("n", default_ttl=3600).put(b"e", b"1")
        await db.map("m", key=str, value=dict[str, str], indexes=[slate.Index("mail")]).put("ann", {"mail": "a@b"})
        with pytest.raises(slate.InvalidError):
            await db.delete_range(b"b", b"a")
        written = [row async for row in db.scan()]
    is_older(monkeypatch, feature)
    async with slate.open(tmp_path / "db") as db:
        assert [row async for row in db.scan()] == written
