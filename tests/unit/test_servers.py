"""The launchers: servers are exclusive where they claim to be, and never outlive the test run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import botocore.exceptions
import pytest
from botocore.config import Config

from tests.servers.moto import LockedMoto
from tests.servers.node import S3RVER_KEY
from tests.servers.process import ROOT, ServerError, ServerProcess
from tests.servers.radosgw import Radosgw


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _wait_ended(pid: int) -> bool:
    for _ in range(500):
        if not _alive(pid):
            return True
        time.sleep(0.01)
    return False


def _client(service: str, endpoint: str, key: str = "test", secret: str = "test") -> Any:
    config = Config(retries={"total_max_attempts": 1}, max_pool_connections=16, s3={"addressing_style": "path"})
    keys = {"aws_access_key_id": key, "aws_secret_access_key": secret}
    return boto3.client(service, endpoint_url=endpoint, region_name="us-east-1", config=config, **keys)


def _body(number: int, condition: dict[str, str]) -> bytes:
    """Bytes no other put writes: equal bytes would have equal ETags, and a condition on one would hold twice."""
    return f"{number} {condition}".encode()


def _winners(s3: Any, key: str, **condition: str) -> list[int]:
    """Which of 32 racing conditional puts the store let through."""

    def put(number: int) -> bool:
        try:
            s3.put_object(Bucket="servers", Key=key, Body=_body(number, condition), **condition)
        except botocore.exceptions.ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] != 412:
                raise
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        return [number for number, won in enumerate(pool.map(put, range(32))) if won]


def _assert_exclusive(s3: Any, *, replace: bool) -> None:
    s3.create_bucket(Bucket="servers")
    (winner,) = _winners(s3, "one", IfNoneMatch="*")
    found = s3.get_object(Bucket="servers", Key="one")
    assert found["Body"].read() == _body(winner, {"IfNoneMatch": "*"})
    if replace:
        assert len(_winners(s3, "one", IfMatch=found["ETag"])) == 1


def test_locked_moto_is_exclusive(s3_endpoint: str) -> None:
    _assert_exclusive(_client("s3", s3_endpoint), replace=True)


def test_localstack_is_exclusive(localstack_endpoint: str) -> None:
    _assert_exclusive(_client("s3", localstack_endpoint), replace=True)


def test_radosgw_is_exclusive_on_creation(radosgw_endpoint: Radosgw) -> None:
    keys = radosgw_endpoint.access_key, radosgw_endpoint.secret_key
    _assert_exclusive(_client("s3", radosgw_endpoint.url, *keys), replace=False)


def test_s3rver_ignores_conditions(s3rver_endpoint: str) -> None:
    s3 = _client("s3", s3rver_endpoint, S3RVER_KEY, S3RVER_KEY)
    s3.create_bucket(Bucket="servers")
    assert len(_winners(s3, "one", IfNoneMatch="*")) == 32


@pytest.mark.parametrize("server", ["s3_endpoint", "dynalite_endpoint"])
def test_dynamodb_checks_conditions(server: str, request: pytest.FixtureRequest) -> None:
    client = _client("dynamodb", request.getfixturevalue(server))
    client.create_table(
        TableName="servers",
        KeySchema=[{"AttributeName": "k", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "k", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    client.get_waiter("table_exists").wait(TableName="servers", WaiterConfig={"Delay": 1, "MaxAttempts": 30})
    client.put_item(TableName="servers", Item={"k": {"S": "a"}}, ConditionExpression="attribute_not_exists(k)")
    with pytest.raises(botocore.exceptions.ClientError, match="ConditionalCheckFailed"):
        client.put_item(TableName="servers", Item={"k": {"S": "a"}}, ConditionExpression="attribute_not_exists(k)")


def test_azurite_answers(azurite_endpoint: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{azurite_endpoint}/container/blob", timeout=10)
    with caught.value as error:
        assert error.code in (403, 404)
        assert error.headers["Server"].startswith("Azurite-Blob")


def test_a_grown_moto_starts_afresh_on_its_port(monkeypatch: pytest.MonkeyPatch) -> None:
    server = LockedMoto()
    try:
        s3 = _client("s3", server.url)
        s3.create_bucket(Bucket="servers")
        server.refresh()
        assert [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]] == ["servers"]
        monkeypatch.setattr("tests.servers.moto.MAX_MEMORY_BYTES", 0)
        server.refresh()
        assert _client("s3", server.url).list_buckets()["Buckets"] == []
    finally:
        server.stop()


def test_stop_kills_children_too() -> None:
    script = "trap '' TERM; sleep 1000 & echo $! > child; touch up; wait; wait"
    server = ServerProcess("stubborn")
    server.start(["bash", "-c", script], ready=lambda: (server.folder / "up").exists())
    child = int((server.folder / "child").read_text())
    parent = server.pid
    server.stop()
    assert _wait_ended(parent)
    assert _wait_ended(child)
    assert not server.folder.exists()


def test_a_server_that_dies_is_reported_with_its_log() -> None:
    server = ServerProcess("broken")
    with pytest.raises(ServerError, match=r"status 3 .*\n.*no such luck"):
        server.start(["bash", "-c", "echo no such luck; exit 3"], ready=lambda: False)
    assert not server.folder.exists()


def test_a_server_that_never_answers_is_given_up() -> None:
    server = ServerProcess("silent")
    with pytest.raises(ServerError, match="not ready within 0 s"):
        server.start(["sleep", "1000"], ready=lambda: False, timeout=0.1)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's net exists on Linux only")
def test_a_server_dies_with_a_killed_parent(tmp_path: Path) -> None:
    program = textwrap.dedent("""
        import time
        from tests.servers.process import ServerProcess
        server = ServerProcess("orphan")
        server.start(["sleep", "1000"], ready=lambda: True)
        print(server.pid, flush=True)
        time.sleep(1000)
    """)
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert _alive(pid)
        parent.send_signal(signal.SIGKILL)
    assert _wait_ended(pid)
