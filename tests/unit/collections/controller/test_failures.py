"""`slate_async.collections.controller.failures`."""

from __future__ import annotations

import logging

import pytest

from slate_async.collections.controller.failures import Failures
from slate_async.errors import CorruptionError, UnavailableError

logger = logging.getLogger(__name__)


def test_waits_grow_to_a_limit_and_the_same_failure_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    failures = Failures(100, 1_000)
    with caplog.at_level(logging.INFO):
        waits = [failures.failed(logger, "it", UnavailableError("no answer")) for _ in range(6)]
        failures.failed(logger, "it", CorruptionError("damaged", object_name="a"))
        failures.passed(logger, "it goes on")
        failures.passed(logger, "it goes on")
        assert failures.failed(logger, "it", UnavailableError("no answer")) == 100
    assert waits == [100, 200, 400, 800, 1_000, 1_000]
    said = [record.getMessage() for record in caplog.records]
    assert said == ["it: no answer", "it: a at byte 0: damaged", "it goes on", "it: no answer"]


def test_a_bug_is_logged_with_where_it_happened(caplog: pytest.LogCaptureFixture) -> None:
    failures = Failures(100, 1_000)
    try:
        raise ZeroDivisionError("bug")
    except ZeroDivisionError as error:
        for _ in range(2):
            failures.failed(logger, "it", error, is_bug=True)
    [record] = caplog.records
    assert (record.levelno, record.exc_info is not None) == (logging.ERROR, True)
