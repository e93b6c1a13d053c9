"""`ReadPoint`: what one read sees."""

from __future__ import annotations

from typing import NamedTuple

from slate_async.engine.read.view import ReadView


class ReadPoint(NamedTuple):
    """A view, the highest sequence number, and the time that judges expiry, in milliseconds.

    Every row up to ``max_seq`` is in the view already, so what a point shows never changes."""

    view: ReadView
    max_seq: int
    now_ms: int
