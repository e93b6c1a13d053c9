"""FlightData, beside what protobuf makes of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slate_async.errors import InvalidError
from slate_async.rpc.flight_data import decode_data, encode_data
from slate_async.rpc.wire import flight_pb2 as wire

BYTES = st.binary(max_size=300)


@given(BYTES, BYTES, BYTES)
def test_it_is_what_protobuf_makes(header: bytes, body: bytes, metadata: bytes) -> None:
    descriptor = wire.FlightDescriptor(type=wire.FlightDescriptor.PATH, path=["a"]).SerializeToString()
    mine = encode_data(header, [body], descriptor=descriptor, metadata=metadata)
    theirs = wire.FlightData(data_header=header, app_metadata=metadata, data_body=body)
    theirs.flight_descriptor.ParseFromString(descriptor)
    assert mine == theirs.SerializeToString()
    found = decode_data(mine)
    assert (bytes(found.header), bytes(found.body), bytes(found.metadata)) == (header, body, metadata)
    assert bytes(found.descriptor or b"") == descriptor


@given(BYTES)
def test_whatever_comes_is_a_message_or_an_invalid_error(raw: bytes) -> None:
    try:
        found = decode_data(raw)
    except InvalidError:
        return
    assert len(found.header) + len(found.body) + len(found.metadata) <= len(raw)


@pytest.mark.parametrize("raw", [b"\x12\x05ab", b"\x12", b"\xff" * 11, b"\x0b"])
def test_damaged_messages_are_refused(raw: bytes) -> None:
    with pytest.raises(InvalidError, match="no FlightData"):
        decode_data(raw)
