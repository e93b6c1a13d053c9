"""A client in a process of its own, with a Spark Connect server in the JVM of the tests' session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.integration.processes import ChildProcess
from tests.spark.connect_client import ROWS

pytest.importorskip("grpc")
pytestmark = pytest.mark.timeout(600)
LIMIT_S = 400.0


@pytest.fixture
def connect_port(spark: SparkSession) -> Iterator[int]:
    """Of the server, which ends with the test."""
    context = spark.sparkContext
    jvm, scala = context._jvm, context._jsc.sc()
    assert jvm is not None
    service = getattr(getattr(jvm.org.apache.spark.sql.connect.service, "SparkConnectService$"), "MODULE$")
    scala.conf().set("spark.connect.grpc.binding.address", "127.0.0.1")
    scala.conf().set("spark.connect.grpc.binding.port", "0")
    service.start(scala)
    yield service.localPort()
    service.stop(jvm.scala.Option.empty(), jvm.scala.Option.empty())


async def test_a_client_loads_reads_and_streams(connect_port: int, tmp_path: Path) -> None:
    async with ChildProcess(["-m", "tests.spark.connect_client", str(connect_port), str(tmp_path)]) as client:
        await client.wait_for_line("done", timeout=LIMIT_S)
        assert client.received == [
            f"loaded applied {ROWS}",
            "progress True",
            "loaded applied",
            "left ['applied']",
            f"read {sum(range(ROWS))}",
            "looked up [('000007', 7)]",
            f"streamed True {ROWS}",
            "counted by its id True",
            "refused ['does not tell which query counts the batches']",
            "loaded True",
            "refused ['are counted by query one, and this one comes from query two']",
            "batches [('orders/two/0', 'aborted'), ('orders/one/0', 'applied')]",
            "at a time [('ann', 5, 1, 1), ('bob', 7, 1, 2)]",
            "copied [(('bob', 7), 2), (('eve', 9), 1)]",
            "refused True",
            "registered 100",
            "done",
        ]
