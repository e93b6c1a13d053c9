"""Names of SSTs, and putting one into the store.

An SST's name starts with the manifest version its producer had read when it began, so the garbage collector can tell
by the name alone that nobody may still commit it: ``sst/{base version:020}.{ulid hex}.sst``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from slate_async.errors import CorruptionError, InvalidError, SlateError
from slate_async.format.header import HEADER_BYTES, OBJECT_ID_BYTES
from slate_async.format.sst import EncodedSst
from slate_async.objectstore.protocol import CREATE, ObjectExistsError, ObjectNotFoundError, ObjectStore, Span

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


async def write_sst(
    store: ObjectStore, key: str, encoded: EncodedSst, *, metadata: Mapping[str, str] | None = None
) -> None:
    """Create the object ``key``. A put that fails with an unknown outcome, or meets an object, is settled by one
    read-back: the very object being there is success.

    Raises what the put raised when the object is not there (it may still arrive if the outcome was unknown; it is
    then garbage under a name nobody commits), `CorruptionError` when another object is."""
    try:
        await store.put(key, encoded.buffers, mode=CREATE, metadata=metadata)
    except SlateError as error:
        if not await _settled(store, key, encoded, error):
            raise


async def _settled(store: ObjectStore, key: str, encoded: EncodedSst, error: SlateError) -> bool:
    """Whether the object is in although its put failed with ``error``."""
    if not isinstance(error, ObjectExistsError) and error.outcome != "unknown":
        return False
    try:
        found = await store.get(key, Span(0, HEADER_BYTES))
    except ObjectNotFoundError:
        return False
    except InvalidError as short:
        raise CorruptionError("another object stands at this SST's name", object_name=key) from short
    if found.info.size != encoded.size or found.data != encoded.buffers[0]:
        raise CorruptionError("another object stands at this SST's name", object_name=key) from error
    return True
