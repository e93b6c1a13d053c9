"""A standalone Spark cluster of this machine: a master and two workers of one core, each a process of its own.

They are the pyspark package's. What is in a worker's environment is in its executors'; a driver's is not. The workers
are two hosts to Spark, by two addresses of the loopback: it puts no two attempts of a task on one.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

import pyspark

from tests.servers.process import ROOT, ServerProcess, accepts, free_port

HOST = "127.0.0.1"
HOME = Path(pyspark.__file__).parent
START_LIMIT_S = 180.0
HOSTS = (HOST, "127.0.0.2")
"""One for each worker."""
WORKERS = len(HOSTS)
JAVA = {"SPARK_HOME": str(HOME), "SPARK_DAEMON_MEMORY": "256m"}


class SparkCluster:
    """Started when made. ``url`` is its master's; ``env`` is that of executors."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._processes: list[ServerProcess] = []
        port, self._ui = free_port(), free_port()
        self.url = f"spark://{HOST}:{port}"
        try:
            ui = ["--port", str(port), "--webui-port", str(self._ui)]
            self._start("master", HOST, ui, {}, lambda: self._alive() == 0)
            python = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
            own = ["--webui-port", "0", "--cores", "1", "--memory", "1g", self.url]
            for host in HOSTS:
                ready = self._all_alive if host == HOSTS[-1] else lambda: True
                self._start("worker", host, own, {**python, **env}, ready)
        except BaseException:
            self.stop()
            raise

    def _start(
        self, name: str, host: str, arguments: list[str], env: Mapping[str, str], ready: Callable[[], bool]
    ) -> None:
        process = ServerProcess(f"spark-{name}")
        self._processes.append(process)
        command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}.{name.title()}", "--host", host]
        own = {"SPARK_LOCAL_IP": host, "SPARK_WORKER_DIR": str(process.folder)}
        process.start([*command, *arguments], env={**JAVA, **own, **env}, ready=ready, timeout=START_LIMIT_S)

    def _all_alive(self) -> bool:
        return self._alive() == WORKERS

    def _alive(self) -> int:
        """Workers that the master knows; -1 while it does not answer."""
        if not accepts(self._ui):
            return -1
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._ui}/json/", timeout=10) as answer:
                return int(json.load(answer)["aliveworkers"])
        except (urllib.error.URLError, TimeoutError, ConnectionError, ValueError):
            return -1

    def stop(self) -> None:
        """End all of it. Idempotent."""
        for process in reversed(self._processes):
            process.stop()
        self._processes.clear()
