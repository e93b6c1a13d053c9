"""The bytes of tables: pinned, and any other bytes are `CorruptionError`. ``SLATE_REGEN_GOLDEN=1`` writes the pinned
files anew; do that only for a change of format that ``docs/format`` and the changelog tell of."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from slate_async.codec.envelope import FEATURES
from slate_async.errors import CorruptionError, InvalidError
from slate_async.tables.codec.envelope import ENVELOPE, Kind
from slate_async.tables.codec.head import decode_head, encode_head
from slate_async.tables.codec.link import StoredLink, decode_link, decode_whole, encode_link
from slate_async.tables.codec.parts import pack_bytes, pack_table
from slate_async.tables.core.chain import Link
from tests.support.table_bytes import HEAD, LINK, NEWEST, PINNED, SAMPLES, STORED, TABLE, TOKEN, plain, ref_of

GOLDEN = Path(__file__).parents[3] / "golden" / "tables"
KINDS = dict(zip(SAMPLES, Kind, strict=True))


@pytest.mark.parametrize("name", SAMPLES)
def test_pinned_bytes_are_read_and_written(name: str) -> None:
    sample, file = SAMPLES[name], GOLDEN / f"{name}.bin"
    made = sample.encode()
    if os.environ.get("SLATE_REGEN_GOLDEN") == "1":
        file.write_bytes(made)
    pinned = file.read_bytes()
    assert sample.decode(pinned) == sample.decode(made) == sample.value
    if sample.exact:
        assert made == pinned


@pytest.mark.parametrize("name", SAMPLES)
def test_every_flipped_byte_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = SAMPLES[name]
    data = sample.encode()
    monkeypatch.setitem(PINNED, name, data)
    for at in range(len(data)):
        with pytest.raises(CorruptionError):
            sample.decode(data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :])
    for at in range(len(data)):
        with pytest.raises(CorruptionError):
            sample.decode(data[:at])
    with pytest.raises(CorruptionError):
        sample.decode(data + b"\0")


@pytest.mark.parametrize("name", SAMPLES)
def test_a_newer_release_is_refused_as_such(name: str) -> None:
    sample, kind = SAMPLES[name], KINDS[name]
    body = ENVELOPE.unseal(sample.encode(), kind, object_name="o")
    with pytest.raises(InvalidError, match="wings; upgrade"):
        sample.decode(ENVELOPE.seal(kind, {**body, FEATURES: ["wings"]}))
    with pytest.raises(InvalidError, match="format 2"):
        sample.decode(replace(ENVELOPE, format_version=2).seal(kind, body))


def test_heads_keep_fields_that_they_do_not_know() -> None:
    body = ENVELOPE.unseal(encode_head(HEAD), Kind.HEAD, object_name="o")
    head = decode_head(ENVELOPE.seal(Kind.HEAD, {**body, "later": [1]}), 5, TOKEN, object_name="o")
    assert head.unknown == {"later": [1]}
    assert ENVELOPE.unseal(encode_head(head), Kind.HEAD, object_name="o")["later"] == [1]


WRONG_HEADS: list[dict[str, Any]] = [
    {"version": 6},
    {"schemas": []},
    {"schemas": [{"id": 0, "next": 9, "fields": pack_bytes(b"no schema")}]},
    {"schemas": 7},
    {"links": [["other/key", 1, bytes(16), False]]},
    {"links": [[NEWEST.key, 1, bytes(15), False]]},
    {"links": [[NEWEST.key, 0, bytes(16), False]]},
    {"pins": {"a": [1, 2, 3, 4]}},
    {"marks": [1]},
    {"totals": [1, 2, 3, 4]},
    {"uuid": b"short"},
]


@pytest.mark.parametrize("wrong", WRONG_HEADS)
def test_what_a_head_cannot_say_is_corruption(wrong: dict[str, Any]) -> None:
    body = ENVELOPE.unseal(encode_head(HEAD), Kind.HEAD, object_name="o")
    with pytest.raises(CorruptionError, match="does not decode"):
        decode_head(ENVELOPE.seal(Kind.HEAD, {**body, **wrong}), 5, TOKEN, object_name="o")


WRONG_LINKS: list[dict[str, Any]] = [
    {"table": UUID(int=1).bytes},
    {"whole": 1},
    {"whole": True},
    {"deleted": pack_bytes(b"12345")},
    {"deleted": pack_bytes((5).to_bytes(8, "little") + bytes(8))},
    {"retired": [8, 1, b"no zstd"]},
    {"retired": [1 << 40, 0, b""]},
    {"added": b"no stream"},
    {"added": pack_table(LINK.added.drop_columns(["size"]))},
    {"added": pack_table(LINK.added.append_column("more", pa.array([1, 2])))},
    {"added": pack_table(LINK.added.set_column(0, LINK.added.schema.field("key"), pa.array(["a", "b"])))},
    {"delete_files": pack_table(LINK.added)},
    {"removed": [1]},
    {"ids": pack_table(LINK.ids.drop_columns(["rows"]))},
    {"before": ["x"]},
]


@pytest.mark.parametrize("wrong", WRONG_LINKS)
def test_what_a_link_cannot_say_is_corruption(wrong: dict[str, Any]) -> None:
    body = ENVELOPE.unseal(encode_link(STORED), Kind.LINK, object_name="o")
    data = ENVELOPE.seal(Kind.LINK, {**body, **wrong})
    with pytest.raises(CorruptionError, match="does not decode"):
        decode_link(data, ref_of(data), TABLE)


def test_what_stands_beside_another_link_is_corruption() -> None:
    data = SAMPLES["whole"].encode()
    with pytest.raises(CorruptionError, match="does not stand beside"):
        decode_whole(data, "chain/other", TABLE, object_name="o")


def test_an_empty_link_is_small() -> None:
    data = encode_link(StoredLink(TABLE, None, Link()))
    assert len(data) < 60
    assert plain(decode_link(data, ref_of(data), TABLE)) == plain(StoredLink(TABLE, None, Link()))


def test_a_head_that_no_register_holds_is_refused() -> None:
    large = replace(HEAD, properties={"note": "x" * 350_000})
    with pytest.raises(InvalidError, match="350000 are stored") as caught:
        encode_head(large)
    assert caught.value.outcome == "not_applied"
