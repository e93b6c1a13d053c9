"""What a command shows of the log: with ``-v`` everything, else only warnings, without their tracebacks."""

from __future__ import annotations

import logging

from slate_async.cli.output import Output


class Warnings(logging.Handler):
    """A warning is one line on standard error, with ``--json`` one object."""

    def __init__(self, output: Output) -> None:
        super().__init__(logging.WARNING)
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        """Show one record. Never fails, because a warning must not stop the code that logs it."""
        try:
            text = record.getMessage()
            if self._output.as_json:
                self._output.problem_json({"warning": text})
            else:
                self._output.problem(f"slate: warning: {text}")
        except Exception:  # noqa: BLE001 - as every handler of the standard library does
            self.handleError(record)


def show_log(output: Output, *, verbose: bool) -> None:
    """Send the log of this process to standard error."""
    if verbose:
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    else:
        logging.basicConfig(level=logging.WARNING, handlers=[Warnings(output)])
