"""Durations of the command line, read from text."""

from __future__ import annotations

import pytest

from slate_async.cli.durations import parse_duration
from slate_async.errors import InvalidError

DAY = 86_400_000


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("7days 30min 10s", 7 * DAY + 30 * 60_000 + 10_000),
        ("90s", 90_000),
        (" 1.5 h ", 5_400_000),
        ("1y2w3d", (365 + 14 + 3) * DAY),
        ("250ms", 250),
        ("1 Day, 1 Minute", DAY + 60_000),
    ],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert parse_duration(text, what="--lifetime") == milliseconds


@pytest.mark.parametrize(
    "text", ["", "  ", "10", "s", "-1s", "1 parsec", "1s x", "0s", "0.1ms", "2000y", "1e3s", "9" * 400 + "d"]
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(InvalidError, match="--lifetime"):
        parse_duration(text, what="--lifetime")
