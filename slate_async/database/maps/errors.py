"""Errors of maps alone."""

from __future__ import annotations

from slate_async.errors import ConflictError


class UniqueError(ConflictError):
    """Two rows of a map would have one key in a unique index. Nothing was applied; ``reason`` is ``"unique"``."""

    map_name: str
    """The map."""
    index: str
    """The unique index."""
    parts: tuple[object, ...]
    """The key in the index."""
    holder: object
    """The key of the row that has it."""

    def __init__(self, map_name: str, index: str, parts: tuple[object, ...], holder: object, entry: bytes) -> None:
        super().__init__(
            f"index {index!r} of map {map_name!r} is unique, and row {holder!r} has {shown_parts(parts)} there",
            outcome="not_applied",
            key=entry,
            reason="unique",
        )
        self.map_name, self.index, self.parts, self.holder = map_name, index, parts, holder


def shown_parts(parts: tuple[object, ...]) -> str:
    """A key of one part without its parentheses."""
    return repr(parts[0] if len(parts) == 1 else parts)
