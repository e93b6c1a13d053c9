"""Names of SSTs.

An SST's name starts with the manifest version its producer had read when it began, so the garbage collector can tell
by the name alone that nobody may still commit it: ``sst/{base version:020}.{ulid hex}.sst``.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from slate_async.codec.header import OBJECT_ID_BYTES
from slate_async.errors import InvalidError

SST_PREFIX = "sst/"
_KEY = re.compile(r"sst/([0-9]{20})\.([0-9a-f]{32})\.sst")


class SstName(NamedTuple):
    """What an SST's key says."""

    base_version: int
    object_id: bytes


def sst_key(base_version: int, object_id: bytes) -> str:
    """The key of the SST ``object_id`` (16 bytes) whose producer had read manifest ``base_version``."""
    if not 0 <= base_version < 10**20 or len(object_id) != OBJECT_ID_BYTES:
        raise InvalidError(f"no SST is named by version {base_version} and {len(object_id)} id bytes")
    return f"{SST_PREFIX}{base_version:020}.{object_id.hex()}.sst"


def parse_sst_key(key: str) -> SstName | None:
    """What ``key`` says, or ``None`` if it is not the key of an SST."""
    match = _KEY.fullmatch(key)
    return SstName(int(match[1]), bytes.fromhex(match[2])) if match else None
