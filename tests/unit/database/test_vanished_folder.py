"""A local folder that vanishes under processes that have it open, and comes back: an outage like any other."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import slate_async as slate
from tests.engine import KINDS, Kind, contents, until

SHORT: dict[str, Any] = {
    "on_outage": "reopen",
    "retry_deadline_ms": 900,
    "request_timeout_ms": 700,
    "takeover_deadline_ms": 5000,
    "manifest_poll_interval_ms": 30,
}


def _settings(kind: Kind, **more: Any) -> slate.Settings:
    return kind.settings(**{**SHORT, **more})


def _vanish(root: Path, instead: str) -> None:
    root.rename(root.with_name("away"))
    if instead == "an empty folder":
        root.mkdir()
    elif instead == "another folder":
        root.mkdir()
        (root / "README").write_text("the disk is mounted here")


def _come_back(root: Path, how: str) -> None:
    if root.exists():
        shutil.rmtree(root)
    if how == "moved":
        root.with_name("away").rename(root)
    else:
        shutil.copytree(root.with_name("away"), root)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("how", ["moved", "copied"])
@pytest.mark.parametrize("instead", ["nothing", "an empty folder", "another folder"])
async def test_a_writer_goes_on_once_its_folder_is_back(kind: Kind, how: str, instead: str, tmp_path: Path) -> None:
    root = tmp_path / "db"
    rows = {b"k%d" % number: b"v" for number in range(5)}
    async with slate.open(root, settings=_settings(kind)) as db:
        for key, value in rows.items():
            await db.put(key, value)
        await db.flush(l0=True)
        await db.put(b"last", b"v")
        _vanish(root, instead)
        with pytest.raises(slate.UnavailableError) as lost:
            await db.put(b"lost", b"v")
        assert db.status().state == "degraded"
        with pytest.raises(slate.UnavailableError) as refused:
            await db.put(b"refused", b"v")
        assert refused.value.outcome == "not_applied"
        if kind.wal_enabled:  # else it lies in the folder alone
            assert await db.get(b"last") == b"v"
        names = sorted(path.name for path in root.iterdir()) if root.exists() else None
        assert names == {"nothing": None, "an empty folder": [], "another folder": ["README"]}[instead]
        _come_back(root, how)
        await until(lambda: db.status().state == "open", "the end of the outage")
        await db.put(b"new", b"v")
    async with slate.open(root, settings=_settings(kind)) as db:
        there = await contents(db)
    if lost.value.outcome == "unknown":
        there.pop(b"lost", None)
    assert there == {**rows, b"last": b"v", b"new": b"v"}


async def test_with_on_outage_close_the_database_ends(tmp_path: Path) -> None:
    root = tmp_path / "db"
    db = await slate.open(root, settings=_settings(KINDS[0], on_outage="close"))
    await db.put(b"k", b"v")
    _vanish(root, "nothing")
    with pytest.raises(slate.SlateError, match="was moved away"):
        await db.put(b"lost", b"v")
    await until(lambda: db.status().state == "failed", "its end")
    await db.close()
    assert not root.exists()


async def test_a_successor_elsewhere_is_not_fenced(tmp_path: Path) -> None:
    """The folder is opened where it was moved to, and moved back."""
    root, settings = tmp_path / "db", _settings(KINDS[0])
    db = await slate.open(root, settings=settings)
    await db.put(b"k", b"v")
    _vanish(root, "nothing")
    with pytest.raises(slate.UnavailableError):
        await db.put(b"lost", b"v")
    async with slate.open(root.with_name("away"), settings=settings) as successor:
        await successor.put(b"k", b"2")
    _come_back(root, "moved")
    with pytest.raises(slate.FencedError):
        await db.wait_closed()
    async with slate.open(root, settings=settings) as again:
        assert await contents(again) == {b"k": b"2"}


@pytest.mark.parametrize("pin", [False, True])
@pytest.mark.parametrize("instead", ["nothing", "an empty folder"])
async def test_a_reader_counts_failed_polls_and_goes_on(pin: bool, instead: str, tmp_path: Path) -> None:
    root, settings = tmp_path / "db", _settings(KINDS[0])
    async with slate.open(root, settings=settings) as db:
        await db.put(b"k", b"v")
    async with slate.open_reader(root, pin=pin, settings=settings) as reader:
        _vanish(root, instead)
        await until(lambda: reader.status().failed_polls > 0, "a poll that failed")
        assert await reader.get(b"k") == b"v"
        assert root.exists() == (instead != "nothing")
        _come_back(root, "moved")
        async with slate.open(root, settings=settings) as db:
            await db.put(b"k", b"2")
            await until(lambda: reader.status().failed_polls == 0, "a poll that went well")
            while await reader.get(b"k") != b"2":
                await reader.refresh()
