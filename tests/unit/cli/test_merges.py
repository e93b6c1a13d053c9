"""``merge``, ``increment`` and range deletes over the real engine on a local folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run


@pytest.fixture
def path(slate: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database with an operator."""
    found = str(tmp_path / "db")
    monkeypatch.setenv("SLATE_MERGE_OPERATOR", "add_i64")
    assert slate("put", "there", "x", path=found).code == 0
    monkeypatch.delenv("SLATE_MERGE_OPERATOR")
    return found


def test_numbers_are_added_and_shown(slate: Run, path: str) -> None:
    assert slate("merge", "visits", "--i64", "40", path=path).code == 0
    assert slate("merge", "visits", "--hex", "0200000000000000", path=path).code == 2, "the key is hexadecimal, too"
    assert slate("merge", "766973697473", "0200000000000000", "--hex", path=path).code == 0
    assert slate("get", "visits", "--i64", path=path).out == "42\n"
    assert slate("increment", "visits", path=path).out == "43\n"
    assert slate("increment", "visits", path=path, options=("--json",)).objects == [{"key": "visits", "number": 44}]
    assert slate("increment", "visits", "--", "-50", path=path).out == "-6\n"
    assert slate("get", "visits", "--i64", path=path, options=("--json",)).objects == [
        {"key": "visits", "found": True, "number": -6}
    ]
    refused = slate("get", "there", "--i64", path=path)
    assert (refused.code, "holds no number" in refused.err) == (2, True)


def test_an_increment_with_a_token_counts_once(slate: Run, path: str) -> None:
    for _ in range(2):
        assert slate("increment", "n", "5", "--token", "t", "--token-ttl", "60", path=path).out == "5\n"
    assert slate("increment", "n", "5", "--token", "u", path=path).out == "10\n"


def test_an_operand_comes_from_a_file(slate: Run, path: str, tmp_path: Path) -> None:
    (tmp_path / "operand").write_bytes((7).to_bytes(8, "little"))
    assert slate("merge", "n", "--file", str(tmp_path / "operand"), path=path).code == 0
    assert slate("get", "n", "--i64", path=path).out == "7\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("merge", "k"), "give either OPERAND"),
        (("merge", "k", "x", "--i64", "1"), "give either OPERAND"),
        (("merge", "k", "--i64", str(2**63)), "64 bits"),
        (("merge", "k", "x", "--ttl", "0"), "--ttl"),
        (("increment", "k", str(2**63)), "64 bits"),
        (("increment", "k", "--token", "k"), "a key of its own"),
        (("increment", "k", "--token-ttl", "5"), "--token-ttl goes with --token"),
        (("increment", "k", "--token", "t", "--token-ttl", "-1"), "--token-ttl must be"),
    ],
)
def test_arguments_are_checked_before_the_database_is_opened(
    slate: Run, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    missing = tmp_path / "missing"
    refused = slate(*arguments, path=str(missing))
    assert (refused.code, said in refused.err) == (2, True), refused.err
    assert not missing.exists()


def test_what_the_database_refuses_is_said(slate: Run, path: str, tmp_path: Path) -> None:
    refused = slate("merge", "k", "x", path=path)
    assert (refused.code, "a 64-bit integer has 8 bytes, not 1" in refused.err) == (2, True), refused.err
    refused = slate("increment", "there", path=path)
    assert (refused.code, "holds no number" in refused.err) == (2, True), refused.err
    plain = str(tmp_path / "plain")
    assert slate("merge", "k", "x", path=plain).code == 2
    assert slate("put", "k", "x", path=plain).code == 0
    refused = slate("merge", "k", "x", path=plain)
    assert (refused.code, "has no merge operator" in refused.err) == (2, True), refused.err


@pytest.mark.parametrize("wal", [True, False])
def test_a_range_is_deleted(slate: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wal: bool) -> None:
    path = str(tmp_path / "ranges")
    monkeypatch.setenv("SLATE_WAL_ENABLED", "true" if wal else "false")
    for key in ("a:1", "a:2", "b", "c", "d"):
        assert slate("put", key, "x", path=path).code == 0
    deleted = slate("delete", "--prefix", "a:", path=path, options=("--json",)).objects
    assert deleted == ([{"seq": 6}] if wal else [{"deleted": 2}])
    assert slate("delete", "--start", "b", "--end", "d", path=path).code == 0
    assert slate("scan", "--keys-only", path=path).out == "d\n"
    assert slate("delete", "--start", "c", path=path).code == 0
    assert slate("count", path=path).out == "0\n"
