"""Damage to any object of a database is `CorruptionError` naming it, or changes no answer.

A small database of each kind is made whole, then damaged in one place, opened and read completely. Allowed: an error
of ours (`CorruptionError`, and where the damage looks like another writer's claim, `FencedError`); or exactly the
right answer. Never a wrong value, a missing or an extra key, an error of another kind, or a hang.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

import slate_async as slate
from slate_async.objectstore.local.store import LocalStore
from slate_async.objectstore.memory import MemoryObjects
from slate_async.objectstore.protocol import ObjectInfo, ObjectStore
from tests.engine import KINDS, Kind, abandon, contents, memory_store, open_db, runtime

Image = dict[str, tuple[ObjectInfo, bytes]]
SMALL = {"flush_interval_ms": 0, "l0_sst_bytes": 1 << 20, "block_bytes": 300, "flush_parallelism": 2}
DELTAS = {"manifest_full_every": 4}


@dataclass
class Whole:
    """A sound database: its objects, and what they hold."""

    kind: Kind
    metastore: str | None
    image: Image
    rows: dict[bytes, bytes]

    def objects(self) -> list[str]:
        return sorted(self.image)

    def objects_of(self, folder: str) -> list[str]:
        return [key for key in self.objects() if key.startswith(folder)]

    def store(self, key: str = "", data: bytes | None = None) -> ObjectStore:
        """A copy of the objects, ``key`` holding ``data`` instead, or missing."""
        objects = MemoryObjects()
        for name, (info, body) in self.image.items():
            if name == key and data is None:
                continue
            objects.objects[name] = (info, body if name != key or data is None else data)
        objects.objects = {
            name: (ObjectInfo(name, len(body), info.etag, info.last_modified_ms, info.metadata), body)
            for name, (info, body) in objects.objects.items()
        }
        objects.sorted_keys = sorted(objects.objects)
        objects.writes = 1_000_000
        return memory_store(objects)


async def make(kind: Kind, metastore: str | None, *, rows: int = 14) -> Whole:
    """A database with full and delta manifests, fences of three epochs, log objects before and behind them, L0 SSTs
    of several blocks, tombstones and expiry times."""
    objects = MemoryObjects()
    store = memory_store(objects)
    expected: dict[bytes, bytes] = {}
    for generation in range(3):
        db = await open_db(store, kind, metastore=metastore, **SMALL, **DELTAS)
        for number in range(rows):
            key, value = b"k%02d" % (number * (generation + 2) % 23), b"%d/%d " % (generation, number) * 4
            await db.put(key, value, ttl=None if number % 5 else 1e6, await_durable=number % 4 == 0)
            expected[key] = value
        gone = b"k%02d" % (generation * 3)
        await db.delete(gone)
        expected.pop(gone, None)
        await db.flush(l0=generation < 2)
        await db.put(b"tail %d" % generation, b"in the log")
        expected[b"tail %d" % generation] = b"in the log"
        if generation == 1:
            await abandon(db)
        else:
            await db.close()
    return Whole(kind, metastore, dict(objects.objects), dict(sorted(expected.items())))


@pytest.fixture(
    scope="module",
    params=[(kind, "put-if-absent") for kind in KINDS] + [(KINDS[0], "if-match")],
    ids=lambda param: f"{param[0]}-{param[1]}",
)
def whole(request: pytest.FixtureRequest) -> Whole:
    """A sound database of each kind, and one whose manifest is behind a pointer."""
    kind, metastore = request.param
    return asyncio.run(make(kind, None if metastore == "put-if-absent" else metastore))


async def judge(whole: Whole, store: ObjectStore, what: str, damaged: str) -> str:
    """Open ``store`` and read everything: ``"same"``, or the kind of error met. Fails on anything else."""
    try:
        async with asyncio.timeout(30):
            async with open_db(
                store,
                whole.kind,
                metastore=whole.metastore,
                create=False,
                takeover_deadline_ms=2000,
                retry_deadline_ms=1000,
                request_timeout_ms=1000,
                **SMALL,
            ) as db:
                found: list[object] = []
                for read in (_scan, _reverse, _gets, _many):
                    try:
                        found.append(await read(db, whole.rows))
                    except slate.CorruptionError as error:
                        found.append(error)
    except slate.CorruptionError as error:
        found = [error]
    except (slate.FencedError, slate.InvalidError, slate.UnavailableError) as error:
        return "InvalidError" if isinstance(error, slate.InvalidError) else type(error).__name__
    errors = [answer for answer in found if isinstance(answer, slate.CorruptionError)]
    for answer in found:
        assert answer in errors or answer == whole.rows, f"{what}: a wrong answer: {answer!r}"
    if not errors:
        return "same"
    for error in errors:
        assert error.object_name, what
    return "CorruptionError" if any(_names(error, damaged) for error in errors) else "another named"


def _names(error: slate.CorruptionError, key: str) -> bool:
    """Whether ``error`` points at the object ``key``; a manifest version may be named by its number."""
    if error.object_name == key:
        return True
    number = key.removeprefix("manifest/").split(".")[0]
    return number.isdigit() and error.object_name == f"manifest version {int(number)}"


async def _scan(db: slate.Db, rows: dict[bytes, bytes]) -> dict[bytes, bytes]:
    return await contents(db)


async def _reverse(db: slate.Db, rows: dict[bytes, bytes]) -> dict[bytes, bytes]:
    return dict(reversed([pair async for pair in db.scan(reverse=True)]))


async def _gets(db: slate.Db, rows: dict[bytes, bytes]) -> dict[bytes, bytes]:
    assert await db.get(b"not there") is None
    return {key: value for key in rows if (value := await db.get(key)) is not None}


async def _many(db: slate.Db, rows: dict[bytes, bytes]) -> dict[bytes, bytes]:
    values = await db.get_many(list(rows))
    return {key: value for key, value in zip(rows, values, strict=True) if value is not None}


def flipped(data: bytes, at: int, bits: int) -> bytes:
    return data[:at] + bytes([data[at] ^ bits]) + data[at + 1 :]


async def run(whole: Whole, damages: Iterator[tuple[str, str, bytes | None]]) -> dict[str, dict[str, int]]:
    """Judge each damage ``(what, key, data)``: how often each verdict, for each object."""
    verdicts: dict[str, dict[str, int]] = {}
    for what, key, data in damages:
        verdict = await judge(whole, whole.store(key, data), f"{what} of {key}", key)
        count = verdicts.setdefault(key, {})
        count[verdict] = count.get(verdict, 0) + 1
    return verdicts


def live(whole: Whole, key: str) -> bool:
    """Whether opening and reading everything must read this object in full: the newest manifest."""
    manifests = [name for name in whole.image if name.startswith("manifest/0")]
    return key == max(manifests)


async def test_the_sound_database_reads_right(whole: Whole) -> None:
    assert await judge(whole, whole.store(), "no damage", "") == "same"
    folders = {key.split("/")[0] for key in whole.image}
    wanted = {"manifest", "log"} | ({"sst"} if whole.kind.wal_enabled else set())
    assert folders >= wanted | ({"writer"} if whole.kind.log_protocol == "epoch_prefixed" else set())


@pytest.mark.timeout(7200)
async def test_every_flipped_byte(whole: Whole, full: bool, slice_seed: int) -> None:
    rng = random.Random(slice_seed)
    step = 1 if full else 127

    def damages() -> Iterator[tuple[str, str, bytes]]:
        for key in whole.objects():
            body = whole.image[key][1]
            for at in range(slice_seed % min(step, len(body) or 1), len(body), step):
                yield f"bit flipped in byte {at}", key, flipped(body, at, 1 << rng.randrange(8))
                if full:
                    yield f"byte {at} replaced", key, flipped(body, at, rng.randrange(1, 256))

    verdicts = await run(whole, damages())
    check_named(whole, verdicts)
    newest = next(key for key in verdicts if live(whole, key))
    assert set(verdicts[newest]) == {"CorruptionError"}


def check_named(whole: Whole, verdicts: dict[str, dict[str, int]]) -> None:
    """Damage inside one object is found in that object, and only as corruption."""
    for key, counts in verdicts.items():
        assert set(counts) <= {"same", "CorruptionError"}, (key, counts)


@pytest.mark.timeout(7200)
async def test_every_truncation(whole: Whole, full: bool, slice_seed: int) -> None:
    def damages() -> Iterator[tuple[str, str, bytes]]:
        for key in whole.objects():
            body = whole.image[key][1]
            lengths = range(len(body)) if full else {0, 1, len(body) // 2, len(body) - 1, slice_seed % len(body)}
            for length in sorted(lengths):
                yield f"first {length} of {len(body)} bytes", key, body[:length]
            yield "appended byte", key, body + b"\0"

    verdicts = await run(whole, damages())
    check_named(whole, verdicts)


@pytest.mark.timeout(7200)
async def test_every_swap_with_another_object(whole: Whole, full: bool, slice_seed: int) -> None:
    names = whole.objects()
    rng = random.Random(slice_seed)

    def damages() -> Iterator[tuple[str, str, bytes]]:
        for key in names:
            others = [name for name in names if name != key]
            for other in others if full else rng.sample(others, 2):
                yield f"content of {other}", key, whole.image[other][1]

    check_named(whole, await run(whole, damages()))


@pytest.mark.timeout(7200)
async def test_every_swap_with_another_database(whole: Whole) -> None:
    other = await make(whole.kind, whole.metastore, rows=9)

    def damages() -> Iterator[tuple[str, str, bytes]]:
        for key in whole.objects():
            if key in other.image:
                yield "content of the same object of another database", key, other.image[key][1]
            else:
                twin = min((name for name in other.image if name.split("/")[0] == key.split("/")[0]), default=None)
                if twin is not None:
                    yield f"content of {twin} of another database", key, other.image[twin][1]

    for key, counts in (await run(whole, damages())).items():
        # a register or pointer of another database may look like another writer's
        allowed = {"same", "CorruptionError", "another named", "FencedError", "InvalidError"}
        assert set(counts) <= allowed, (key, counts)


async def test_missing_objects(whole: Whole) -> None:
    """An object that vanished is an error or was not needed.

    Nothing refers to the newest manifest, nor to the last objects of a contiguous log, within the width of a flush
    window: objects missing there might never have been written."""
    tail = whole.objects_of("log/")[-2:] if whole.kind.log_protocol == "contiguous" else []

    def damages() -> Iterator[tuple[str, str, None]]:
        for key in whole.objects():
            if not key.startswith("manifest/") and key not in tail:
                yield "absence", key, None

    for key, counts in (await run(whole, damages())).items():
        assert set(counts) <= {"same", "CorruptionError", "another named"}, (key, counts)


@pytest.mark.timeout(7200)
async def test_damage_on_a_local_folder(tmp_path: object, full: bool, slice_seed: int) -> None:
    """The same on files: what a local store keeps beside the bytes may be damaged too."""
    from pathlib import Path

    assert isinstance(tmp_path, Path)
    rng = random.Random(slice_seed)
    whole = await make(KINDS[slice_seed % 4], None)
    store = LocalStore(tmp_path / "db", runtime())
    for key, (info, body) in whole.image.items():
        await store.put(key, body, metadata=info.metadata)
    await store.close()
    files = sorted(path for path in (tmp_path / "db").rglob("*.obj"))
    assert len(files) == len(whole.image)
    counts: dict[str, int] = {}
    for path in files:
        body = path.read_bytes()
        key = path.relative_to(tmp_path / "db").as_posix().removesuffix(".obj")
        for at in range(len(body)) if full else rng.sample(range(len(body)), 2):
            copy = tmp_path / "copy"
            _copy_tree(tmp_path / "db", copy)
            (copy / path.relative_to(tmp_path / "db")).write_bytes(flipped(body, at, 1 << rng.randrange(8)))
            damaged = LocalStore(copy, runtime())
            verdict = await judge(whole, damaged, f"byte {at}", key)
            await damaged.close()
            counts[verdict] = counts.get(verdict, 0) + 1
    assert set(counts) <= {"same", "CorruptionError"}
    assert counts["CorruptionError"] > 0


def _copy_tree(source: object, target: object) -> None:
    import shutil

    shutil.rmtree(target, ignore_errors=True)  # type: ignore[arg-type]
    shutil.copytree(source, target)  # type: ignore[arg-type]
