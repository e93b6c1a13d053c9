"""load: formats, keys and values, bad rows, order, work in flight, being broken off."""

from __future__ import annotations

import datetime
import decimal
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slate_async.cli.load import BAD_ROWS_SHOWN, BATCH_ROWS
from slate_async.errors import FencedError
from tests.unit.cli.conftest import FakeDatabase, Run


def write(path: Path, text: str | bytes) -> str:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def test_csv_whole_row_as_json(slate: Run, database: FakeDatabase, tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", '\ufeffid,name\n1,Ann\n2,"Bo, ""B"""\n\n3,"two\nlines"\n')
    result = slate("load", file, "--key", "id", options=("--json",))
    nbytes = sum(len(key) + len(value) for key, value in database.rows.items())
    assert (result.code, result.objects) == (0, [{"loaded": 3, "bad_rows": 0, "bytes": nbytes}])
    assert {k: json.loads(v) for k, v in database.rows.items()} == {
        b"1": {"id": "1", "name": "Ann"},
        b"2": {"id": "2", "name": 'Bo, "B"'},
        b"3": {"id": "3", "name": "two\nlines"},
    }


def test_key_of_several_columns_and_value_column(slate: Run, database: FakeDatabase, tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", "country\tcity\tpeople\nDE\tUlm\t126000\n")
    keys = ("--key", "country", "--key", "city", "--key-separator", "/", "--key-prefix", "city/")
    assert slate("load", file, *keys, "--value", "people").code == 0
    assert database.rows == {b"city/DE/Ulm": b"126000"}


def test_every_bad_csv_row_is_reported_by_the_line_it_begins_on(
    slate: Run, database: FakeDatabase, tmp_path: Path
) -> None:
    body = b'id,v\n1,a\n"2\n2",b\n3\n4,b,c\n,d\n5,\xff\n6,"x"y\n7,g\n'
    rejects = tmp_path / "bad.jsonl"
    result = slate("load", write(tmp_path / "a.csv", body), "--key", "id", "--value", "v", "--rejects", str(rejects))
    assert result.code == 1
    assert database.rows == {b"1": b"a", b"2\n2": b"b", b"7": b"g"}
    entries = [json.loads(line) for line in rejects.read_text().splitlines()]
    assert [(e["line"], e["reason"].partition(":")[0]) for e in entries] == [
        (5, "1 fields where there are 2 columns"),
        (6, "3 fields where there are 2 columns"),
        (7, "key column 'id' is empty"),
        (8, "not UTF-8"),
        (9, "not CSV"),
    ]
    assert entries[1]["row"] == ["4", "b", "c"]
    for entry in entries:
        assert f"line {entry['line']}: " in result.err
    assert slate("load", str(tmp_path / "a.csv"), "--key", "id", "--allow-bad").code == 0


def test_bad_json_lines(slate: Run, database: FakeDatabase, tmp_path: Path) -> None:
    lines = [
        '{"id": 1, "v": {"b": [1, 2.5]}}',
        "[1]",
        "",
        '{"id": 2, "v": NaN}',
        '{"id": 3, "id": 4, "v": 1}',
        '{"v": 1}',
        '{"id": null, "v": 1}',
        '{"id": {}, "v": 1}',
        '{"id": 5}',
        '{"id": "\\ud800", "v": 1}',
        "[" * 100_000,
        '{"id": true, "v": "x"}',
        '{"id": 6, "v": "no newline"}',
    ]
    file = write(tmp_path / "a.jsonl", "\n".join(lines))
    result = slate("load", file, "--key", "id", "--value", "v")
    assert database.rows == {b"1": b'{"b":[1,2.5]}', b"true": b"x", b"6": b"no newline"}
    assert result.code == 1
    assert [int(x.split(":")[0][5:]) for x in result.err.splitlines()] == [2, 4, 5, 6, 7, 8, 9, 10, 11]


def test_parquet_types(slate: Run, database: FakeDatabase, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {
            "id": b"\x00\xff",
            "at": datetime.datetime(2024, 5, 6, 7, 8, 9, tzinfo=datetime.UTC),
            "price": decimal.Decimal("1.50"),
            "x": 0.5,
        },
        {"id": b"k2", "at": None, "price": None, "x": float("nan")},
        {"id": None, "at": None, "price": None, "x": None},
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    result = slate("load", str(tmp_path / "a.parquet"), "--key", "id")
    assert result.code == 1
    assert database.rows == {b"\x00\xff": b'{"id":"AP8=","at":"2024-05-06T07:08:09+00:00","price":"1.50","x":0.5}'}
    assert [line.split(":")[0] for line in result.err.splitlines()] == ["line 2", "line 3"]


def test_a_damaged_parquet_file_is_an_error(slate: Run, database: FakeDatabase, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [str(i) for i in range(3_000)]}), path, compression="none")
    body = bytearray(path.read_bytes())
    body[4:4000] = b"\xff" * 3996
    path.write_bytes(body)
    result = slate("load", str(path), "--key", "id")
    assert (result.code, "cannot be read" in result.err) == (2, True)
    path.write_bytes(b"id,v\n")
    result = slate("load", str(path), "--key", "id")
    assert (result.code, "is not Parquet" in result.err) == (2, True)


@pytest.mark.parametrize(
    ("name", "text", "arguments", "complaint"),
    [
        ("a.csv", "id,v\n1,2\n", ["--key", "nope"], "no column 'nope'; the file has id, v"),
        ("a.csv", "id,v\n1,2\n", ["--key", "id", "--value", "w"], "no column 'w'"),
        ("a.csv", "id,id\n1,2\n", ["--key", "id"], "column 'id' twice"),
        ("a.csv", "", ["--key", "id"], "is empty"),
        ("a.dat", "id\n1\n", ["--key", "id"], "--format"),
        ("a.csv", "id,v\n1,2\n", ["--key", "id", "--key", "v", "--key-separator", ""], "--key-separator"),
        ("a.csv", "id\n1\n", ["--key", "id", "--ttl", "-1"], "--ttl"),
        ("a.csv", "id\n1\n", [], "--key"),
    ],
)
def test_a_load_that_cannot_work_is_refused_before_the_database_is_taken_over(
    slate: Run, database: FakeDatabase, tmp_path: Path, name: str, text: str, arguments: list[str], complaint: str
) -> None:
    result = slate("load", write(tmp_path / name, text), *arguments)
    assert (result.code, complaint in result.err) == (2, True), result.err
    assert database.opened == []


def test_a_pipe_is_refused(slate: Run, database: FakeDatabase, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.csv")
    result = slate("load", str(tmp_path / "a.csv"), "--key", "id")
    assert (result.code, "not a regular file" in result.err) == (2, True)


def test_rejects_never_overwrite_the_loaded_file(slate: Run, database: FakeDatabase, tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "id\n1\n")
    assert slate("load", file, "--key", "id", "--rejects", file).code == 2
    assert slate("load", file, "--key", "id", "--rejects", "-").code == 2
    assert Path(file).read_text() == "id\n1\n"


def test_joined_keys_that_would_be_ambiguous_are_bad(slate: Run, database: FakeDatabase, tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "a,b\nx:y,z\nx,y:z\nx,y\n")
    result = slate("load", file, "--key", "a", "--key", "b")
    assert (result.code, list(database.rows)) == (1, [b"x:y"])
    assert "line 2: column 'a' holds the separator" in result.err


def test_keys_too_long_are_bad(slate: Run, database: FakeDatabase, tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", f"id\n{'x' * 65_536}\n{'x' * 65_535}\n")
    result = slate("load", file, "--key", "id")
    assert (result.code, len(database.rows)) == (1, 1)
    assert "line 2: the key has 65536 bytes" in result.err


def test_an_unclosed_quote_is_one_bad_row(slate: Run, database: FakeDatabase, tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", 'id,v\n1,a\n2,"never closed\n3,c\n')
    result = slate("load", file, "--key", "id")
    assert (result.code, list(database.rows)) == (1, [b"1"])
    assert "line 3: not CSV" in result.err


def test_order_and_work_in_flight(slate: Run, database: FakeDatabase, tmp_path: Path) -> None:
    rows = BATCH_ROWS * 7 + 3
    body = "id,v\n" + "".join(f"{i % 1000},{i}\n" for i in range(rows))
    result = slate(
        "load",
        write(tmp_path / "a.csv", body),
        "--key",
        "id",
        "--value",
        "v",
        "--concurrency",
        "3",
        options=("--json",),
    )
    assert result.objects[0]["loaded"] == rows
    assert database.confirmed == list(range(1, 9))
    assert max(database.in_flight) == 3
    assert database.rows[b"2"] == b"3002", "of two rows with one key the later wins"


def test_a_load_broken_off_says_what_is_durable(slate: Run, database: FakeDatabase, tmp_path: Path) -> None:
    body = "id\n" + "".join(f"{i}\n" for i in range(BATCH_ROWS * 5))
    database.durable_error, database.durable_error_from = FencedError("epoch 2 exists"), 3
    result = slate("load", write(tmp_path / "a.csv", body), "--key", "id", "--concurrency", "2")
    assert result.code == 5
    assert f"broken off: {BATCH_ROWS * 2:,} rows are durable" in result.err
    assert database.closed == 1


def test_many_bad_rows_do_not_flood_the_terminal(slate: Run, database: FakeDatabase, tmp_path: Path) -> None:
    body = "id,v\n" + "x\n" * 100
    result = slate("load", write(tmp_path / "a.csv", body), "--key", "id")
    assert len(result.err.splitlines()) == BAD_ROWS_SHOWN + 1
    assert "bad rows\t100" in result.out
