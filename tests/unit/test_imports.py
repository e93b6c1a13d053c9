"""The core does without every optional package: importing it, and working on memory and on a folder."""

from __future__ import annotations

import tomllib
import urllib.request
import uuid

import pytest

from tests.support.interpreter import ROOT, run

OPTIONAL = (
    *("aioboto3", "aiobotocore", "aiohttp", "boto3", "botocore", "obstore"),
    *("rich", "typer", "click", "uvloop", "moto", "slatedb", "trio"),
)
"""Heavy ones, imported where they are needed; lz4, a small one, is imported where it is installed."""
REPORT = "import sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
ENGINE = "import slate_async; slate_async.open, slate_async.sync"
STORY = """
import asyncio, sys, tempfile, slate_async as slate

async def story(path):
    async with slate.open(path) as db:
        await db.put(b"k", b"v")
        await db.flush(l0=True)
        assert [row async for row in db.scan()] == [(b"k", b"v")]

with tempfile.TemporaryDirectory() as folder:
    asyncio.run(story(folder))
asyncio.run(story("memory://imports"))
"""
WITHOUT = f"""
import sys
for name in {(*OPTIONAL, "lz4")!r}:
    sys.modules[name] = None  # as if it were not installed
"""


@pytest.mark.parametrize("code", [ENGINE, "import metastores.factories", STORY], ids=["engine", "metastores", "story"])
def test_nothing_optional_is_imported(code: str) -> None:
    imported = run(f"{code}\n{REPORT}")
    assert "metastores" in imported
    assert set(imported).isdisjoint(OPTIONAL)


LONG_STORY = """
import asyncio, sys, tempfile, slate_async as slate

async def write(db):
    for part in range(3):
        batch = slate.WriteBatch()
        for number in range(500):
            batch.put(b"k%d" % (number * (part + 1)), b"v%d" % part, ttl=60 if number % 2 else None)
            batch.delete(b"k%d" % (number + 7))
        await db.write(batch)
        await db.flush(l0=part != 1)

async def story(path):
    async with slate.open(path) as db, slate.open_reader(path) as reader:
        await write(db)
        assert await db.get(b"k998") is not None and [row async for row in db.scan(b"k1", reverse=True)]
        await db.get_many([b"k%d" % number for number in range(0, 2000, 3)])
        await db.compact(full=True)
        await db.row_statistics()
        await reader.refresh()
        assert [batch async for batch in reader.scan(b"k2").batches()]
        async with db.changes(from_seq=0, until_seq=db.status().last_seq) as feed:
            assert [change async for change in feed]
    async with slate.open_admin(path) as admin:
        assert (await admin.verify()).clean

with tempfile.TemporaryDirectory() as folder:
    asyncio.run(story(folder))
"""
"""Reads, writes, compacts and follows, in a folder."""


COLLECTION = """
from slate_async.collections.core.consolidate import consolidate
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.merging import merge
from slate_async.collections.core.slices import slices_of
from slate_async.collections.core.times import TimeKind
from slate_async.collections.core.updates import UpdateSchema

schema = UpdateSchema.of_bytes(TimeKind.U64)
updates = consolidate(schema.batch([(b"%d" % (n % 90), n, 1) for n in range(200)]), schema)
merged = list(merge([slices_of(updates, 64), [schema.empty()]], schema, Frontier([(300,)])))
assert sum(map(len, merged)) == 90 and schema.batch(merged[0]).equals(merged[0])
"""
"""Updates are taken, sorted, merged."""


LAKE = """
import asyncio, tempfile
import numpy as np, pyarrow as pa
import slate_async as slate
from slate_async.codec.arrays import number_array

def batch(time):
    numbers = np.arange(200)
    nulls = pa.py_buffer(np.packbits(numbers % 7 > 0, bitorder="little"))
    columns = [
        pa.Array.from_buffers(pa.int64(), 200, [nulls, pa.py_buffer(numbers % 7)]),
        pa.Array.from_buffers(pa.float64(), 200, [nulls, pa.py_buffer(numbers / 3)]),
        number_array(np.full(200, time, np.uint64)),
        number_array(numbers % 2 * 2 - 1),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["n", "x", "_time", "_diff"])

async def story(path):
    schema = pa.schema([("n", pa.int64()), ("x", pa.float64())])
    async with slate.open_collections(path) as lake:
        reader = await lake.create("rows", data=schema)
        rows = lake.collection("rows")
        async with rows.writer() as writer, rows.controller() as controller:
            for time in range(4):
                await writer.append(batch(time), upper=time + 1)
            async with writer.batch(upper=5) as large:
                await large.add(batch(4))
            async with await reader.snapshot(4) as snapshot:
                assert (await snapshot.to_arrow()).num_rows
                assert [row async for row in snapshot.rows()]
            await writer.append([], upper=slate.DONE)
            async for delta in reader.subscribe(as_of=1):
                await reader.downgrade_since(delta.upper)
            await controller.settle()
        assert (await rows.verify()).clean
        await rows.inspect()

with tempfile.TemporaryDirectory() as folder:
    asyncio.run(story(folder))
"""
"""All roles of a collection whose columns may be null."""


