"""`slate_async.storage.format.filter`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slate_async.errors import CorruptionError, InvalidError
from slate_async.storage.format import filter as filter_module
from slate_async.storage.format.filter import build_filter, decode_filter, key_hash, key_hashes


@pytest.fixture(autouse=True, params=["rounded", "exact"])
def _kinds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters of both kinds."""
    monkeypatch.setattr(filter_module, "EXACT_BITS", 1 << 32 if request.param == "rounded" else 0)


def made(keys: list[bytes], bits_per_key: int) -> bytes:
    return build_filter(key_hashes(pa.array(keys, pa.binary())), bits_per_key)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=20), min_size=1, max_size=300), st.integers(1, 64))
def test_what_was_put_in_is_never_absent(keys: list[bytes], bits_per_key: int) -> None:
    decoded = decode_filter(made(keys, bits_per_key), object_name="o")
    assert decoded is not None
    assert all(decoded.may_contain(key_hash(key)) for key in keys)


@pytest.mark.parametrize(("bits_per_key", "most"), [(4, 0.16), (8, 0.03), (10, 0.012), (16, 0.001)])
def test_false_answers_are_as_rare_as_the_bits_promise(bits_per_key: int, most: float) -> None:
    decoded = decode_filter(made([b"in%d" % i for i in range(5000)], bits_per_key), object_name="o")
    assert decoded is not None
    wrong = sum(decoded.may_contain(key_hash(b"out%d" % i)) for i in range(20_000))
    assert wrong / 20_000 < most


def test_hashes_of_a_column_are_those_of_its_keys() -> None:
    keys = [b"", b"a", b"\x00\xff" * 30, "ü".encode()]
    assert key_hashes(pa.array([b"no", *keys], pa.binary())[1:]).tolist() == [key_hash(key) for key in keys]
    assert key_hash(b"") == 0x2D06800538D394C2


def test_no_filter() -> None:
    assert made([b"a"], 0) == b""
    assert build_filter(np.empty(0, np.uint64), 10) == b""
    assert decode_filter(b"", object_name="o") is None
    for bits in (-1, 65):
        with pytest.raises(InvalidError):
            made([b"a"], bits)


def test_an_unknown_kind_is_no_filter() -> None:
    data = bytearray(made([b"a"], 10))
    data[0] = 9
    assert decode_filter(data, object_name="o") is None


def test_wrong_lengths_are_corruption() -> None:
    data = made([b"a", b"b"], 10)
    for wrong in (
        data[:8],
        data[:-1],
        data + b"\0",
        data[:2] + b"\0\0" + data[4:],
        data[:4] + b"\x3f\0\0\0" + data[8:],
        data[:4] + b"\0\0\0\0" + data[8:],
        data[:4] + b"\xff\xff\xff\xff" + data[8:],
    ):
        with pytest.raises(CorruptionError):
            decode_filter(wrong, object_name="o")


def test_many_lookups_agree_with_single_ones() -> None:
    decoded = decode_filter(made([b"in%d" % i for i in range(500)], 6), object_name="o")
    assert decoded is not None
    hashes = key_hashes(pa.array([b"%d" % i for i in range(500)] + [b"in%d" % i for i in range(500)], pa.binary()))
    assert decoded.may_contain_each(hashes).tolist() == [decoded.may_contain(key_hash) for key_hash in hashes.tolist()]


def test_large_filters_take_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    rng = np.random.default_rng(1)
    for keys in (52_000, 60_000, 70_000):
        data = build_filter(rng.integers(0, 2**64, keys, np.uint64), 10)
        assert keys * 10 / 8 <= len(data) - 16 < keys * 10 / 8 + 8 or keys * 10 <= filter_module.EXACT_BITS
    assert len(build_filter(rng.integers(0, 2**64, 40_000, np.uint64), 10)) == 16 + (1 << 16)
