"""The engine's errors, found in what Spark tells."""

from __future__ import annotations

import traceback

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException

import slate_async as slate
from slate_async.spark.engine_errors import NO_ENGINE, engine_error, plain_errors
from slate_async.storage.sst.reader import MissingError

BEFORE = "[PYTHON_DATA_SOURCE_ERROR] Failed to read: "
BEHIND = [
    "",
    " SQLSTATE: 38000",
    "\n\n\tat org.apache.spark.api.python.BasePythonRunner\n\tat another",
    "\n\tat java.lang",
]


def trace_of(error: Exception) -> str:
    try:
        raise error
    except type(error):
        return traceback.format_exc()


@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("message", ["there is no database here", "two\nlines: the second"])
@pytest.mark.parametrize("kind", [slate.InvalidError, slate.UnavailableError, slate.FencedError])
def test_kind_and_message_are_those_of_the_task(kind: type[slate.SlateError], message: str, behind: str) -> None:
    told = engine_error(BEFORE + trace_of(kind(message)) + behind)
    assert type(told) is kind
    assert str(told) == message


def test_of_several_the_last_counts() -> None:
    text = trace_of(slate.InvalidError("first")) + "\nDuring handling\n\n" + trace_of(slate.ConflictError("last"))
    assert isinstance(told := engine_error(text), slate.ConflictError)
    assert str(told) == "last"


def test_corruption_still_says_where() -> None:
    told = engine_error(trace_of(slate.CorruptionError("bad checksum", object_name="sst/1.sst", offset=9)))
    assert isinstance(told, slate.CorruptionError)
    assert (told.object_name, told.offset) == ("sst/1.sst", 9)
    assert str(told) == "sst/1.sst at byte 9: bad checksum"


def test_narrower_errors_are_reported_as_their_public_kind() -> None:
    told = engine_error(trace_of(MissingError("is gone", object_name="sst/1.sst")))
    assert type(told) is slate.CorruptionError


@pytest.mark.parametrize("text", ["", "ValueError: no", "slate_async.errors.NoError: x", trace_of(ValueError("no"))])
def test_other_errors_are_left_alone(text: str) -> None:
    assert engine_error(text) is None
    with pytest.raises(PySparkException), plain_errors():
        raise PySparkException(text)


@pytest.mark.parametrize("behind", BEHIND)
def test_workers_without_the_engine_are_one_line_of_advice(behind: str) -> None:
    told = engine_error(BEFORE + trace_of(ModuleNotFoundError("No module named 'slate_async'")) + behind)
    assert isinstance(told, slate.InvalidError)
    assert str(told) == NO_ENGINE
    assert "export PYSPARK_PYTHON=$(which python)" in NO_ENGINE
    assert "\n" not in NO_ENGINE
    assert engine_error(trace_of(ModuleNotFoundError("No module named 'numpy'"))) is None


def test_inside_the_block_the_engines_error_takes_the_place_of_sparks() -> None:
    with pytest.raises(slate.InvalidError, match=r"^wrong$") as told, plain_errors():
        raise PySparkException(BEFORE + trace_of(slate.InvalidError("wrong")))
    assert told.value.__suppress_context__
