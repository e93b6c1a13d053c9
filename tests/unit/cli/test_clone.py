"""``slate clone`` and ``slate destroy`` over the real engine on a local folder."""

from __future__ import annotations

from pathlib import Path

import pytest

import slate_async
from tests.unit.cli.conftest import Run


def test_a_clone_goes_its_own_way_and_its_parent_is_held_until_it_is_destroyed(slate: Run, tmp_path: Path) -> None:
    parent, child = str(tmp_path / "parent"), str(tmp_path / "child")
    assert slate("put", "k", "old", path=parent).code == 0
    assert slate("create-checkpoint", "--name", "then", path=parent).code == 0
    assert slate("put", "k", "new", path=parent).code == 0
    made = slate("clone", child, "--checkpoint", "then", path=parent, options=("--json",)).objects[0]
    assert (made["path"], made["parent"]) == (f"file://{child}", f"file://{parent}")
    assert slate("get", "k", path=child).out == "old\n"
    assert slate("put", "k", "mine", path=child).code == 0
    assert slate("get", "k", path=parent).out == "new\n"
    refused = slate("destroy", "--yes", path=parent)
    assert (refused.code, made["checkpoint_id"] in refused.err) == (2, True)
    assert slate("destroy", "--yes", path=child).code == 0
    listed = slate("list-checkpoints", path=parent, options=("--json",)).objects
    assert [checkpoint["name"] for checkpoint in listed if checkpoint["owner"] != "writer"] == ["then"]
    user = next(checkpoint["id"] for checkpoint in listed if checkpoint["name"] == "then")
    assert slate("delete-checkpoint", "-i", user, path=parent).code == 0
    assert slate("destroy", "--yes", path=parent).code == 0


def test_what_cannot_be_is_refused_in_words(slate: Run, tmp_path: Path) -> None:
    parent = str(tmp_path / "parent")
    assert "check --path and --metastore" in slate("destroy", "--yes", path=parent).err
    assert "check --path and --metastore" in slate("clone", str(tmp_path / "child"), path=parent).err
    assert slate("put", "k", "v", path=parent).code == 0
    for target, said in (
        (parent, "itself"),
        ("s3://bucket/child", "same kind of store"),
        ("memory://child", "same kind of store"),
    ):
        refused = slate("clone", target, path=parent)
        assert (refused.code, said in refused.err) == (2, True), refused.err
    assert "there is no checkpoint" in slate("clone", str(tmp_path / "child"), "-s", "nightly", path=parent).err


def test_softly_destroyed_it_is_closed_and_gc_removes_it(slate: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "db")
    assert slate("put", "k", "v", path=path).code == 0
    assert slate("destroy", "--yes", "--soft", "--json", path=path).objects == [{"destroyed": True, "removed": False}]
    assert "destroyed" in slate("get", "k", path=path).err
    assert slate("destroy", "--yes", path=path).code == 0
    assert slate("destroy", "--yes", "--json", path=path).objects == [{"destroyed": True, "removed": True}]
    gone = slate("get", "k", path=path)
    assert (gone.code, "destroyed" in gone.err, "create=True" in gone.err) == (2, True, False)
    assert slate("put", "k", "again", path=path).code == 0
    assert slate("get", "k", path=path).out == "again\n"


def test_a_database_with_a_writer_is_destroyed_only_with_fence(slate: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "db")
    with slate_async.sync.open(path) as db:
        db.put(b"k", b"v")
        refused = slate("destroy", "--yes", path=path)
        assert (refused.code, "a writer of epoch 1 lives" in refused.err, "--fence" in refused.err) == (2, True, True)
        assert db.get(b"k") == b"v"
        assert slate("destroy", "--soft", "--yes", path=path).code == 2
        db.put(b"k", b"w")
        assert slate("destroy", "--yes", "--fence", path=path).code == 0
        with pytest.raises(slate_async.FencedError):
            db.put(b"k", b"x")


def test_a_closed_database_and_one_that_is_destroyed_softly_have_no_writer(slate: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "db")
    slate_async.sync.open(path).close()
    assert slate("destroy", "--soft", "--yes", path=path).code == 0
    assert slate("destroy", "--yes", path=path).code == 0
