"""Offsets of streams of collections: frontiers, with the hold that keeps what comes after them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, TypeAlias
from uuid import UUID

from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.times import TimeKind
from slate_async.errors import InvalidError

OffsetFields: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Position:
    """How far a query is.

    frontier: updates at times that are not beyond it come before
    since: of a query that begins with contents: their time. Updates up to it are in the first micro-batch, at that time
    """

    frontier: Frontier
    since: int | None

    def fields(self) -> OffsetFields:
        """For Spark."""
        return {"frontier": str(self.frontier), "since": self.since}

    @classmethod
    def of(cls, fields: OffsetFields) -> Self:
        """The inverse of `fields`. Raises `KeyError`, `TypeError`, `ValueError`, `InvalidError`."""
        since = fields["since"]
        return cls(Frontier.parse(str(fields["frontier"]), TimeKind.U64), None if since is None else int(since))


@dataclass(frozen=True, slots=True)
class Offset:
    """A position in a collection, ``at``.

    begin: where the query began. Spark writes down where a micro-batch ends, and before the first one is done it asks
    again where a query begins
    collection: the uuid of the life; life: its number
    hold, beat: the hold that keeps what comes after it
    """

    at: Position
    begin: Position
    collection: UUID
    life: int
    hold: str
    beat: int

    def fields(self) -> OffsetFields:
        """For Spark, which writes it down as JSON. These names are in checkpoints of queries, so they stay."""
        return {
            **self.at.fields(),
            "begin": self.begin.fields(),
            "collection": str(self.collection),
            "life": self.life,
            "hold": self.hold,
            "beat": self.beat,
        }

    @classmethod
    def of(cls, fields: OffsetFields) -> Self:
        """The inverse of `fields`. Raises `InvalidError` for what this never wrote."""
        try:
            return cls(
                Position.of(fields),
                Position.of(fields["begin"]),
                UUID(str(fields["collection"])),
                int(fields["life"]),
                str(fields["hold"]),
                int(fields["beat"]),
            )
        except (KeyError, TypeError, ValueError, InvalidError) as error:
            raise InvalidError(
                f"this is no offset of a collection's stream, which names its collection: {fields!r}; begin the query"
                " anew, with another checkpointLocation"
            ) from error
