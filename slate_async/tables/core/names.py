"""Names of a table's objects, and back.

Below the folder of one table::

    manifest/                              heads, whose names a metastore gives
    chain/{base:020}.{token}.chain         a link
    chain/{base:020}.{token}.chain.whole   beside it: all that its chain adds up to
    data/{base:020}.{token}.parquet        a block
    dels/{base:020}.{token}.parquet        row ids that are deleted

``base`` is the version that its producer had read when it began, by which a vacuum decides (rule T5).

Invariant: parsing accepts exactly what formatting yields, so foreign keys are left alone.

Rules T5 and T9.
"""

from __future__ import annotations

import re
from typing import Final

from slate_async.errors import InternalError

CHAIN: Final = "chain/"
DATA: Final = "data/"
DELETES: Final = "dels/"
_NAME: Final = re.compile(
    r"(?:chain/([0-9]{20})\.[0-9a-f]{32}\.chain(?:\.whole)?|(?:data|dels)/([0-9]{20})\.[0-9a-f]{32}\.parquet)"
)


def link_key(base: int, token: str) -> str:
    """Of a link that extends version ``base``."""
    return f"{CHAIN}{base:020}.{token}.chain"


def whole_key(link: str) -> str:
    """Of what stands beside the link ``link`` for its whole chain (rule T9)."""
    return f"{link}.whole"


def block_key(base: int, token: str) -> str:
    """Of a block."""
    return f"{DATA}{base:020}.{token}.parquet"


def delete_key(base: int, token: str) -> str:
    """Of a file of row ids."""
    return f"{DELETES}{base:020}.{token}.parquet"


def parsed_base(key: str) -> int | None:
    """The base in the name of an object; ``None`` for a foreign key."""
    found = _NAME.fullmatch(key)
    return None if found is None else int(found[1] or found[2])


def base_of(key: str) -> int:
    """As `parsed_base`, of a key that is one of ours."""
    base = parsed_base(key)
    if base is None:
        raise InternalError(f"{key!r} is no name of an object of a table")
    return base
