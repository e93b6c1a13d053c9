"""What every setting is made of: its unit, its default, and the reason for the default."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field

LogProtocol: TypeAlias = Literal["contiguous", "epoch_prefixed"]
"""How the log's objects are named and made exclusive."""
Ack: TypeAlias = Literal["committed", "flushed"]
OnOutage: TypeAlias = Literal["reopen", "close"]
Compression: TypeAlias = Literal["none", "zstd", "lz4"]
"""How blocks are compressed."""
CompactionStyle: TypeAlias = Literal["size_tiered", "leveled"]

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
MINUTE_MS = 60_000
DAY_MS = 86_400_000


def _file_mode(given: object) -> str:
    if isinstance(given, str) and re.fullmatch("umask|0?6[0246][0246]", given):
        return given
    raise ValueError(
        'this is a string, "umask" or octal digits such as "0640", 6 for the owner and 0, 2, 4 or 6 for others'
    )


FileMode: TypeAlias = Annotated[str, BeforeValidator(_file_mode)]


def setting(
    default: Any = None,
    *,
    unit: str,
    what: str,
    why: str,
    scaled: Callable[[dict[str, Any]], int] | None = None,
    default_text: str | None = None,
    **bounds: Any,
) -> Any:
    """A documented field. ``scaled`` computes the default from the fields declared above."""
    documented: dict[str, Any] = {"unit": unit, "what": what, "why": why}
    if default_text is not None:
        documented["default_text"] = default_text
    description = f"{what} Unit: {unit}. Default: {default_text or default}. {why}"
    if scaled is not None:
        return Field(default_factory=scaled, description=description, json_schema_extra=documented, **bounds)
    return Field(default, description=description, json_schema_extra=documented, **bounds)


def share(limit: int, of: str, divisor: int) -> Callable[[dict[str, Any]], int]:
    """The default ``limit``, or that share of the setting ``of`` where it is less, at least 1."""
    return lambda values: max(1, min(limit, values.get(of, limit * divisor) // divisor))
