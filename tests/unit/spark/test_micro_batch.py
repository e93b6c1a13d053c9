"""Which query runs a function of ``foreachBatch``, where Spark does not tell it."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, cast

import pytest

pytest.importorskip("pyspark")

import slate_async as slate
from slate_async.spark.micro_batch import CONNECT_WORKER, query_of_call


class Client:
    """A session of Spark Connect, as far as it is looked at."""


Client.__module__ = "pyspark.sql.connect.session"


@pytest.mark.parametrize(("program", "refused"), [(None, False), ("my.program", False), (CONNECT_WORKER, True)])
def test_only_functions_of_spark_connect_must_name_their_query(
    program: str | None, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that loads by itself counts as it likes."""
    main = ModuleType("__main__")
    main.__spec__ = None if program is None else ModuleSpec(program, None)
    monkeypatch.setitem(sys.modules, "__main__", main)
    client = cast(Any, Client())
    if refused:
        with pytest.raises(slate.InvalidError, match="give a third part, batch=") as error:
            query_of_call(client)
        assert error.value.outcome == "not_applied"
    else:
        assert query_of_call(client) is None
