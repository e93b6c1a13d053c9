"""How far a load has come, where no JVM is at hand to ask."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from slate_async.spark.progress import LoadProgress, watched


class Client:
    """A session of Spark Connect, as far as it is asked."""

    __module__ = "pyspark.sql.connect.session"

    def __init__(self) -> None:
        self.handlers: list[Callable[..., None]] = []

    def registerProgressHandler(self, handler: Callable[..., None]) -> None:
        self.handlers.append(handler)

    def removeProgressHandler(self, handler: Callable[..., None]) -> None:
        self.handlers.remove(handler)

    def says(self, operation: str, **stages: tuple[int, int]) -> None:
        found = [
            SimpleNamespace(stage_id=name, num_completed_tasks=done, num_tasks=total)
            for name, (done, total) in stages.items()
        ]
        for handler in self.handlers:
            handler(found, 1, operation, False)


def test_a_client_is_asked_by_a_handler() -> None:
    spark: Any = Client()
    seen: list[LoadProgress] = []
    with watched(spark, "a load", seen.append):
        spark.says("first")
        spark.says("first", one=(1, 4))
        spark.says("second", one=(0, 2))
        spark.says("first", one=(4, 4), two=(0, 8))
        other = threading.Thread(target=spark.says, args=("other",), kwargs={"one": (1, 1)})
        other.start()
        other.join()
    assert [(progress.tasks_done, progress.tasks_total) for progress in seen] == [(0, 0), (1, 4), (1, 6), (4, 14)]
    assert spark.handlers == []


def test_what_the_callback_raises_ends_the_telling_alone(caplog: pytest.LogCaptureFixture) -> None:
    spark: Any = Client()
    calls = []

    def broken(progress: LoadProgress) -> None:
        calls.append(progress)
        raise ZeroDivisionError

    with watched(spark, "a load", broken):
        spark.says("first", one=(1, 4))
        spark.says("first", one=(2, 4))
    assert len(calls) == 1
    assert "telling the progress of a load failed" in caplog.text
