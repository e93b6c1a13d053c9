"""The generated messages are those of `etcd.proto`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from google.protobuf import descriptor_pb2

from metastores.etcd_client.wire import etcd_pb2

ROOT = Path(__file__).resolve().parents[5]
PROTO = "metastores/etcd_client/wire/etcd.proto"


def test_generated_code_is_what_protoc_makes(tmp_path: Path) -> None:
    out = tmp_path / "set.bin"
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", f"--descriptor_set_out={out}", PROTO]
    subprocess.run(command, cwd=ROOT, check=True)
    [made] = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file
    found = descriptor_pb2.FileDescriptorProto.FromString(etcd_pb2.DESCRIPTOR.serialized_pb)
    for file in (made, found):  # which some versions of protoc fill in
        for message in file.message_type:
            for field in message.field:
                field.ClearField("json_name")
    assert made == found
