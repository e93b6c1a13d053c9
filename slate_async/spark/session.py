"""A Spark session of one's own, for a program that is not itself a Spark application."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial

from pyspark.sql import SparkSession

import slate_async as slate

logger = logging.getLogger(__name__)
DEFAULTS = {
    "spark.ui.showConsoleProgress": "false",
    "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
}
"""Over TCP each task of Python waits 40 ms for an acknowledgement that the other end delays."""


@asynccontextmanager
async def spark_session(
    name: str, master: str | None = None, conf: Mapping[str, str] | None = None
) -> AsyncGenerator[SparkSession, None]:
    """A session that is stopped at the end, called ``name`` in Spark's lists of applications.

    master: as of ``spark-submit``; ``None``: Spark's own configuration says
    conf: Spark's settings, by name

    Started and stopped on threads, so the loop goes on, and Ctrl-C stays the loop's. Raises `InvalidError` if Spark
    does not start: master, configuration or Java are not what it needs."""
    try:
        spark = await asyncio.to_thread(partial(_start, name, master, conf or {}))
    except Exception as error:
        raise slate.InvalidError(f"Spark did not start: {_cause(error)}") from error
    try:
        yield spark
    finally:
        try:
            await asyncio.to_thread(spark.stop)
        except Exception:
            logger.debug("Spark had stopped before", exc_info=True)  # its JVM got the signal, too


def _cause(error: Exception) -> str:
    """One line: an error of the JVM prints what was called, then the exception after a colon, then its stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    thrown = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    return next(iter(thrown or lines), type(error).__name__)


def _start(name: str, master: str | None, conf: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in {**DEFAULTS, **conf}.items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    context = spark.sparkContext
    if str(context.master).startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable  # else whatever "python3" is here
    return spark
