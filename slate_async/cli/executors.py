"""``--executor``: where the key ranges of a compaction are merged, in this process or on Spark."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum

from slate_async.cli.session import Session
from slate_async.engine.compaction.executor import Executor
from slate_async.errors import InvalidError

_OPTIONAL = frozenset({"pyspark", "py4j", "pandas"})


class ExecutorName(StrEnum):
    """What merges key ranges."""

    LOCAL = "local"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class ExecutorRequest:
    """What ``--executor`` and the options that go with it say; ``spark_conf``: ``NAME=VALUE`` as typed."""

    name: ExecutorName
    master: str | None
    spark_conf: Sequence[str]

    def conf(self) -> dict[str, str]:
        """Spark's settings by name. Raises `InvalidError`."""
        if self.name is not ExecutorName.SPARK and (self.master is not None or self.spark_conf):
            raise InvalidError("--master and --spark-conf belong to --executor spark")
        pairs = [option.partition("=") for option in self.spark_conf]
        for name, sign, _ in pairs:
            if not name or not sign:
                raise InvalidError("--spark-conf is NAME=VALUE, as spark-submit's --conf")
        return {name: value for name, _, value in pairs}


@asynccontextmanager
async def executing(session: Session, wanted: ExecutorRequest) -> AsyncGenerator[Executor | None, None]:
    """The executor asked for, open; ``None`` is this process. Spark is started for a database that is there only.

    Raises `InvalidError`, `UnavailableError`."""
    conf = wanted.conf()
    if wanted.name is ExecutorName.LOCAL:
        yield None
        return
    path = session.database()
    try:
        from slate_async.spark.compaction import SparkExecutor  # noqa: PLC0415 - an extra
        from slate_async.spark.session import spark_session  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _OPTIONAL:
            raise
        raise InvalidError(
            "--executor spark needs more packages: pip install 'slate-async[spark]'; or leave it out to compact here"
        ) from error
    async with session.administering() as admin:
        await admin.checkpoints.list()  # raises if there is no database, long before Spark would be up
    ranges = session.settings().compaction_parallelism
    session.output.note("starting Spark")
    async with spark_session(f"slate compactor {path}", wanted.master, conf) as spark:
        session.output.note(f"Spark {spark.version} at {spark.sparkContext.master}, {ranges} key ranges at a time")
        with SparkExecutor(spark, path, metastore=session.metastore, parallelism=ranges) as executor:
            yield executor
