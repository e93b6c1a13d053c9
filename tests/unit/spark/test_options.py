"""Options of reads and arguments of loads: an impossible value is refused by name, before Spark does anything."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadMaxBytes, ReadMaxRows

import slate_async as slate
from slate_async.spark import bulk_load, decode_json, plan_load
from slate_async.spark import read as spark_read
from slate_async.spark.options import as_strings, place
from slate_async.spark.read_options import ReadOptions, at_checkpoint
from slate_async.spark.stream_options import DEFAULT_ROWS, StreamOptions
from slate_async.spark.stream_reader import ChangesReader

NO_FRAME = cast(Any, None)
MEMORY = "memory://"
SECRET = "s3://AKIAEXAMPLE:hush@bucket/db"


def read(**options: Any) -> ReadOptions:
    return ReadOptions.of(as_strings({"path": "/db", **options}))


def test_values_become_what_they_say() -> None:
    moment, checkpoint = datetime(2030, 1, 1, tzinfo=UTC), UUID(int=7)
    options = read(prefix="757365723a", keyEncoding="HEX", columns="key", atTime=moment, checkpoint=checkpoint)
    assert (options.prefix, options.columns, options.checkpoint) == (b"user:", ("key",), str(checkpoint))
    assert options.at_time == moment.timestamp()
    assert read(metastore=None).metastore is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"prefix": b"user:"}, "option prefix is text.* not bytes; .*keyEncoding='hex'"),
        ({"startKey": ["a"]}, "option startKey is text.* not list"),
        ({"atTime": "nan"}, "option atTime='nan': a finite number"),
        ({"atSeq": "1.5"}, "option atSeq='1.5': a whole number"),
        ({"atTime": "noon"}, "option atTime='noon': seconds since 1970, or a time with its zone"),
        ({"partitionBytes": "64MB"}, "option partitionBytes='64MB': a number of bytes, without a unit"),
        ({"checkpointLifetime": "1h"}, "option checkpointLifetime='1h': a positive number of seconds"),
        ({"prefix": "zz", "keyEncoding": "hex"}, "option prefix='zz': pairs of hexadecimal digits"),
        ({"startKey": "b", "endKey": "a"}, "option startKey=b'b' is above option endKey=b'a'"),
        ({"checkpoint": "c", "CHECKPOINTLIFETIME": 5}, "checkpointLifetime is of a checkpoint that is made"),
        ({"checkpointLifetime": "nan"}, "option checkpointLifetime='nan'"),
        ({"path": "memory://db"}, "memory of one process"),
        ({"path": SECRET}, "must not hold credentials"),
        ({"path": ""}, r"option path is missing: .*CREATE TEMPORARY VIEW .* WITH \(path = "),
        ({"provider": "slate", "owner": "me", "location": "/db"}, "CREATE TABLE .*: use CREATE TEMPORARY VIEW"),
        ({"owner": "me"}, "unknown option owner"),
        ({"secret_key": "hush"}, "unknown option secret_key; .* Credentials come from the environment"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(slate.InvalidError, match=said) as refused:
        read(**options)
    assert "hush" not in str(refused.value)


def test_a_checkpoint_that_was_made_takes_the_place_of_its_lifetime() -> None:
    options = at_checkpoint({"checkpointlifetime": 60, "Checkpoint": "name", "prefix": "a"}, "made")
    assert read(**options).checkpoint == "made"


def test_a_folder_is_the_same_wherever_a_process_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert place("db") == place(Path("db")) == str(tmp_path / "db")
    assert place("s3://bucket/db") == "s3://bucket/db"
    assert StreamOptions.of({"path": "db"}).path == str(tmp_path / "db")


@pytest.mark.parametrize("path", ["dbfs:/x", "DBFS:/x", "hdfs:/x/y", "s3a:/bucket/db"])
def test_a_file_system_of_hadoop_is_no_folder(path: str) -> None:
    """Below the working one a load would make a database on the driver's disk."""
    for take in (place, lambda text: read(path=text), lambda text: bulk_load(NO_FRAME, text)):
        with pytest.raises(slate.InvalidError, match=f"^{path.partition(':')[0]}:/ is a file system of Hadoop's"):
            take(path)
    assert place("file:/x") == "/x"


def stream(**options: Any) -> StreamOptions:
    return StreamOptions.of(as_strings({"path": "/db", **options}))


