"""`slate_async.collections.codec.envelope`, and what all that lies in it has in common."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from slate_async.codec.checksum import crc32c_of_parts
from slate_async.codec.envelope import ENVELOPE_BYTES, FEATURES, pack
from slate_async.collections.codec.envelope import ENVELOPE, Kind
from slate_async.errors import CorruptionError, InvalidError
from tests.support.collection_bytes import SAMPLES

IN_ENVELOPES = ["index", "version", "hold", "register"]
KINDS = dict(zip(IN_ENVELOPES, (Kind.INDEX, Kind.VERSION, Kind.HOLD, Kind.LIFE), strict=True))


def sealed(payload: bytes, *, version: int = 1, kind: int = Kind.HOLD, reserved: int = 0) -> bytes:
    """``payload`` in an envelope whose checksum is right."""
    start = struct.pack("<8sHBB", b"SLATECOL", version, kind, reserved)
    return start + struct.pack("<I", crc32c_of_parts((start, payload))) + payload


def test_what_is_sealed_is_unsealed() -> None:
    body = {"b": 1, "a": [1, "x", b"y"]}
    assert ENVELOPE.unseal(ENVELOPE.seal(Kind.HOLD, body), Kind.HOLD, object_name="o") == body
    assert (
        ENVELOPE.seal(Kind.HOLD, body) == sealed(pack(body)) == ENVELOPE.seal(Kind.HOLD, dict(reversed(body.items())))
    )


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "0 bytes are too few"),
        (b"x" * 100, "does not belong to a collection"),
        (sealed(pack({}), kind=Kind.LIFE), "of kind 3, not 2"),
        (sealed(pack({}), reserved=1), "of kind 2, not 2"),
        (sealed(b"\xc1"), "does not decode"),
        (sealed(pack({})[:0] + b"\x01"), "does not decode"),
        (sealed(pack({}) + b"\x00"), "does not decode"),
        (sealed(pack({FEATURES: 7})), "does not decode"),
    ],
)
def test_anything_else_is_corruption(data: bytes, words: str) -> None:
    with pytest.raises(CorruptionError, match=words):
        ENVELOPE.unseal(data, Kind.HOLD, object_name="o")


@pytest.mark.parametrize("data", [sealed(pack({}), version=2), sealed(pack({FEATURES: ["wings"]}))])
def test_a_newer_release_is_refused_as_such(data: bytes) -> None:
    with pytest.raises(InvalidError, match=r"o (has format 2|needs features .*: wings).*; upgrade"):
        ENVELOPE.unseal(data, Kind.HOLD, object_name="o")


def changed(name: str, **fields: Any) -> bytes:
    """The sample's bytes with other ``fields``; ``None`` takes one away."""
    kind = KINDS[name]
    body = {**ENVELOPE.unseal(SAMPLES[name].encode(), kind, object_name="o"), **fields}
    return ENVELOPE.seal(kind, {field: value for field, value in body.items() if value is not None})


@pytest.mark.parametrize("name", IN_ENVELOPES)
def test_fields_that_are_not_known_are_kept(name: str) -> None:
    data = changed(name, wings=[2])
    found = SAMPLES[name].decode(data)
    assert dict(found.unknown) == {"wings": [2]}
    encoders = {"index": "encode_index", "version": "encode_version", "hold": "encode_hold", "register": "encode_life"}
    module = __import__(f"slate_async.collections.codec.{'life' if name == 'register' else name}", fromlist=["x"])
    assert getattr(module, encoders[name])(found) == data


@pytest.mark.parametrize("name", IN_ENVELOPES)
def test_features_that_are_not_known_are_refused(name: str) -> None:
    with pytest.raises(InvalidError, match="needs features this release does not have: wings; upgrade"):
        SAMPLES[name].decode(changed(name, required_features=["wings"]))


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("version", {"version": 13}),
        ("version", {"epoch": None}),
        ("version", {"upper": [[1, 2]]}),
        ("version", {"upper": [2, 1]}),
        ("version", {"upper": [-1]}),
        ("version", {"upper": [2**63 + 1]}),
        ("version", {"upper": "x"}),
        ("version", {"batches": [{"name": "x"}]}),
        ("version", {"fuel": [["x", "y"]]}),
        ("hold", {"since": None}),
        ("hold", {"version": None}),
        ("hold", {"lease_ms": None}),
        ("register", {"times": "u128"}),
        ("register", {"state": "asleep"}),
        ("register", {"appends": "any"}),
        ("register", {"data": "columns"}),
        ("register", {"uuid": b"short"}),
        ("register", {"data": "columns", "schema": b"none"}),
        ("index", {"parts": [[1, 2]]}),
        ("index", {"parts": [[70, 1000, 5]]}),
        ("index", {"parts": [[70, 1000, 5, [[70, 999, 1]]], [2, 300, 6]]}),
        ("index", {"edges": b"none"}),
    ],
)
def test_fields_that_make_no_sense_are_corruption(name: str, fields: dict[str, Any]) -> None:
    with pytest.raises(CorruptionError, match="does not decode"):
        SAMPLES[name].decode(changed(name, **fields))


def test_the_envelope_has_16_bytes() -> None:
    assert len(sealed(b"")) == ENVELOPE_BYTES == 16
