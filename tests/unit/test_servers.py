"""The launchers: servers are exclusive where they claim to be, and never outlive the test run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import botocore.exceptions
import pytest
from botocore.config import Config

from tests.servers.process import ROOT, ServerError, ServerProcess

ONE_ATTEMPT = Config(retries={"total_max_attempts": 1}, max_pool_connections=16)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _wait_gone(pid: int) -> bool:
    for _ in range(500):
        if not _alive(pid):
            return True
        time.sleep(0.01)
    return False


@pytest.fixture
def s3(s3_endpoint: str, aws_environment: dict[str, str]) -> Any:
    client = boto3.client("s3", endpoint_url=s3_endpoint, config=ONE_ATTEMPT)
    client.create_bucket(Bucket="servers")
    return client


def test_of_many_creators_exactly_one_wins(s3: Any) -> None:
    def create(number: int) -> bool:
        try:
            s3.put_object(Bucket="servers", Key="one", Body=b"%d" % number, IfNoneMatch="*")
        except botocore.exceptions.ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] != 412:
                raise
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        wins = [number for number, won in enumerate(pool.map(create, range(32))) if won]
    assert len(wins) == 1
    assert s3.get_object(Bucket="servers", Key="one")["Body"].read() == b"%d" % wins[0]


def test_dynamodb_answers_on_the_same_port(s3_endpoint: str, aws_environment: dict[str, str]) -> None:
    client = boto3.client("dynamodb", endpoint_url=s3_endpoint, config=ONE_ATTEMPT)
    client.create_table(
        TableName="servers",
        KeySchema=[{"AttributeName": "k", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "k", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    client.put_item(TableName="servers", Item={"k": {"S": "a"}}, ConditionExpression="attribute_not_exists(k)")
    with pytest.raises(botocore.exceptions.ClientError, match="ConditionalCheckFailed"):
        client.put_item(TableName="servers", Item={"k": {"S": "a"}}, ConditionExpression="attribute_not_exists(k)")


def test_stop_kills_children_that_ignore_the_polite_signal() -> None:
    script = "trap '' TERM; sleep 1000 & echo $! > child; touch up; wait; wait"
    server = ServerProcess("stubborn")
    server.start(["bash", "-c", script], ready=lambda: (server.folder / "up").exists())
    child = int((server.folder / "child").read_text())
    parent = server.pid
    server.stop()
    assert _wait_gone(parent)
    assert _wait_gone(child)
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
    assert _wait_gone(pid)
