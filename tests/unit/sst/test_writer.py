"""`slate_async.sst.writer`."""

from __future__ import annotations

import pytest

from slate_async.errors import CorruptionError, InvalidError, UnavailableError
from slate_async.objectstore.protocol import ObjectExistsError
from slate_async.sst.writer import SstName, parse_sst_key, sst_key, write_sst
from tests.unit.format.rows import OBJECT, OTHER_OBJECT, R, sample_rows, sst_of
from tests.unit.sst.support import CountingStore


def test_names() -> None:
    key = sst_key(42, OBJECT)
    assert key == f"sst/{42:020}.{OBJECT.hex()}.sst"
    assert parse_sst_key(key) == SstName(42, OBJECT)
    assert sst_key(9, OTHER_OBJECT) < sst_key(10, OBJECT)


@pytest.mark.parametrize("key", ["", "sst/", "sst/1.ab.sst", sst_key(1, OBJECT) + "x", "x" + sst_key(1, OBJECT)])
def test_other_keys_are_no_sst(key: str) -> None:
    assert parse_sst_key(key) is None


def test_names_that_cannot_be() -> None:
    for base, object_id in ((-1, OBJECT), (10**20, OBJECT), (1, b"short")):
        with pytest.raises(InvalidError):
            sst_key(base, object_id)


async def test_a_written_sst_is_there() -> None:
    store, encoded = CountingStore(), sst_of(sample_rows())
    await write_sst(store, "sst/x", encoded)
    assert store.objects["sst/x"] == b"".join(encoded.buffers)
    assert store.reads == []


async def test_a_lost_response_is_settled_by_one_read() -> None:
    store, encoded = CountingStore(), sst_of(sample_rows())
    store.lost_response = UnavailableError("timed out", outcome="unknown")
    await write_sst(store, "sst/x", encoded)
    assert len(store.reads) == 1
    await write_sst(store, "sst/x", encoded)


async def test_a_put_that_did_not_happen_fails() -> None:
    store = CountingStore()
    store.failure = UnavailableError("timed out", outcome="not_applied")
    with pytest.raises(UnavailableError):
        await write_sst(store, "sst/x", sst_of(sample_rows()))
    assert store.reads == []


class LostRequests(CountingStore):
    """Puts never arrive, and nobody knows."""

    async def put(self, *args: object, **kwargs: object) -> str:
        raise UnavailableError("timed out", outcome="unknown")


async def test_an_unknown_put_that_is_not_there_stays_unknown() -> None:
    with pytest.raises(UnavailableError) as caught:
        await write_sst(LostRequests(), "sst/x", sst_of(sample_rows()))
    assert caught.value.outcome == "unknown"


async def test_another_object_under_the_name_is_corruption() -> None:
    encoded = sst_of(sample_rows())
    for other in (b"", b"short", b"".join(sst_of([R(b"a")]).buffers), b"x" * encoded.size):
        store = CountingStore()
        store.objects["sst/x"] = other
        with pytest.raises(CorruptionError, match="sst/x") as caught:
            await write_sst(store, "sst/x", encoded)
        assert isinstance(caught.value.__cause__, ObjectExistsError | InvalidError)
        assert store.objects["sst/x"] == other
