"""The generated messages are those of `flight.proto`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from google.protobuf import descriptor_pb2

from slate_async.rpc.wire import flight_pb2

ROOT = Path(__file__).resolve().parents[4]
PROTO = "slate_async/rpc/wire/flight.proto"


def test_generated_code_is_what_protoc_makes(tmp_path: Path) -> None:
    out = tmp_path / "set.bin"
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", f"--descriptor_set_out={out}", PROTO]
    subprocess.run(command, cwd=ROOT, check=True)
    [made] = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file
    found = descriptor_pb2.FileDescriptorProto.FromString(flight_pb2.DESCRIPTOR.serialized_pb)
    for file in (made, found):  # which some versions of protoc fill in
        for message in file.message_type:
            for field in message.field:
                field.ClearField("json_name")
    assert made == found


def test_bodies_of_flight_data_have_the_number_of_the_protocol() -> None:
    fields = flight_pb2.FlightData.DESCRIPTOR.fields_by_name
    assert {name: field.number for name, field in fields.items()} == {
        "flight_descriptor": 1,
        "data_header": 2,
        "app_metadata": 3,
        "data_body": 1000,
    }
