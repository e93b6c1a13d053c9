"""Headers of Arrow IPC, read without Arrow."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slate_async.errors import InvalidError
from slate_async.rpc.ipc_header import RECORDS, SCHEMA, body_bytes, ipc_header


def test_kind_rows_and_bytes_are_arrows() -> None:
    batch = pa.record_batch({"a": [1, 2, 3], "b": ["x", None, "z"]})
    schema = pa.ipc.read_message(batch.schema.serialize())
    assert ipc_header(schema.metadata, b"").kind == SCHEMA
    message = pa.ipc.read_message(batch.serialize())
    found = ipc_header(message.metadata, message.body)
    assert (found.kind, found.rows, found.body_bytes, found.decoded_bytes) == (RECORDS, 3, *[message.body.size] * 2)
    assert body_bytes(message.metadata.to_pybytes()) == message.body.size


@given(st.binary(max_size=200))
def test_whatever_comes_is_a_header_or_an_invalid_error(raw: bytes) -> None:
    try:
        found = ipc_header(raw, b"")
    except InvalidError:
        return
    assert found.rows >= 0


@pytest.mark.parametrize("raw", [b"", b"\x00", b"\xff" * 64])
def test_what_is_no_header_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidError, match="no Arrow IPC message"):
        ipc_header(raw, b"")
