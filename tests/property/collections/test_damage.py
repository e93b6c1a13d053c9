"""P13: every byte of a collection that is flipped or missing is `CorruptionError`; nothing else comes of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slate_async.errors import CorruptionError
from tests.support.collection_bytes import SAMPLES

ENCODED = {name: sample.encode() for name, sample in SAMPLES.items()}


@pytest.mark.parametrize("name", SAMPLES)
def test_every_flipped_byte_is_corruption(name: str) -> None:
    data, decode = ENCODED[name], SAMPLES[name].decode
    for at in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            with pytest.raises(CorruptionError):
                decode(bytes(damaged))


@pytest.mark.parametrize("name", SAMPLES)
def test_every_truncation_is_corruption(name: str) -> None:
    data, decode = ENCODED[name], SAMPLES[name].decode
    for end in range(len(data)):
        with pytest.raises(CorruptionError):
            decode(data[:end])


@given(st.sampled_from(list(SAMPLES)), st.binary(min_size=1, max_size=20), st.data())
def test_every_splice_is_corruption(name: str, inserted: bytes, draw: st.DataObject) -> None:
    """Bytes in place of others, more or fewer than there were."""
    data = ENCODED[name]
    start = draw.draw(st.integers(0, len(data)))
    end = draw.draw(st.integers(start, len(data)))
    spliced = data[:start] + inserted + data[end:]
    if spliced != data:
        with pytest.raises(CorruptionError):
            SAMPLES[name].decode(spliced)


@pytest.mark.parametrize("name", SAMPLES)
def test_objects_of_another_kind_are_corruption(name: str) -> None:
    kind = name.split("-")[0]
    for other, data in ENCODED.items():
        if other.split("-")[0] != kind:
            with pytest.raises(CorruptionError):
                SAMPLES[name].decode(data)