@pytest.mark.parametrize(
    "code",
    ["import slate_async.cli.app", LONG_STORY, COLLECTION, LAKE],
    ids=["commands", "story", "collection", "lake"],
)
def test_pandas_is_not_imported_by_the_engine(code: str) -> None:
    pytest.importorskip("pandas")
    assert "pandas" not in run(f"{code}\n{REPORT}")


def test_spark_comes_when_it_is_asked_for() -> None:
    pytest.importorskip("pyspark")
    assert "pyspark" not in run(f"{ENGINE}\n{REPORT}")
    assert "pyspark" in run(f"from slate_async import spark; spark.read\n{REPORT}")


def test_the_story_runs_where_nothing_optional_is_installed() -> None:
    run(WITHOUT + STORY)


def test_the_extra_s3_is_obstore_alone_and_a_database_on_s3_needs_no_more(
    s3_endpoint: str, aws_environment: object
) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert [line.partition(">=")[0] for line in extras["s3"]] == ["obstore"]
    without = WITHOUT.replace("'obstore'", "'lz4'")
    assert without != WITHOUT
    bucket = f"obstore-alone-{uuid.uuid4().hex}"
    urllib.request.urlopen(urllib.request.Request(f"{s3_endpoint}/{bucket}", method="PUT"), timeout=30).close()
    place = f"s3://{bucket}/db?endpoint_url={s3_endpoint}&region=us-east-1"
    story, _, _ = STORY.partition("with tempfile")
    run(f"{without}{story}asyncio.run(story({place!r}))")


def test_a_place_whose_package_is_missing_is_refused_with_the_name_of_the_extra() -> None:
    code = """
import asyncio, slate_async as slate

async def refused(path, **more):
    try:
        await slate.open(path, **more)
    except slate.InvalidError as error:
        print(*[word for word in str(error).split() if "slate-async[" in word])
    else:
        raise AssertionError("opened without its package")

async def main():
    for scheme in ("s3", "az", "gs"):
        await refused(f"{scheme}://bucket/db")
    await refused("memory://db", metastore="dynamodb://table?region=us-east-1")

asyncio.run(main())
"""
    words = [word.strip(".,;:'\"()`") for word in run(WITHOUT + code)]
    assert words == ["slate-async[s3]", "slate-async[azure]", "slate-async[gcs]", "slate-async[dynamodb]"]


ON_WINDOWS = """
import os, sys
for name in ("fcntl", "resource", "termios", "pwd", "grp"):
    sys.modules[name] = None
for name in ("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "preadv", "register_at_fork", "fork"):
    if hasattr(os, name):
        delattr(os, name)
"""
"""What Windows lacks; enough to see that nothing of it is needed but for a local folder."""


def test_without_posix_a_local_folder_is_refused_in_one_line_and_the_rest_works() -> None:
    code = """
import asyncio, tempfile, slate_async as slate
slate.open  # with all it imports

async def main():
    sys.platform = "win32"
    async with slate.open("memory://windows") as db:
        await db.put(b"k", b"v")
        assert await db.get(b"k") == b"v"
    with tempfile.TemporaryDirectory() as folder:
        for url in (folder, "file://" + folder):
            try:
                await slate.open(url)
            except slate.InvalidError as error:
                print(str(error).count("file:// does not work on win32"), str(error).count(chr(10)))

asyncio.run(main())
"""
    imports = "import asyncio, subprocess, tempfile\n"  # the standard library's own choices by system come first
    assert run(imports + ON_WINDOWS + code) == ["1", "0", "1", "0"]


def test_the_core_requires_no_optional_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = {name for line in project["dependencies"] for name in [line.partition(">=")[0].strip().lower()]}
    assert required.isdisjoint({*OPTIONAL, "lz4"})
    extras = " ".join(line for lines in project["optional-dependencies"].values() for line in lines)
    for name in ("aioboto3", "aiobotocore", "aiohttp", "botocore", "obstore", "rich", "typer", "lz4"):
        assert name in extras
