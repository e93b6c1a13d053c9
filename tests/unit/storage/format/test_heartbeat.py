"""A writer's beat as bytes."""

from __future__ import annotations

import struct
from uuid import UUID

import crc32c
import pytest

from slate_async.errors import CorruptionError, InvalidError
from slate_async.storage.format.heartbeat import Beat, Sent, decode_beat, encode_beat

BARE = Beat(UUID(int=3), 2**40, 2**50)
BEAT = Beat(UUID(int=3), 2**40, 2**50, Sent(2**41, 2**33, 2**34, 2**35))


def with_counts(counts: bytes) -> bytes:
    """A beat whose bytes after the number are these."""
    bare = encode_beat(BARE)
    body = bare[:10] + struct.pack("<H", len(counts)) + bare[12:44] + counts
    return body + struct.pack("<I", crc32c.crc32c(body))


@pytest.mark.parametrize(("beat", "length"), [(BARE, 48), (BEAT, 80)])
def test_round_trip(beat: Beat, length: int) -> None:
    data = encode_beat(beat)
    assert len(data) == length
    assert decode_beat(data, object_name="b") == beat


@pytest.mark.parametrize("at", range(80))
def test_every_flipped_byte_is_noticed(at: int) -> None:
    data = bytearray(encode_beat(BEAT))
    data[at] ^= 0x10
    with pytest.raises(InvalidError if at in (8, 9) else CorruptionError):
        decode_beat(bytes(data), object_name="b")


@pytest.mark.parametrize("beat", [BARE, BEAT])
@pytest.mark.parametrize("cut", [8, 4, 1, -1])
def test_another_length_is_corruption(beat: Beat, cut: int) -> None:
    data = encode_beat(beat)
    with pytest.raises(CorruptionError):
        decode_beat((data + b"x")[: len(data) - cut], object_name="b")
    for length in (0, 8, 43):
        with pytest.raises(CorruptionError):
            decode_beat(data[:length], object_name="b")


def test_counts_of_a_later_release_are_passed_over() -> None:
    counts = struct.pack("<QQQQ", 2**41, 2**33, 2**34, 2**35)
    assert decode_beat(with_counts(counts), object_name="b") == BEAT
    assert decode_beat(with_counts(counts + b"something new"), object_name="b") == BEAT
    for length in (1, 31):
        with pytest.raises(CorruptionError):
            decode_beat(with_counts(counts[:length]), object_name="b")
