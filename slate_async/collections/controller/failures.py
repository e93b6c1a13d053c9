"""`Failures`: what is logged, and how long is waited, when something that is tried for ever fails again and again."""

from __future__ import annotations

import logging
from dataclasses import dataclass


@dataclass(slots=True)
class Failures:
    """Failures in a row of one thing. The first wait is ``first_ms`` long, each further one twice as long as the one
    before, up to ``most_ms``."""

    first_ms: float
    most_ms: float
    count: int = 0
    _said: str = ""

    def failed(self, logger: logging.Logger, said: str, error: BaseException, *, is_bug: bool = False) -> float:
        """Note ``error``, and log it with what is ``said`` unless the last one was the same; returns how many
        milliseconds to wait.

        is_bug: it is logged with its traceback"""
        text = f"{said}: {error!r}" if is_bug else f"{said}: {error}"
        if text != self._said:
            self._said = text
            logger.log(logging.ERROR if is_bug else logging.WARNING, "%s", text, exc_info=error if is_bug else None)
        pause_ms = min(self.first_ms * 2.0 ** min(self.count, 30), self.most_ms)
        self.count += 1
        return pause_ms

    def passed(self, logger: logging.Logger, said: str) -> None:
        """It went well: the next failure is the first one. Logs what is ``said`` if it had failed."""
        if self.count:
            logger.info("%s", said)
        self.count, self._said = 0, ""
