"""Keys of log objects, and parsing them back. Anything else under ``log/`` is not ours and is refused."""

from __future__ import annotations

import re

from slate_async.errors import CorruptionError

PREFIX = "log/"
_CONTIGUOUS = re.compile(r"log/(\d{20})\.sst")
_EPOCH_PREFIXED = re.compile(r"log/(\d{18})\.(\d{18})\.sst")


def contiguous_key(log_id: int) -> str:
    """``log/{id:020}.sst``"""
    return f"log/{log_id:020}.sst"


def epoch_key(epoch: int, log_id: int) -> str:
    """``log/{epoch:018}.{id:018}.sst``"""
    return f"log/{epoch:018}.{log_id:018}.sst"


def parse_contiguous(key: str) -> int:
    """The id of a contiguous log key. Raises `CorruptionError` for any other name."""
    match = _CONTIGUOUS.fullmatch(key)
    if match is None:
        raise CorruptionError("not the name of a log object", object_name=key)
    return int(match[1])


def parse_epoch_prefixed(key: str) -> tuple[int, int]:
    """``(epoch, id)`` of an epoch-prefixed log key. Raises `CorruptionError` for any other name."""
    match = _EPOCH_PREFIXED.fullmatch(key)
    if match is None:
        raise CorruptionError("not the name of a log object", object_name=key)
    return int(match[1]), int(match[2])


def position_of(key: str) -> int:
    """The position of a log object of either protocol. Raises `CorruptionError` for any other name."""
    return parse_epoch_prefixed(key)[1] if _EPOCH_PREFIXED.fullmatch(key) else parse_contiguous(key)
