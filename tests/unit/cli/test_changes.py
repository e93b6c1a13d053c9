"""``slate changes`` over the real engine on a local folder."""

from __future__ import annotations

import asyncio
from pathlib import Path

import slate_async
from tests.unit.cli.conftest import Run


async def with_range_deletes(path: str) -> None:
    """A row, a range delete with an end and one without."""
    async with slate_async.open(path) as db:
        await db.put(b"a", b"1")
        await db.delete_range(b"b", "c\xe9".encode())
        await db.delete_range(b"d", None)


def test_changes_come_as_they_happened(slate: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "db")
    slate("put", "a", "1", path=path)
    slate("put", "--hex", "ff00", "1b", path=path)
    slate("delete", "a", path=path)
    assert slate("changes", path=path).out == "1\tput\ta\t1\n2\tput\tb'\\xff\\x00'\tb'\\x1b'\n3\tdelete\ta\n"
    assert slate("changes", "--from-seq", "2", path=path).out == "3\tdelete\ta\n"
    assert slate("changes", "--from-seq", "now", path=path).err == "0 changes\n"
    assert slate("changes", "--until-seq", "1", "--keys-only", "--hex", path=path).out == "1\tput\t61\n"
    [put] = slate("changes", "--until-seq", "1", path=path, options=("--json",)).objects
    assert {name: put[name] for name in ("seq", "op", "key", "value")} == {
        "seq": 1,
        "op": "put",
        "key": "a",
        "value": "1",
    }
    assert put["create_time"].endswith("+00:00")
    assert slate("changes", "--from-seq", "9", path=path).code == 2
    assert slate("changes", "--from-seq", "then", path=path).code == 2


def test_range_deletes_have_both_ends(slate: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "db")
    asyncio.run(with_range_deletes(path))
    lines = "1\tput\ta\t1\n2\tdelete_range\tb\tc\xe9\n3\tdelete_range\td\n"
    assert slate("changes", path=path).out == lines
    assert slate("changes", "--keys-only", path=path).out == lines.replace("\ta\t1", "\ta")
    assert slate("changes", "--keys-only", "--hex", path=path).out.splitlines()[1] == "2\tdelete_range\t62\t63c3a9"
    for options in ((), ("--keys-only",)):
        [_, bounded, unbounded] = slate("changes", *options, path=path, options=("--json",)).objects
        assert (bounded["op"], bounded["key"], bounded["end"]) == ("delete_range", "b", "c\xe9")
        assert (unbounded["op"], unbounded["key"], unbounded["end"]) == ("delete_range", "d", None)
        assert "value" not in bounded | unbounded


def test_a_subscription_goes_on_where_it_was_left(slate: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "db")
    slate("put", "a", "1", path=path)
    assert slate("changes", "--subscription", "copy", path=path).out == "1\tput\ta\t1\n"
    slate("put", "a", "2", path=path)
    slate("put", "a", "3", path=path)
    slate("compact", "--full", path=path)
    assert slate("changes", "--subscription", "copy", path=path).out == "2\tput\ta\t2\n3\tput\ta\t3\n"
    assert slate("changes", "--subscription", "copy", path=path).out == ""
    assert slate("delete-checkpoint", "--id", "copy", path=path).code == 0
    assert slate("changes", "--subscription", "copy", "--from-seq", "2", path=path).out == "3\tput\ta\t3\n"
