"""Pinned bytes, taken apart by the pages of ``docs/format`` alone: no module of the codec is used."""

from __future__ import annotations

import struct
from pathlib import Path

import crc32c
import msgspec
import pyarrow as pa
import pytest
from pyarrow import ipc

from tests.support.collection_bytes import COLLECTION, ORDERS, OTHER_COLLECTION, TOKEN, UPDATES

GOLDEN = Path(__file__).parents[3] / "golden" / "collections"
KINDS = {
    "version": 1,
    "version-tombstone": 1,
    "hold": 2,
    "hold-critical": 2,
    "register": 3,
    "register-created": 3,
    "index": 4,
}


def test_a_pending_batch() -> None:
    data = (GOLDEN / "pending.bin").read_bytes()
    magic, version, kind, flags, database, append, epoch, nbytes, manifest, crc = struct.unpack(
        "<8sHHI16s16sQQQI", data[:76]
    )
    assert (magic, version, kind, flags, epoch, manifest) == (b"SLATEOBJ", 1, 4, 0, 0, 0)
    assert (database, append.hex()) == (COLLECTION.bytes, TOKEN)
    assert (nbytes, crc) == (len(data) - 80, crc32c.crc32c(data[80:]))
    assert struct.unpack("<I", data[76:80])[0] == crc32c.crc32c(data[:76])
    length, description_crc = struct.unpack("<II", data[80:88])
    described = data[88 : 88 + length]
    assert crc32c.crc32c(described) == description_crc
    assert msgspec.msgpack.decode(described) == {
        "diff_sum": 2**63 - 1,
        "lower": [3],
        "parts": [],
        "rows": 4,
        "token": TOKEN,
        "upper": [10],
        "writer": "relay-a",
    }
    start = (88 + length + 7) // 8 * 8
    assert data[88 + length : start] == bytes(start - 88 - length)
    assert ipc.open_stream(data[start:]).read_all() == pa.Table.from_batches([UPDATES])


def test_a_batch_in_parts() -> None:
    data = (GOLDEN / "pending-index.bin").read_bytes()
    length = struct.unpack_from("<I", data, 80)[0]
    body = msgspec.msgpack.decode(data[88 : 88 + length])
    assert body["parts"] == [[5, 400, 17], [4, 390, 2**32 - 1]]
    assert int.from_bytes(body["diff_sum"], "big", signed=True) == -(2**70)
    assert len(data) == (88 + length + 7) // 8 * 8


@pytest.mark.parametrize("name", KINDS)
def test_an_envelope(name: str) -> None:
    data = (GOLDEN / f"{name}.bin").read_bytes()
    assert struct.unpack("<8sHBB", data[:12]) == (b"SLATECOL", 1, KINDS[name], 0)
    assert struct.unpack("<I", data[12:16])[0] == crc32c.crc32c(data[16:], crc32c.crc32c(data[:12]))
    body = msgspec.msgpack.decode(data[16:])
    assert list(body) == sorted(body)


def body_of(name: str) -> dict[str, object]:
    found: dict[str, object] = msgspec.msgpack.decode((GOLDEN / f"{name}.bin").read_bytes()[16:])
    return found


def test_a_register() -> None:
    assert body_of("register") == {
        "appends": "definite",
        "data": "bytes",
        "life": 1,
        "state": "open",
        "times": "u64",
        "uuid": COLLECTION.bytes,
    }
    assert body_of("register-created") == {**body_of("register"), "created_ms": 1_790_000_000_123}
    columns = body_of("register-columns")
    assert (columns["uuid"], columns["times"], columns["data"]) == (OTHER_COLLECTION.bytes, "u64x2", "columns")
    assert ipc.read_schema(pa.py_buffer(columns["schema"])) == ORDERS.data


def test_a_hold() -> None:
    assert body_of("hold") == {
        "beat": 3,
        "lease_ms": 30_000,
        "nonce": TOKEN,
        "note": "worker 4",
        "revoked": False,
        "since": [40],
        "version": 7,
    }
    assert body_of("hold-critical") == {
        "beat": 0,
        "nonce": TOKEN,
        "note": "billing",
        "revoked": True,
        "since": [[0, 5], [3, 0]],
        "token": "invoice 7",
    }


def test_a_version() -> None:
    body = body_of("version")
    [oldest, second, newest] = body.pop("batches")  # type: ignore[misc]
    assert body == {
        "bound": [80],
        "deleted": False,
        "epoch": 2,
        "floor": 9,
        "fuel": [[second["name"], newest["name"], 64]],
        "last": TOKEN,
        "lower": [0],
        "since": [60],
        "token": "c" * 32,
        "upper": [120],
        "version": 12,
    }
    assert oldest["bounds"] == [[0], [100], [60]]
    assert int.from_bytes(oldest.pop("diff_sum"), "big", signed=True) == 2**64
    assert {name: oldest[name] for name in oldest if name not in ("bounds", "name")} == {
        "crc": 2**32 - 1000,
        "keys": 999,
        "nbytes": 20_000,
        "parts": 3,
        "rows": 1000,
        "times": 3,
    }


def test_an_index() -> None:
    body = body_of("index")
    edges = ipc.read_record_batch(
        pa.py_buffer(body["edges"]), pa.schema([pa.field("data", pa.binary(), nullable=False)])
    )
    assert edges.column(0).to_pylist() == [b"a", b"f", b"f", b"x"]
    assert body["parts"] == [
        [70, 1000, 5, [[60, 700, 1], [10, 200, 2], [0, 100, 3]]],
        [2, 300, 6, [[2, 250, 4], [0, 50, 5]]],
    ]
