"""Options of every command stand before or after it."""

from __future__ import annotations

import pytest

from slate_async.cli.arguments import hoisted
from tests.unit.cli.conftest import FakeDatabase, Run


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (["get", "k", "--path", "p"], ["--path", "p", "get", "k"]),
        (["get", "k", "--path=p", "-v"], ["--path=p", "-v", "get", "k"]),
        (["--path", "a", "get", "k", "--path", "b"], ["--path", "a", "--path", "b", "get", "k"]),
        (["get", "--metastore", "m", "k", "--settings", "s"], ["--metastore", "m", "--settings", "s", "get", "k"]),
        (["put", "--", "--path", "p"], ["put", "--", "--path", "p"]),
        (["mirror", "t", "--target-metastore", "m"], ["mirror", "t", "--target-metastore", "m"]),
        (["get", "k", "--path"], ["--path"]),
        (["get", "k", "--path", "--json"], ["--json", "--path"]),
        (["get", "k", "--path", "--settings=s"], ["--settings=s", "--path"]),
        (["get", "k", "--json", "--", "--json"], ["--json", "get", "k", "--", "--json"]),
    ],
)
def test_they_are_put_in_front(given: list[str], wanted: list[str]) -> None:
    assert hoisted(given) == (wanted, "--json" in wanted[: wanted.index("--") if "--" in wanted else None])


def test_the_path_may_stand_after_the_command(slate: Run, database: FakeDatabase) -> None:
    database.rows = {b"k": b"v"}
    assert slate("get", "k", "--path", "memory://other", "--metastore", "if-match", path=None).out == "v\n"
    assert [(arguments["path"], arguments["metastore"]) for arguments in database.opened] == [
        ("memory://other", "if-match")
    ]


def test_an_option_without_its_value_is_refused(slate: Run) -> None:
    for given in (("--path",), ("--path", "--verbose"), ("--metastore",)):
        result = slate("get", "k", *given, path=None)
        assert (result.code, f"'{given[0]}' requires an argument" in result.err) == (2, True), result.err
