"""``slate collection inspect``, ``readers``, ``expire``, ``controller``, ``gc``, ``verify`` and ``delete``."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import slate_async
from slate_async.cli.collection_drawing import bar, draw, garbage, size
from slate_async.cli.output import Output
from slate_async.collections.overview.views import GarbageView, HoldView, LayerBatch, Overview, Shard
from tests.unit.cli.conftest import Run

OBJECT = ".obj"
"""What the file of an object ends in."""


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith("SLATE_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def path(slate: Run, tmp_path: Path) -> str:
    """A folder with a collection of bytes in which something is pending."""
    found = str(tmp_path / "lake")
    assert slate("collection", "create", "orders", path=found).code == 0
    file = tmp_path / "rows.csv"
    file.write_text("data,_time\nann,1\nbob,2\n", encoding="utf-8")
    assert slate("collection", "append", "orders", str(file), "--upper", "5", path=found).code == 0
    return found


def objects_of(path: str, part: str) -> list[Path]:
    return [file for file in Path(path).rglob("*") if file.is_file() and part in str(file)]


def test_gc_takes_in_and_deletes_what_is_pending(slate: Run, path: str) -> None:
    assert len(objects_of(path, "pending_batches")) == 1
    looked = slate("collection", "gc", "orders", "--dry-run", path=path, options=("--json",)).objects
    assert looked[-1]["dry_run"] is True
    assert len(objects_of(path, "pending_batches")) == 1
    [done] = slate("collection", "gc", "orders", path=path, options=("--json",)).objects
    assert (done["upper"], done["since_held_by"], done["floor_held_by"]) == ("5", [], [])
    assert objects_of(path, "pending_batches") == []
    assert len(objects_of(path, "merged_batches")) == 1
    assert slate("collection", "snapshot", "orders", path=path).out == "ann\t1\nbob\t1\n"


def test_a_dry_run_says_what_would_go_and_why(slate: Run, path: str) -> None:
    slate("collection", "gc", "orders", path=path)
    left = "merged_batches/batch_" + "0" * 20 + "_" + "0" * 19 + "5." + "0" * 10 + "." + "ab" * 16
    shutil.copy(objects_of(path, "merged_batches")[0], Path(path) / "orders/1" / f"{left}{OBJECT}")
    [found, _] = slate("collection", "gc", "orders", "--dry-run", path=path, options=("--json",)).objects
    assert found == {"collection": "orders", "key": left, "why": "no version that is needed names it"}
    lines = slate("collection", "gc", "orders", "--dry-run", path=path).out.splitlines()
    assert lines[0] == f"{left}\tno version that is needed names it"
    assert objects_of(path, left)


def test_inspect_shows_layers_shards_and_holds(slate: Run, path: str) -> None:
    async def beside() -> None:
        async with slate_async.open_collections(path) as lake, lake.collection("orders").reader("view"):
            [found] = (
                await asyncio.to_thread(slate, "collection", "inspect", "orders", path=path, options=("--json",))
            ).objects
            assert (found["reach"], found["upper"], found["shards"][0]["writer"]) == ("5", "0", "main")
            [hold] = found["holds"]
            assert (hold["note"], hold["since"]) == ("view", "0")
            said = (await asyncio.to_thread(slate, "collection", "inspect", "orders", path=path)).out
            assert "orders: definite, times u64, life 1 created 20" in said
            assert ", version 0, no controller yet" in said
            assert "main\t5\t1\t" in said
            assert "\tview\t" in said
            line = (await asyncio.to_thread(slate, "collection", "readers", "orders", path=path)).out
            assert line.split("\t")[:4] == [hold["reader"], "view", "0", "0"]
            expired = await asyncio.to_thread(
                slate, "collection", "expire", "orders", hold["reader"], path=path, options=("--json",)
            )
            assert expired.objects == [{"collection": "orders", "reader": hold["reader"], "expired": True}]
            again = await asyncio.to_thread(slate, "collection", "expire", "orders", hold["reader"], path=path)
            assert again.code == 0
            line = (await asyncio.to_thread(slate, "collection", "readers", "orders", path=path)).out
            assert line.rstrip().endswith("revoked")

    asyncio.run(beside())


def test_verify_is_clean_and_then_says_what_is_wrong(slate: Run, path: str) -> None:
    slate("collection", "gc", "orders", path=path)
    slate("collection", "create", "other", path=path)
    found = slate("collection", "verify", path=path, options=("--json",))
    assert (found.code, [(shown["name"], shown["clean"]) for shown in found.objects]) == (
        0,
        [("orders", True), ("other", True)],
    )
    said = slate("collection", "verify", "orders", path=path)
    assert "orders: all good: nothing is wrong" in said.err
    [merged] = objects_of(path, "merged_batches")
    data = bytearray(merged.read_bytes())
    data[60] ^= 1
    merged.write_bytes(data)
    broken = slate("collection", "verify", path=path, options=("--json",))
    assert (broken.code, [shown["clean"] for shown in broken.objects]) == (6, [False, True])
    [finding] = broken.objects[0]["findings"]
    assert finding["object_name"] == str(merged.relative_to(Path(path) / "orders/1")).removesuffix(OBJECT)
    told = slate("collection", "verify", "orders", path=path)
    assert (told.code, "the checksum does not match" in told.out) == (6, True)


def test_verify_of_a_folder_without_collections_is_a_mistake(slate: Run, tmp_path: Path) -> None:
    said = slate("collection", "verify", path=str(tmp_path / "wrong"))
    assert (said.code, said.err) == (2, f"slate: there is no collection in {tmp_path / 'wrong'}\n")


def test_a_lost_register_is_named(slate: Run, path: str) -> None:
    (Path(path) / f"orders/collection{OBJECT}").unlink()
    said = slate("collection", "snapshot", "orders", path=path)
    assert (said.code, "the register of the collection orders is missing" in said.err) == (4, True), said.err


def test_a_damaged_register_is_a_finding(slate: Run, path: str) -> None:
    (Path(path) / f"orders/collection{OBJECT}").write_bytes(b"x" * 40)
    found = slate("collection", "verify", "orders", path=path, options=("--json",))
    assert (found.code, found.objects[0]["clean"]) == (6, False)


@pytest.mark.parametrize("data", [b"x" * 40, b""])
def test_one_damaged_register_is_a_finding_beside_the_other_collections(slate: Run, path: str, data: bytes) -> None:
    for name in ("another", "zebra"):
        slate("collection", "create", name, path=path)
    (Path(path) / f"orders/collection{OBJECT}").write_bytes(data)
    found = slate("collection", "verify", path=path, options=("--json",))
    shown = {report["name"]: report["clean"] for report in found.objects}
    assert (found.code, shown) == (6, {"another": True, "orders": False, "zebra": True})


def test_a_damaged_hold_is_shown_and_can_be_expired(slate: Run, path: str) -> None:
    async def pinned() -> None:
        async with slate_async.open_collections(path) as lake:
            await lake.collection("orders").critical("pin")

    asyncio.run(pinned())
    (Path(path) / f"orders/1/readers/pin/hold{OBJECT}").write_bytes(b"damaged")
    assert slate("collection", "readers", "orders", path=path).out.rstrip().endswith("damaged: everything")
    said = slate("collection", "inspect", "orders", path=path)
    assert (said.code, "expire_reader('pin')" in said.out) == (0, True)
    assert "garbage: none is collected while a hold is damaged" in said.out
    kept = slate("collection", "gc", "orders", path=path, options=("--json",))
    assert (kept.code, kept.objects[-1]["since_held_by"], kept.objects[-1]["upper"]) == (0, ["pin"], "5")
    refused = slate("collection", "delete", "orders", path=path)
    assert (refused.code, "pin (damaged)" in refused.err) == (5, True)
    assert slate("collection", "expire", "orders", "pin", path=path).code == 0
    assert slate("collection", "verify", "orders", path=path).code == 0
    assert slate("collection", "delete", "orders", path=path).code == 0


def test_delete_is_refused_while_a_reader_holds_the_collection(slate: Run, path: str) -> None:
    async def beside() -> None:
        async with slate_async.open_collections(path) as lake, lake.collection("orders").reader("view"):
            refused = await asyncio.to_thread(slate, "collection", "delete", "orders", path=path)
            assert (refused.code, "hold" in refused.err) == (5, True), refused.err
            forced = await asyncio.to_thread(slate, "collection", "delete", "orders", "--force", path=path)
            assert forced.code == 0, forced.err

    asyncio.run(beside())
    assert slate("collection", "list", path=path, options=("--json",)).objects[0]["state"] == "deleted"
    missing = slate("collection", "snapshot", "orders", path=path)
    assert (missing.code, "was deleted" in missing.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("inspect", "other"), "there is no collection other"),
        (("expire", "orders", "nobody"), "orders has no reader nobody"),
        (("expire", "orders", "No!"), "is no name of a reader"),
        (("controller", "other"), "there is no collection other"),
        (("gc", "other"), "there is no collection other"),
        (("verify", "other"), "there is no collection other"),
        (("delete", "other"), "there is no collection other"),
    ],
)
def test_mistakes_end_with_exit_code_2(slate: Run, path: str, arguments: tuple[str, ...], said: str) -> None:
    done = slate("collection", *arguments, path=path)
    assert (done.code, said in done.err) == (2, True), done.err


def test_a_folder_has_to_be_named(slate: Run) -> None:
    done = slate("collection", "list", path=None)
    assert (done.code, "which folder of collections?" in done.err) == (2, True)


async def controlling(path: str) -> asyncio.subprocess.Process:
    """``slate collection controller`` as a process."""
    command = ["-m", "slate_async.cli", "--path", path, "collection", "controller"]
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(sys.executable, *command, stdout=pipe, stderr=pipe)


async def test_the_controller_runs_until_it_is_terminated(path: str) -> None:
    process = await controlling(path)
    assert process.stdout is not None
    assert process.stderr is not None
    async with asyncio.timeout(60):
        assert await process.stdout.readline() == b"orders: controller of epoch 1\n"
        async with slate_async.open_collections(path) as lake:
            upper = ""
            while upper != "5":
                upper = (await lake.collection("orders").inspect()).upper
        process.send_signal(signal.SIGTERM)
        assert await process.stderr.read() == b"controlling collections; Ctrl-C ends it\nterminated\n"
        assert await process.wait() == 143


async def test_the_controller_says_that_another_one_took_over(path: str) -> None:
    process = await controlling(path)
    assert process.stdout is not None
    async with asyncio.timeout(60):
        await process.stdout.readline()
        async with slate_async.open_collections(path) as lake, lake.collection("orders").controller() as other:
            assert other.epoch == 2
            async with lake.collection("orders").writer() as writer:
                await writer.append([], upper=9)
            assert await process.stdout.readline() == b"orders: no longer its controller\n"
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 143


OVERVIEW = Overview(
    name="orders",
    life=1,
    time="u64",
    appends="definite",
    version=7,
    epoch=2,
    deleted=False,
    lower="0",
    upper="120",
    reach="130",
    since="60",
    bound="80",
    floor=5,
    retained=2,
    rows=1050,
    nbytes=3 << 20,
    layers=(
        LayerBatch("0", "100", "60", 10, 1000, 900, 4, 3 << 20, 0, 64),
        LayerBatch("100", "120", "0", 6, 50, 50, 9, 900, 0, 0),
    ),
    shards=(Shard("a", 2, 400, "130", 0), Shard("b", 1, 100, "120", 1)),
    holds=(
        HoldView("r1", "view", 5, "60", 60_000, 2_400, False, True, True),
        HoldView("billing", "", None, "100", None, 900, False, False, False),
        HoldView("r2", "", 4, "0", 500, 900, True, False, False),
    ),
    garbage=GarbageView(True, 1, 2, 2048, 1, 3, 4),
)


def test_the_drawing(capsys: pytest.CaptureFixture[str]) -> None:
    draw(Output(as_json=False), OVERVIEW)
    assert capsys.readouterr().out.splitlines() == [
        "orders: definite, times u64, life 1, version 7, epoch 2",
        "lower 0 ≤ since 60 ≤ bound 80; upper 120, readable to 130",
        "1050 updates merged, 3.0 MiB; versions from 5 on are kept, 2 besides the head",
        "",
        "layers, oldest first:",
        "layer\tfrom\tto\tcompacted to\tupdates\tbytes\tdata\ttimes\tfuel\t",
        "10\t0\t100\t60\t1,000\t3.0 MiB\t900\t4\t64\t" + "█" * 24,
        "6\t100\t120\t0\t50\t900 B\t50\t9\t-\t█",
        "",
        "pending beyond that, by writer:",
        "writer\treaches\tbatches\tbytes\tbehind a gap\t",
        "a\t130\t2\t400 B\t0\t" + "█" * 24,
        "b\t120\t1\t100 B\t1\t" + "█" * 6,
        "",
        "holds:",
        "reader\tnote\tversion\tsince\tlease\trenewed\tkeeps",
        "r1\tview\t5\t60\t60 s\t2 s ago\tsince, floor",
        "billing\t\t-\t100\tcritical\t1 s ago\t-",
        "r2\t\t4\t0\t0.5 s\t1 s ago\trevoked",
        "",
        "garbage: 1 merged object, 2 pending objects and 3 versions, 2.0 KiB; 1 merged object of a merge that goes on"
        " or was given up; 4 objects that do not belong here",
    ]


def test_bars_sizes_and_unknown_garbage() -> None:
    assert [bar(value, 100) for value in (0, 1, 100)] == ["", "█", "█" * 24]
    assert bar(5, 0) == ""
    assert [size(nbytes) for nbytes in (0, 1023, 1024, 5 << 20, 3 << 42)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "5.0 MiB",
        "12288.0 GiB",
    ]
    assert "not known" in garbage(replace(OVERVIEW, garbage=GarbageView(False)))
