"""The data sources as Spark asks them, and what needs no session: the tests answer in its place."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("pyspark")

import slate_async as slate
from slate_async.spark import (
    SlateChangesSource,
    SlateCollectionSource,
    SlateDataSource,
    export_parquet,
    read_changes,
    reading,
    register,
)
from slate_async.spark.typed_rows import ROW

NO_SESSION = cast(Any, None)


class Session:
    """Counts what is registered."""

    def __init__(self) -> None:
        self.registered: list[object] = []

    @property
    def dataSource(self) -> Any:
        """Itself, as the registry."""
        return self

    def register(self, source: object) -> None:
        self.registered.append(source)


def test_a_session_learns_a_format_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")  # else the session is asked which Python its tasks have
    first, second = Session(), Session()
    for session in (first, first, second):
        register(cast(Any, session))
    assert first.registered == second.registered == [SlateDataSource, SlateChangesSource, SlateCollectionSource]


@pytest.mark.parametrize(
    ("options", "said"),
    [({}, "path is missing"), ({"path": "/db", "startingSeq": "latest"}, "option startingSeq='latest'")],
)
def test_wrong_options_of_changes_are_reported_when_spark_asks_for_the_schema(
    options: dict[str, str], said: str
) -> None:
    with pytest.raises(slate.InvalidError, match=said):
        SlateChangesSource(options).schema()


def test_wrong_options_of_changes_are_reported_at_once() -> None:
    with pytest.raises(slate.InvalidError, match="option startingSeq='latest'"):
        read_changes(NO_SESSION, "/db", startingSeq="latest")


def test_the_format_of_rows_names_that_of_changes() -> None:
    with pytest.raises(slate.InvalidError, match=r"readStream\.format\(\"slate-changes\"\)"):
        SlateDataSource({"path": "/db"}).streamReader(ROW).initialOffset()


def test_a_checkpoint_that_is_not_there_is_reported_before_spark_does_anything(tmp_path: Path) -> None:
    async def make() -> None:
        await (await slate.open(tmp_path / "db")).close()

    asyncio.run(make())
    with pytest.raises(slate.InvalidError, match="nope"), reading(NO_SESSION, str(tmp_path / "db"), checkpoint="nope"):
        pass
    with pytest.raises(slate.InvalidError, match="nope"):
        export_parquet(NO_SESSION, str(tmp_path / "db"), str(tmp_path / "files"), checkpoint="nope")
    with pytest.raises(slate.InvalidError, match="no database"):
        export_parquet(NO_SESSION, str(tmp_path / "nowhere"), str(tmp_path / "files"))
