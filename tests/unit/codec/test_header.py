"""`slate_async.codec.header`."""

from __future__ import annotations

import struct

import pytest

from slate_async.codec.checksum import crc32c, crc32c_of_parts
from slate_async.codec.header import HEADER_BYTES, ObjectHeader, ObjectKind, decode_header, encode_header, peek_header
from slate_async.errors import CorruptionError, InvalidError
from tests.support.rows import DATABASE, OBJECT, OTHER_DATABASE, OTHER_OBJECT

HEADER = ObjectHeader(ObjectKind.SST, DATABASE, OBJECT, 7, 1234, 42, 0xDEADBEEF)


def resealed(raw: bytes, at: int, new: bytes) -> bytes:
    """``raw`` with bytes replaced and its checksum made right again."""
    body = bytearray(raw[:76])
    body[at : at + len(new)] = new
    return bytes(body) + struct.pack("<I", crc32c(bytes(body)))


def test_crc32c_is_the_castagnoli_polynomial() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c_of_parts([b"1234", memoryview(b""), bytearray(b"56789")]) == 0xE3069283


def test_round_trip() -> None:
    raw = encode_header(HEADER)
    assert len(raw) == HEADER_BYTES
    assert decode_header(raw + b"body", object_name="o", database_id=DATABASE, object_id=OBJECT) == HEADER
    assert peek_header(memoryview(raw), object_name="o") == HEADER


def test_every_flip_and_every_truncation_is_corruption() -> None:
    raw = encode_header(HEADER)
    for at in range(len(raw)):
        for bit in range(8):
            damaged = bytearray(raw)
            damaged[at] ^= 1 << bit
            with pytest.raises(CorruptionError, match="the-name"):
                peek_header(damaged, object_name="the-name")
        with pytest.raises(CorruptionError):
            peek_header(raw[:at], object_name="the-name")


def test_foreign_objects_are_corruption() -> None:
    raw = encode_header(HEADER)
    with pytest.raises(CorruptionError, match="database") as caught:
        decode_header(raw, object_name="o", database_id=OTHER_DATABASE, object_id=OBJECT)
    assert (caught.value.object_name, caught.value.offset) == ("o", 16)
    with pytest.raises(CorruptionError, match="is object") as caught:
        decode_header(raw, object_name="o", database_id=DATABASE, object_id=OTHER_OBJECT)
    assert caught.value.offset == 32


def test_a_newer_version_or_feature_is_refused_as_such() -> None:
    raw = encode_header(HEADER)
    with pytest.raises(InvalidError, match="version 2"):
        peek_header(resealed(raw, 8, struct.pack("<H", 2)), object_name="o")
    with pytest.raises(InvalidError, match="features"):
        peek_header(resealed(raw, 12, struct.pack("<I", 1)), object_name="o")
    with pytest.raises(CorruptionError, match="kind 9"):
        peek_header(resealed(raw, 10, struct.pack("<H", 9)), object_name="o")


def test_optional_features_are_kept_and_ignored() -> None:
    header = peek_header(resealed(encode_header(HEADER), 12, struct.pack("<I", 1 << 16)), object_name="o")
    assert header.flags == 1 << 16


@pytest.mark.parametrize("change", [{"object_id": b"short"}, {"writer_epoch": -1}, {"body_bytes": 2**64}])
def test_values_that_do_not_fit_are_invalid(change: dict[str, object]) -> None:
    fields = {name: getattr(HEADER, name) for name in HEADER.__slots__}
    with pytest.raises(InvalidError):
        encode_header(ObjectHeader(**{**fields, **change}))
