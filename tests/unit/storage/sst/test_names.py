"""`slate_async.storage.sst.names`."""

from __future__ import annotations

import pytest

from slate_async.errors import InvalidError
from slate_async.storage.sst.names import SstName, parse_sst_key, sst_key
from tests.support.rows import OBJECT, OTHER_OBJECT


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
