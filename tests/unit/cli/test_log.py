"""What a command shows of the log: warnings in a line each, the rest with ``-v``."""

import io
import json
import logging

import pytest
from rich.console import Console

from slate_async.cli.log import Warnings
from slate_async.cli.output import Output


@pytest.mark.parametrize(
    ("as_json", "shown"),
    [(False, "slate: warning: 3 puts failed\n"), (True, '{"warning":"3 puts failed"}\n')],
)
def test_a_warning_is_one_line_without_traceback(as_json: bool, shown: str) -> None:
    error = Console(file=io.StringIO(), width=10)
    logger = logging.Logger("engine")
    logger.addHandler(Warnings(Output(as_json, err=error)))
    logger.info("nothing to see")
    try:
        raise ValueError("of no interest")
    except ValueError:
        logger.exception("%d puts failed", 3)
    text = error.file.getvalue()  # type: ignore[attr-defined]
    assert text == shown
    assert not as_json or json.loads(text)
