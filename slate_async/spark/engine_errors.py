"""The engine's errors, when Spark tells them: a page of traces, of Python and of the JVM, with one clear line inside.

Where Spark is called from here, the engine's error is raised in place of Spark's. It is found in the text, the one
thing of it that Spark hands over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

import slate_async as slate
import slate_async.database.open

_REPORTED = re.compile(
    r"^slate_async(?:\.\w+)*\.(?P<name>\w+): (?P<message>.*?)(?=\n\s*\n|\n\s+at |\s+SQLSTATE: |\s*\Z)", re.M | re.S
)
"""The last line of a Python trace, or lines, up to what Spark puts behind it."""
_NOT_FOUND = re.compile(r"^ModuleNotFoundError: No module named 'slate_async'\s*$", re.M)
NO_ENGINE = (
    "Spark's Python workers do not find slate_async: before Spark starts, set PYSPARK_PYTHON to the interpreter"
    " that has it, as by export PYSPARK_PYTHON=$(which python)"
)
_CORRUPTION = re.compile(r"(?P<object>.*?) at byte (?P<offset>\d+): (?P<message>.*)", re.S)


@contextmanager
def plain_errors() -> Iterator[None]:
    """What Spark raises inside the block because of an error of the engine is raised as that error."""
    try:
        yield
    except PySparkException as error:
        own = engine_error(str(error))
        if own is None:
            raise
        raise own from None


def engine_error(text: str) -> slate.SlateError | None:
    """The error of the engine that ``text``, of Spark's error, ends with; ``None`` if it is about something else.
    Where the engine is not installed, too, there is one."""
    if _NOT_FOUND.search(text):
        return slate.InvalidError(NO_ENGINE)
    reported = list(_REPORTED.finditer(text))
    kind = _kinds().get(reported[-1]["name"]) if reported else None
    if kind is None:
        return None
    message = reported[-1]["message"].strip()
    if kind is not slate.CorruptionError:
        return kind(message)
    bad = _CORRUPTION.fullmatch(message)
    if bad is None:
        return slate.SlateError(message)
    return slate.CorruptionError(bad["message"], object_name=bad["object"], offset=int(bad["offset"]))


def _kinds() -> dict[str, type[slate.SlateError]]:
    """The public kind of each error, by the error's name."""
    kinds: dict[str, type[slate.SlateError]] = {slate.SlateError.__name__: slate.SlateError}
    for kind in slate.SlateError.__subclasses__():
        public = kind if kind.__module__ == slate.SlateError.__module__ else slate.SlateError
        narrower = [kind]
        while narrower:
            one = narrower.pop()
            kinds[one.__name__] = public
            narrower += one.__subclasses__()
    return kinds
