"""`slate_async.storage.format.marker`: every wrong byte is found."""

from __future__ import annotations

from uuid import UUID

import msgspec
import pytest

from slate_async.codec.checksum import crc32c
from slate_async.errors import CorruptionError, InvalidError
from slate_async.storage.format.marker import Marker, decode_marker, encode_marker

MARKER = Marker(UUID(int=1), UUID(int=2))


def test_what_is_encoded_is_decoded() -> None:
    assert decode_marker(encode_marker(MARKER), object_name="m") == MARKER


def test_fields_of_later_releases_are_passed_over() -> None:
    body = {"database_id": MARKER.database_id.bytes, "store_id": MARKER.store_id.bytes, "region": "eu-west-1"}
    payload = msgspec.msgpack.encode(body)
    data = encode_marker(MARKER)[:12] + crc32c(payload).to_bytes(4, "little") + payload
    assert decode_marker(data, object_name="m") == MARKER


@pytest.mark.parametrize("cut", [0, 15, 16, 30])
def test_a_short_one_is_corruption(cut: int) -> None:
    with pytest.raises(CorruptionError):
        decode_marker(encode_marker(MARKER)[:cut], object_name="m")


def test_any_flipped_byte_but_the_version_is_corruption() -> None:
    whole = encode_marker(MARKER)
    for at in range(len(whole)):
        data = bytearray(whole)
        data[at] ^= 0x10
        with pytest.raises(InvalidError if at in (8, 9) else CorruptionError):
            decode_marker(bytes(data), object_name="m")


def test_another_map_is_corruption() -> None:
    payload = msgspec.msgpack.encode({"database_id": b"short"})
    data = encode_marker(MARKER)[:12] + crc32c(payload).to_bytes(4, "little") + payload
    with pytest.raises(CorruptionError):
        decode_marker(data, object_name="m")
