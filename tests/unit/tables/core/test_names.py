"""Names of a table's objects."""

from __future__ import annotations

import pytest

from slate_async.errors import InternalError
from slate_async.tables.core.names import base_of, block_key, delete_key, link_key, parsed_base, whole_key

TOKEN = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    "make", [block_key, delete_key, link_key, lambda base, token: whole_key(link_key(base, token))]
)
@pytest.mark.parametrize("base", [0, 1, 10**19])
def test_a_name_says_its_base(make, base) -> None:  # type: ignore[no-untyped-def]
    assert base_of(make(base, TOKEN)) == base


@pytest.mark.parametrize(
    "foreign",
    [
        "",
        "data/",
        f"data/1.{TOKEN}.parquet",
        f"data/{1:020}.{TOKEN[:-1]}.parquet",
        f"data/{1:020}.{TOKEN.upper()}.parquet",
        f"data/{1:020}.{TOKEN}.parquet.whole",
        f"chain/{1:020}.{TOKEN}.chain.whole.whole",
        f"chain/{1:020}.{TOKEN}.parquet",
        f"x/data/{1:020}.{TOKEN}.parquet",
        f"data/{1:020}.{TOKEN}.parquet\n",
    ],
)
def test_foreign_keys_are_left_alone(foreign: str) -> None:
    assert parsed_base(foreign) is None
    with pytest.raises(InternalError):
        base_of(foreign)
