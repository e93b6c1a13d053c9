"""Files in the folder of a lake that are none of a collection's: they are left alone, whatever they are called."""

from __future__ import annotations

from pathlib import Path

import pytest

import slate_async as slate
from slate_async.collections.lake import Lake

PLACES = [
    "",
    "orders",
    "orders/1",
    "orders/1/merged_areas",
    "orders/1/merged_batches",
    "orders/1/pending_batches",
    "orders/1/pending_batches/relay-a",
    "orders/1/readers",
    "orders/1/readers/somebody",
    "photos",
]


def put_foreign(lake: Path) -> dict[Path, bytes]:
    """Foreign files and folders in every folder of a lake; what each file holds."""
    for place in PLACES:
        folder = lake / place
        for made in ("folder", "no-file.obj", "Some Folder"):
            (folder / made).mkdir(parents=True)
            (folder / made / "deep.obj").write_bytes(b"deep")
        for name in ("notes.txt", "stray.obj", "empty.obj", ".hidden", "batch_0_1.obj", "v1.obj"):
            (folder / name).write_bytes(b"mine" if name != "empty.obj" else b"")
    return files_of(lake, "notes.txt", "deep.obj", "stray.obj")


def files_of(lake: Path, *names: str) -> dict[Path, bytes]:
    """What the files of these names hold."""
    return {path: path.read_bytes() for name in names for path in lake.rglob(name)}


async def use(lake: Lake) -> None:
    """Everything that lists."""
    assert [info.name for info in await lake.list()] == ["orders"]
    orders = lake.collection("orders")
    async with orders.writer("relay-a") as writer:
        upper = writer.upper.elements[0][0]
        await writer.append([(b"x", upper, 1)], upper=upper + 10)
    async with orders.reader() as reader:
        rows = [row async for row in (await reader.snapshot(as_of=upper)).rows()]
        assert rows == [(b"x", 1 + upper // 10)]
    async with orders.controller(background=False) as controller:
        await controller.settle()
    report = await orders.verify()
    assert report.clean
    assert (await orders.inspect()).upper == str(upper + 10)


@pytest.mark.parametrize("metastore", ["put-if-absent", "if-match"])
async def test_foreign_files_are_left_alone(tmp_path: Path, metastore: str) -> None:
    async with slate.open_collections(tmp_path, metastore=metastore, controller=False) as lake:
        async with await lake.create("orders"):
            await use(lake)
        foreign = put_foreign(tmp_path)
        await use(lake)
        report = await lake.collection("orders").verify()
        assert {"pending_batches/stray", "merged_areas/v1", "readers/somebody/notes"} - {
            note.object_name for note in report.notes
        } == {"readers/somebody/notes"}
        await lake.delete("orders")
        async with await lake.create("orders"):
            await use(lake)
        await lake.delete("orders")
    assert files_of(tmp_path, "notes.txt", "deep.obj", "stray.obj") == foreign
