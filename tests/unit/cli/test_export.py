"""``export``: what it writes is what was stored, and what `load` and `ingest` take again."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import slate_async
from tests.unit.cli.conftest import Run

ROWS = {b"a": b"1", b'quote"': b"line\nbreak", b"z,comma": "ü".encode(), b"empty": b""}


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database of `ROWS`."""
    for name in [name for name in os.environ if name.startswith("SLATE_")]:
        monkeypatch.delenv(name)
    place = tmp_path / "db"
    with slate_async.sync.open(place) as db:
        for key, value in ROWS.items():
            db.put(key, value)
        db.put(b"mortal", b"m", ttl=86_400)
    return str(place)


def rows_at(place: Path) -> dict[bytes, bytes]:
    """What is stored there."""
    with slate_async.sync.open_reader(place, pin=False) as reader:
        return dict(reader.scan())


def listing(folder: str) -> dict[str, tuple[int, int]]:
    """Every file with its size and time."""
    found = [Path(base) / name for base, _, names in os.walk(folder) for name in names]
    return {str(file): (file.stat().st_size, file.stat().st_mtime_ns) for file in found}


@pytest.mark.parametrize("notation", [(), ("--hex",), ("--base64",)])
@pytest.mark.parametrize("name", ["out.csv", "out.jsonl"])
def test_text_is_loaded_again(slate: Run, path: str, tmp_path: Path, name: str, notation: tuple[str, ...]) -> None:
    file = tmp_path / name
    assert slate("export", str(file), *notation, path=path).code == 0
    if notation:
        assert "626974" not in file.read_text()
        assert (b"a".hex() if notation == ("--hex",) else "YQ==") in file.read_text()
        return
    other = str(tmp_path / "other")
    assert slate("load", str(file), "--key", "key", "--value", "value", path=other).code == 0
    assert rows_at(tmp_path / "other") == ROWS | {b"mortal": b"m"}


def test_parquet_is_ingested_again_with_its_expiry(slate: Run, path: str, tmp_path: Path) -> None:
    file = tmp_path / "out.parquet"
    assert slate("export", str(file), "--expiry", "--json", path=path).objects == [{"file": str(file), "rows": 5}]
    expiry = dict(zip(*(pq.read_table(file).column(name).to_pylist() for name in ("key", "expire_time")), strict=True))
    assert [key for key, time in expiry.items() if time is not None] == [b"mortal"]
    with slate_async.sync.open(tmp_path / "other") as db:
        db.put(b"here", b"before")
    assert slate("ingest", str(file), "--exclusive", path=str(tmp_path / "other")).code == 0
    with slate_async.sync.open_reader(tmp_path / "other") as reader:
        row = reader.get_row(b"mortal")
        assert row is not None
        assert row.expire_time == expiry[b"mortal"].timestamp()


def test_bytes_that_are_no_text(slate: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "db")
    with slate_async.sync.open(path) as db:
        db.put(b"\xff", b"v")
    csv = tmp_path / "out.csv"
    result = slate("export", str(csv), path=path)
    assert (result.code, "give --hex or --base64" in result.err) == (2, True)
    assert [file.name for file in tmp_path.iterdir()] == ["db"]
    assert slate("export", "-", "--format", "jsonl", path=path).out == '{"key_base64":"/w==","value":"v"}\n'
    assert slate("export", "-", "--format", "csv", "--hex", path=path).out.splitlines() == ["key,value", "ff,76"]


@pytest.mark.parametrize("arguments", [("out.txt",), ("-",), ("-", "--format", "parquet"), ("out.parquet", "--hex")])
def test_what_cannot_be_written_is_refused(slate: Run, path: str, arguments: tuple[str, ...]) -> None:
    assert slate("export", *arguments, path=path).code == 2


def test_a_file_that_cannot_be_written_is_named(slate: Run, path: str, tmp_path: Path) -> None:
    for file, said in ((tmp_path / "none" / "out.csv", "No such file or directory"), (tmp_path, "is a folder")):
        for form in ("csv", "parquet"):
            refused = slate("export", str(file), "--format", form, path=path)
            assert (refused.code, f"{file}" in refused.err, said in refused.err) == (2, True, True), refused.err
            assert ".part" not in refused.err


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_what_is_no_plain_file_is_written_to_and_not_replaced(slate: Run, path: str, tmp_path: Path, form: str) -> None:
    pipe, link, file = tmp_path / "pipe", tmp_path / "link", tmp_path / "file"
    assert slate("export", str(file), "--format", form, path=path).code == 0
    whole = file.read_bytes()
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as reader:
        read = reader.submit(pipe.read_bytes)
        assert slate("export", str(pipe), "--format", form, path=path).code == 0
        assert read.result(60) == whole
    assert pipe.is_fifo()
    file.unlink()
    link.symlink_to(file)
    for _ in range(2):
        assert slate("export", str(link), "--format", form, path=path).code == 0
    assert (link.is_symlink(), file.read_bytes()) == (True, whole)


def test_a_part_of_the_keys(slate: Run, path: str) -> None:
    out = slate("export", "-", "--format", "csv", "--start", "b", "--limit", "1", path=path).out
    assert out.splitlines() == ["key,value", "empty,"]


def test_commands_that_read_write_nothing(slate: Run, path: str, tmp_path: Path) -> None:
    before = listing(path)
    for command in (("get", "a"), ("scan",), ("status",), ("count",), ("exists", "a"), ("export", "-", "--format=csv")):
        assert slate(*command, path=path).code == 0
    assert listing(path) == before
    assert slate("get", "a", path=str(tmp_path / "nothing")).code == 2
    assert not (tmp_path / "nothing").exists()


def test_now_is_a_time(slate: Run, path: str) -> None:
    assert slate("time-to-seq", "now", path=path).out == "5\n"