def test_options_of_streams() -> None:
    starts = {"beginning": 0, "now": "now", 7: 7}
    assert {said: stream(startingSeq=said).start for said in starts} == starts
    assert (stream().start, stream(maxBytesPerTrigger=5).max_bytes) == (0, 5)
    times = {"7.5": 7.5, "1970-01-01T00:00:09+00:00": 9.0}
    assert {said: stream(startingTime=said).start_time for said in times} == times
    both = stream(maxRowsPerTrigger=9, maxBytesPerTrigger=5)
    limits = (stream(), both, stream(maxBytesPerTrigger=5))
    assert [ChangesReader(limit).getDefaultReadLimit() for limit in limits] == [
        ReadMaxRows(DEFAULT_ROWS),
        ReadMaxRows(9),
        ReadMaxBytes(5),
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingSeq": "-1"}, "option startingSeq='-1': a sequence number"),
        ({"startingSeq": "latest"}, 'option startingSeq=.*"beginning" or "now"'),
        ({"startingSeq": 0, "startingTime": 1}, "one of the options startingSeq and startingTime"),
        ({"startingTime": "2026-01-31"}, "option startingTime='2026-01-31': a time needs its time zone"),
        ({"maxRowsPerTrigger": 0}, "option maxRowsPerTrigger='0'"),
        ({"subscriptionLifetime": "-5"}, "option subscriptionLifetime='-5'"),
        ({"checkpoint": "c"}, "unknown option checkpoint"),
    ],
)
def test_wrong_options_of_streams_are_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(slate.InvalidError, match=said):
        stream(**options)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"path": "memory://db"}, "memory of one process"),
        ({"path": SECRET}, "must not hold credentials"),
        ({"job_id": ""}, "a job id is"),
        ({"batch": ("app", -1)}, "a batch number is"),
        ({"batch": ("app", 1), "job_id": "load"}, "a batch has a job of its own"),
        ({"batch": ("a" * 200, 1, "query")}, "a job id is"),
        ({"batch": ("app", 1, "")}, "a query id is"),
        ({"timeout": -1}, "timeout is a positive number"),
        ({"lifetime": 0}, "lifetime is a positive number"),
        ({"target_sst_bytes": 0}, "target_sst_bytes=0: a number of bytes"),
        ({"target_sst_bytes": 64}, "target_sst_bytes=64: a number of bytes, at least 65536"),
        ({"target_sst_bytes": 1 << 50}, "target_sst_bytes=1125899906842624: .*sst_bytes"),
        ({"mode": "append"}, "mode is one of auto, ingest, exclusive"),
        ({"sort_mode": "hash"}, "sort_mode is one of"),
        ({"sort_mode": "none", "partitions": 3}, "partitions= goes with"),
        ({"partitions": "4"}, "partitions='4': a whole number of 1 or more"),
        ({"partitions": 0}, "partitions=0: a whole number of 1 or more"),
        ({}, "rows of a load are a DataFrame of Spark, not NoneType"),
        ({"ttl": 0}, "ttl is a positive number"),
        ({"ttl": float("nan")}, "ttl is a positive number"),
        ({"ttl": 5, "expire": "e"}, "one of expire= and ttl="),
    ],
)
def test_arguments_of_a_load_are_checked_before_anything_is_done(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(slate.InvalidError, match=said) as refused:
        bulk_load(NO_FRAME, **{"path": "/db", **arguments})
    assert "hush" not in str(refused.value)


def test_a_read_needs_a_session_and_names_of_columns() -> None:
    with pytest.raises(slate.InvalidError, match="spark is a SparkSession, not NoneType"):
        spark_read(NO_FRAME, "/db")
    with pytest.raises(slate.InvalidError, match=r"columns='key,seq': a list of names, e\.g\. \['key', 'seq'\]"):
        spark_read(NO_FRAME, "/db", columns="key,seq")


@pytest.mark.parametrize("said", ["nul", "Fail", None])
def test_what_becomes_of_values_that_cannot_be_read_is_one_of_two(said: Any) -> None:
    with pytest.raises(slate.InvalidError, match="on_error is one of 'fail', 'null', not"):
        decode_json(NO_FRAME, "name string", on_error=said)


def test_arguments_of_a_rehearsal_are_checked_too() -> None:
    with pytest.raises(slate.InvalidError, match="sort_mode is one of"):
        plan_load(NO_FRAME, sort_mode=cast(Any, "hash"))
