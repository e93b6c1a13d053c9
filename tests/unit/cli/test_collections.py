"""``slate collection create``, ``list``, ``append``, ``snapshot`` and ``listen``, over a local folder."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import slate_async
from slate_async.cli.collection_rows import UpdatesFile, rows_of
from slate_async.errors import InvalidError
from tests.unit.cli.conftest import Run


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith("SLATE_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


@pytest.fixture
def orders(slate: Run, path: str) -> str:
    """A folder with a collection of columns."""
    made = slate("collection", "create", "orders", "--column", "customer:string!", "--column", "total:int64", path=path)
    assert made.code == 0, made.err
    return path


def written(tmp_path: Path, name: str, text: str) -> str:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_collections_are_created_and_listed(slate: Run, path: str) -> None:
    options = ("--json",)
    [made] = slate("collection", "create", "pairs", "--time", "u64x2", path=path, options=options).objects
    created = made.pop("created")
    assert datetime.fromisoformat(created).tzinfo is not None
    assert made == {
        "name": "pairs",
        "state": "open",
        "life": 1,
        "time": "u64x2",
        "appends": "definite",
        "data": "bytes",
    }
    slate("collection", "create", "chain", "--appends", "compare", "--column", "n:int64!", path=path)
    assert slate("collection", "create", "pairs", "--time", "u64x2", path=path).code == 0
    found = slate("collection", "list", path=path, options=options).objects
    assert [shown["name"] for shown in found] == ["chain", "pairs"]
    assert (found[0]["appends"], found[0]["data"]) == ("compare", {"n": "int64!"})
    lines = slate("collection", "list", path=path).out.splitlines()
    assert [line.rpartition("\t")[0] for line in lines] == [
        "chain\topen\t1\tu64\tcompare\tn:int64!",
        "pairs\topen\t1\tu64x2\tdefinite\tbytes",
    ]
    assert lines[1].endswith(f"\t{created}")
    assert f"life 1 created {created}, version 0" in slate("collection", "inspect", "pairs", path=path).out
    other = slate("collection", "create", "pairs", path=path)
    assert (other.code, "with time 'u64x2', not 'u64'" in other.err) == (2, True)


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_a_file_is_appended_whole(form: str, slate: Run, orders: str, tmp_path: Path) -> None:
    if form == "csv":
        file = written(tmp_path, "o.csv", "customer,total,_time,_diff\nann,5,1,1\nbob,,2,2\nann,5,3,-1\n")
    elif form == "jsonl":
        keys = ("customer", "total", "_time", "_diff")
        rows = [("ann", 5, 1, 1), ("bob", None, 2, 2), ("ann", 5, 3, -1)]
        text = "".join(f"{json.dumps(dict(zip(keys, row, strict=True)))}\n" for row in rows)
        file = written(tmp_path, "o.jsonl", text)
    else:
        table = pa.table(
            {"customer": ["ann", "bob", "ann"], "total": [5, None, 5], "_time": [1, 2, 3], "_diff": [1, 2, -1]}
        )
        file = str(tmp_path / "o.parquet")
        pq.write_table(table, file)
    [done] = slate("collection", "append", "orders", file, "--upper", "10", path=orders, options=("--json",)).objects
    assert done == {"collection": "orders", "rows": 3, "lower": "0", "upper": "10"}
    assert slate("collection", "snapshot", "orders", "--as-of", "2", path=orders).out == "ann\t5\t1\nbob\t-\t2\n"
    now = slate("collection", "snapshot", "orders", path=orders, options=("--json",))
    assert now.objects == [{"customer": "bob", "total": None, "_diff": 2}]
    huge = slate("collection", "snapshot", "orders", "--limit", str(2**70), path=orders)
    assert (huge.code, huge.out) == (0, "bob\t-\t2\n")


def test_one_time_for_all_rows_ends_behind_it(slate: Run, orders: str, tmp_path: Path) -> None:
    file = written(tmp_path, "o.csv", "customer,total\nann,5\nbob,7\n")
    done = slate("collection", "append", "orders", file, "--at", "4", path=orders, options=("--json",))
    assert done.objects == [{"collection": "orders", "rows": 2, "lower": "0", "upper": "5"}]
    more = slate("collection", "append", "orders", file, "--at", "9", "--lower", "5", "--writer", "b", path=orders)
    assert more.code == 5  # writer b has come to 0 only
    again = slate("collection", "append", "orders", file, "--at", "4", "--lower", "0", path=orders)
    assert again.code == 0
    assert slate("collection", "snapshot", "orders", path=orders).out == "ann\t5\t1\nbob\t7\t1\n"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("o.csv", "customer,total,_time\nann,5,2\n", "o.csv has its own _time, and --at gives one"),
        (
            "o.jsonl",
            '{"customer":"ann"}\n{"customer":"bob","_time":2}\n',
            "line 2 has its own _time, and --at gives one",
        ),
    ],
)
def test_a_time_for_all_rows_beside_times_in_the_file_is_refused(
    slate: Run, orders: str, tmp_path: Path, name: str, text: str, said: str
) -> None:
    file = written(tmp_path, name, text)
    done = slate("collection", "append", "orders", file, "--at", "4", "--upper", "9", path=orders)
    assert (done.code, said in done.err) == (2, True), done.err
    assert "no controller yet" in slate("collection", "inspect", "orders", path=orders).out
    assert slate("collection", "snapshot", "orders", path=orders).code == 2  # nothing is in


def test_conditions_and_limits(slate: Run, orders: str, tmp_path: Path) -> None:
    file = written(tmp_path, "o.csv", "customer,total\nann,5\nbob,7\ncid,\n")
    slate("collection", "append", "orders", file, "--at", "0", path=orders)
    arguments = ("collection", "snapshot", "orders")
    assert slate(*arguments, "--where", "total > 5", path=orders).out == "bob\t7\t1\n"
    assert slate(*arguments, "--where", "total is null", path=orders).out == "cid\t-\t1\n"
    assert slate(*arguments, "--where", "total < 9", "--where", "customer != bob", path=orders).out == "ann\t5\t1\n"
    assert slate(*arguments, "--limit", "2", path=orders).out == "ann\t5\t1\nbob\t7\t1\n"


def test_bytes_are_shown_as_chosen(slate: Run, path: str, tmp_path: Path) -> None:
    slate("collection", "create", "raw", path=path)
    slate("collection", "append", "raw", written(tmp_path, "b.csv", "data\nzo\u00eb\n"), "--at", "0", path=path)
    assert slate("collection", "snapshot", "raw", path=path).out == "zo\u00eb\t1\n"
    assert slate("collection", "snapshot", "raw", "--hex", path=path).out == "7a6fc3ab\t1\n"
    assert slate("collection", "snapshot", "raw", "--base64", path=path, options=("--json",)).objects == [
        {"data": "em/Dqw==", "_diff": 1}
    ]


def test_listen_prints_deltas_until_a_frontier(slate: Run, orders: str, tmp_path: Path) -> None:
    for time in (0, 3, 6):
        file = written(tmp_path, "o.csv", f"customer,total\nc{time},{time}\n")
        slate("collection", "append", "orders", file, "--at", str(time), path=orders)
    arguments = ("collection", "listen", "orders", "--as-of", "0", "--until", "7")
    said = slate(*arguments, path=orders)
    assert said.code == 0
    lines = said.out.splitlines()
    assert [line for line in lines if not line.startswith("--")] == ["c3\t3\t3\t1", "c6\t6\t6\t1"]
    assert lines[-1] == "-- 7"
    deltas = slate(*arguments, "--snapshot", path=orders, options=("--json",)).objects
    assert (deltas[0]["lower"], deltas[-1]["upper"]) == ("0", "7")
    rows = [row for delta in deltas for row in delta["updates"]]
    assert [(row["customer"], row["_time"], row["_diff"]) for row in rows] == [("c0", 0, 1), ("c3", 3, 1), ("c6", 6, 1)]
    assert all(first["upper"] == second["lower"] for first, second in pairwise(deltas))


def test_closing_and_listening_to_the_end(slate: Run, orders: str, tmp_path: Path) -> None:
    file = written(tmp_path, "o.csv", "customer,total,_time\nann,1,2\n")
    slate("collection", "append", "orders", file, "--upper", "done", path=orders)
    assert slate("collection", "listen", "orders", "--as-of", "0", path=orders).out == "ann\t1\t2\t1\n-- done\n"
    assert slate("collection", "snapshot", "orders", path=orders).out == "ann\t1\t1\n"


def test_commands_leave_no_holds(slate: Run, orders: str, tmp_path: Path) -> None:
    file = written(tmp_path, "o.csv", "customer,total\nann,1\n")
    slate("collection", "append", "orders", file, "--at", "0", path=orders)
    slate("collection", "snapshot", "orders", path=orders)
    slate("collection", "listen", "orders", "--as-of", "0", "--until", "1", path=orders)
    assert slate("collection", "readers", "orders", path=orders).out == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("create", "No!"), "is no name of a collection"),
        (("create", "x", "--column", "total"), "'total' says no type"),
        (("create", "x", "--column", "total:money"), "'money' is no type"),
        (("create", "x", "--column", "_t:int64"), "'_t' is no name of a data column"),
        (("create", "x", "--time", "u32"), "'u32' is not one of"),
        (("snapshot", "order"), "there is no collection order"),
        (("snapshot", "orders"), "nothing is definite yet"),
        (("snapshot", "orders", "--as-of", "soon"), "--as-of: 'soon' is no frontier"),
        (("snapshot", "orders", "--as-of", "done"), "--as-of: 'done' is no time"),
        (("snapshot", "orders", "--as-of", "0", "--where", "total"), "--where: 'total' is no condition"),
        (("snapshot", "orders", "--as-of", "0", "--where", "sum > 5"), "columns are customer, total"),
        (("snapshot", "orders", "--as-of", "0", "--where", "sum is null"), "columns are customer, total"),
        (("snapshot", "orders", "--as-of", "0", "--where", "customer >"), "no value behind >; an empty text is ''"),
        (("snapshot", "orders", "--as-of", "0", "--where", "customer >  "), "no value behind >"),
        (("snapshot", "orders", "--as-of", "0", "--where", "total > much"), "--where: 'much' is no int64"),
        (("listen", "orders", "--as-of", "0", "--until", "x"), "--until: 'x' is no frontier"),
        (("append", "orders", "nothing.csv", "--at", "0"), "there is no file nothing.csv"),
        (("append", "orders", "FILE"), "say where the batch ends"),
        (("append", "orders", ".", "--at", "0", "--format", "csv"), ". is not a regular file"),
        (("append", "orders", "FILE", "--at", str(2**63)), "--at: 9223372036854775808 is no time"),
        (("append", "orders", "FILE", "--at", str(2**70)), "is no time: those are below 2**63"),
        (("append", "orders", "FILE", "--upper", "9", "--lower", "x"), "--lower: 'x' is no frontier"),
        (("append", "orders", "FILE", "--upper", "9"), "has no column _time; give --at TIME"),
        (("append", "orders", "FILE", "--at", "0", "--writer", "Me"), "'Me' is no name of a writer"),
    ],
)
def test_mistakes_end_with_exit_code_2(
    slate: Run, orders: str, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    file = written(tmp_path, "o.csv", "customer,total\nann,1\n")
    done = slate("collection", *(file if word == "FILE" else word for word in arguments), path=orders)
    assert (done.code, said in done.err) == (2, True), done.err


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("o.csv", "customer,total,_time\nann,1,1\nbob,x,2\n", "line 3: total is 'x', which is no int64"),
        ("o.csv", "customer,total,_time\nann,1,1\n,2\n", "line 3: 2 fields where there are 3 columns"),
        ("o.csv", "customer,total,_time\nann,1,\n", "line 2: _time is empty, which it may not be"),
        ("o.csv", "customer,total,_time\nann,1,-1\n", "line 2: _time is '-1', which is no uint64"),
        ("o.csv", "customer,total,_time\nann,1,9\n", "its time is at or beyond upper 9"),
        ("o.csv", "customer,sum,_time\nann,1,9\n", "the collection has no column sum"),
        ("o.jsonl", '{"customer":"ann","total":1.5,"_time":1}\n', "line 1: total is 1.5, which is no int64"),
        ("o.jsonl", '{"customer":"ann","total":true,"_time":1}\n', "line 1: total is True, which is no int64"),
        ("o.jsonl", '{"total":1,"_time":1}\n', "line 1: customer is missing"),
        ("o.jsonl", '{"customer":"ann","_time":1,"n":2}\n', "line 1: the collection has no column n"),
        ("o.jsonl", "[]\n", "line 1: not a JSON object"),
        ("o.parquet", "text", "o.parquet: "),
    ],
)
def test_of_a_file_with_a_bad_row_nothing_is_in(
    slate: Run, orders: str, tmp_path: Path, name: str, text: str, said: str
) -> None:
    done = slate("collection", "append", "orders", written(tmp_path, name, text), "--upper", "9", path=orders)
    assert (done.code, said in done.err) == (2, True), done.err
    found = slate("collection", "inspect", "orders", path=orders, options=("--json",)).objects
    assert (found[0]["reach"], found[0]["shards"]) == ("0", [])


def test_a_sum_that_does_not_fit_is_named_by_file_and_line(slate: Run, orders: str, tmp_path: Path) -> None:
    largest = 2**63 - 1
    near = f"customer,total,_time,_diff\nbob,1,1,5\nann,1,1,{largest}\nbob,2,1,5\nann,1,1,1\neve,1,1,1\n"
    far = f"customer,total,_time,_diff\nann,1,1,{largest}\n" + "bob,1,1,1\n" * 5_000 + "ann,1,1,1\n"
    for text, said in ((near, "o.csv, line 5: with it a sum of"), (far, "o.csv: orders: a sum of differences")):
        done = slate("collection", "append", "orders", written(tmp_path, "o.csv", text), "--upper", "9", path=orders)
        assert (done.code, said in done.err) == (2, True), done.err
        found = slate("collection", "inspect", "orders", path=orders, options=("--json",)).objects
        assert (found[0]["reach"], found[0]["shards"]) == ("0", [])


def test_a_collection_in_use_is_appended_to_beside_its_reader(slate: Run, orders: str, tmp_path: Path) -> None:
    file = written(tmp_path, "o.csv", "customer,total\nann,1\n")

    async def beside() -> None:
        async with slate_async.open_collections(orders) as lake, lake.collection("orders").reader() as reader:
            done = await asyncio.to_thread(slate, "collection", "append", "orders", file, "--at", "0", path=orders)
            assert done.code == 0
            async with await reader.snapshot(0) as snapshot:
                assert [row async for row in snapshot.rows()] == [(("ann", 1), 1)]

    asyncio.run(beside())


async def test_parquet_is_read_in_columns_of_the_collection(tmp_path: Path) -> None:
    file = tmp_path / "o.parquet"
    pq.write_table(pa.table({"n": pa.array([1, None], pa.int32()), "_time": [3, 4]}), file)
    schema = pa.schema([pa.field("n", pa.int64()), pa.field("_time", pa.uint64(), nullable=False)])
    schema = schema.append(pa.field("_diff", pa.int64(), nullable=False))
    found = UpdatesFile.named(file, None)
    [rows] = [rows async for rows in rows_of(found, schema, {"_diff": 1})]
    assert rows.updates.to_pylist() == [{"n": 1, "_time": 3, "_diff": 1}, {"n": None, "_time": 4, "_diff": 1}]
    required = pa.schema([pa.field("n", pa.int64(), nullable=False), *list(schema)[1:]])
    with pytest.raises(InvalidError, match=r"o\.parquet, row 2: n is null"):
        [rows async for rows in rows_of(found, required, {"_diff": 1})]


def test_rows_are_named_by_where_they_stand_in_the_file(slate: Run, orders: str, tmp_path: Path) -> None:
    """Not by where they stand in what is read at once: 4,096 rows of text, or 65,536 of Parquet."""

    def refused(file: str) -> str:
        done = slate("collection", "append", "orders", file, "--upper", "9", path=orders)
        assert done.code == 2, done.err
        return str(done.err)

    rows = [("ann", number, 1) for number in range(5_000)]
    for late, said in ((77, "its time is at or beyond upper 9"), (2**63, "_time is not below 2**63")):
        text = "".join(f"{name},{total},{time}\n" for name, total, time in [*rows, ("bob", 1, late)])
        found = refused(written(tmp_path, "o.csv", f"customer,total,_time\n\n{text}"))
        assert "o.csv, line 5003 (customer='bob', total=1, " in found
        assert said in found
    for name, column, values, said in (
        ("time", "_time", [1] * 66_000 + [99] + [1] * 10, "row 66001 (customer='ann', total='1', _time=99"),
        ("type", "total", ["1"] * 66_000 + ["x"] * 11, "row 66001: total is x, which is no int64"),
        ("null", "customer", ["ann"] * 66_010 + [None], "row 66011: customer is null, which it may not be"),
    ):
        columns = {"customer": ["ann"] * 66_011, "total": ["1"] * 66_011, "_time": [1] * 66_011, column: values}
        pq.write_table(pa.table(columns), file := tmp_path / f"{name}.parquet")
        assert f"{file}, {said}".replace("total='1'", "total=1") in refused(str(file))
    twice = pa.Table.from_arrays(
        [pa.array(["a"])] * 2 + [pa.array([1])] * 2, ["customer", "customer", "total", "_time"]
    )
    pq.write_table(twice, tmp_path / "twice.parquet")
    assert "twice.parquet has a column twice" in refused(str(tmp_path / "twice.parquet"))


def test_numbers_that_are_not_finite_come_and_go_as_json(slate: Run, path: str, tmp_path: Path) -> None:
    slate("collection", "create", "f", "--column", "x:float64", path=path)
    file = written(tmp_path, "f.jsonl", '{"x":"nan"}\n{"x":-1.5}\n{"x":"-inf"}\n')
    assert slate("collection", "append", "f", file, "--at", "0", path=path).code == 0
    found = slate("collection", "snapshot", "f", path=path, options=("--json",)).objects
    assert [row["x"] for row in found] == ["-inf", -1.5, "nan"]


def test_an_append_that_is_behind_says_how_to_repeat_it(slate: Run, orders: str, tmp_path: Path) -> None:
    file = written(tmp_path, "o.csv", "customer,total\nann,1\n")
    assert slate("collection", "append", "orders", file, "--at", "4", path=orders).code == 0
    done = slate("collection", "append", "orders", file, "--at", "3", path=orders)
    assert (done.code, "orders is written up to 5 already, and the batch would end at 4" in done.err) == (2, True)


def test_a_column_of_any_name_takes_conditions(slate: Run, path: str, tmp_path: Path) -> None:
    slate("collection", "create", "odd", "--column", "a:string", "--column", "a b:string", path=path)
    file = written(tmp_path, "o.csv", "a,a b\nx,\ny,z\n")
    assert slate("collection", "append", "odd", file, "--at", "0", path=path).code == 0

    def kept(condition: str) -> str:
        return str(slate("collection", "snapshot", "odd", "--where", condition, path=path).out)

    assert (kept("a b == ''"), kept("a b > ''"), kept("a == y")) == ("x\t\t1\n", "y\tz\t1\n", "y\tz\t1\n")
    assert kept("a  is  not null".replace("  ", " ")) == "x\t\t1\ny\tz\t1\n"


def test_an_empty_folder_is_said_to_be_one(slate: Run, path: str) -> None:
    found = slate("collection", "list", path=path)
    assert (found.code, found.out, f"there is no collection in {path}" in found.err) == (0, "", True)


def test_a_collection_without_its_register_is_listed(slate: Run, orders: str) -> None:
    found = json.loads(slate("collection", "list", "--json", path=orders).out)
    assert (found["name"], found["state"]) == ("orders", "open")
    [register] = Path(orders, "orders").glob("collection*")
    register.write_bytes(b"damaged")
    shown = slate("collection", "list", path=orders)
    assert shown.code == 0
    assert "damaged" in shown.out
    assert "orders: " in shown.err
    found = json.loads(slate("collection", "list", "--json", path=orders).out)
    assert set(found) == {"name", "state", "what"}
