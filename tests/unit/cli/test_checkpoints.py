"""The commands of checkpoints, over the real engine on a local folder."""

from __future__ import annotations

import asyncio
import os
from datetime import datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

import slate_async
from tests.unit.cli.conftest import Run


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith("SLATE_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def path(slate: Run, tmp_path: Path) -> str:
    """A database with one row."""
    found = str(tmp_path / "db")
    assert slate("put", "k", "before", path=found).code == 0
    return found


def test_a_checkpoint_through_its_life(slate: Run, path: str) -> None:
    json = {"path": path, "options": ("--json",)}
    [made] = slate("create-checkpoint", "-l", "7days 30min 10s", "-n", "monday", **json).objects
    life = datetime.fromisoformat(made["expire_time"]) - datetime.fromisoformat(made["create_time"])
    assert abs(life - timedelta(days=7, minutes=30, seconds=10)) <= timedelta(seconds=1)
    assert (made["name"], made["owner"]) == ("monday", "user")
    assert slate("put", "k", "after", path=path).code == 0
    assert slate("get", "k", "--checkpoint", "monday", path=path).out == "before\n"
    [copied] = slate("create-checkpoint", "--source", "monday", "--name", "forever", **json).objects
    assert (copied["manifest_id"], copied["expire_time"]) == (made["manifest_id"], None)
    [longer] = slate("refresh-checkpoint", "-i", made["id"], "-l", "1y", **json).objects
    assert longer["expire_time"] > made["expire_time"]
    assert slate("list-checkpoints", **json).objects == [longer, copied]
    deleted = slate("delete-checkpoint", "-i", "monday", path=path)
    assert (deleted.code, deleted.out) == (0, "")
    lines = slate("list-checkpoints", path=path).out.splitlines()
    assert [line.split("\t")[:3] + line.split("\t")[5:] for line in lines] == [
        [copied["id"], "forever", "user", "never"]
    ]
    assert slate("get", "k", "--checkpoint", "forever", path=path).out == "before\n"
    assert slate("delete-checkpoint", "-i", "forever", **json).objects == [{"checkpoint": "forever", "deleted": True}]


def test_a_writer_that_runs_is_not_disturbed(slate: Run, path: str) -> None:
    async def beside() -> None:
        async with slate_async.open(path) as database:
            await database.put(b"k", b"written")
            made = await asyncio.to_thread(slate, "create-checkpoint", "-n", "now", path=path)
            assert made.code == 0
            await database.put(b"k", b"later")
            await database.confirm()
            owners = [info.owner for info in await database.checkpoints.list()]
            assert sorted(owners) == ["user", "writer"]

    asyncio.run(beside())
    assert slate("get", "k", "--checkpoint", "now", path=path).out == "written\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("create-checkpoint", "-l", "soon"), "--lifetime"),
        (("create-checkpoint", "-s", "nothing"), "no checkpoint 'nothing'"),
        (("refresh-checkpoint", "-i", "nothing"), "no checkpoint 'nothing'; `list-checkpoints`"),
        (("refresh-checkpoint", "-i", str(uuid4()), "-l", "1d"), "no checkpoint"),
        (("delete-checkpoint", "-i", str(uuid4())), "list-checkpoints"),
    ],
)
def test_mistakes_end_with_exit_code_2(slate: Run, path: str, arguments: tuple[str, ...], said: str) -> None:
    done = slate(*arguments, path=path)
    assert (done.code, said in done.err) == (2, True)
    assert slate("list-checkpoints", path=path).out == ""


def test_an_expired_one_is_listed_until_it_is_collected_and_no_source(slate: Run, path: str) -> None:
    assert slate("create-checkpoint", "-l", "1ms", "-n", "short", path=path).code == 0
    assert slate("create-checkpoint", "-n", "long", path=path).out.count("\tnever\n") == 1
    marks = [line.endswith("(expired)") for line in slate("list-checkpoints", path=path).out.splitlines()]
    assert marks == [True, False]
    assert slate("create-checkpoint", "-s", "short", path=path).code == 2


def test_where_there_is_no_database_none_is_made(slate: Run, tmp_path: Path) -> None:
    missing = slate("create-checkpoint", path=str(tmp_path / "empty"))
    assert (missing.code, "slate put" in missing.err) == (2, True)
    assert not [*tmp_path.rglob("*.obj")]


def test_those_that_others_made_for_themselves_need_force(slate: Run, path: str) -> None:
    async def beside() -> None:
        async with slate_async.open(path) as database:
            [own] = await database.checkpoints.list()
            refused = await asyncio.to_thread(slate, "delete-checkpoint", "-i", str(own.id), path=path)
            assert (refused.code, "writer" in refused.err) == (2, True)
            forced = await asyncio.to_thread(slate, "delete-checkpoint", "--force", "-i", str(own.id), path=path)
            assert forced.code == 0

    asyncio.run(beside())
