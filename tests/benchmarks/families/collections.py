"""Collections: columns, appends, reads, and the event loop beside all of it."""

from __future__ import annotations

from tests.benchmarks.collections import appending, columns, loop, reading
from tests.benchmarks.family import Family
from tests.benchmarks.rounds import Turn

SUBJECTS = (columns, appending, reading, loop)


async def one_round(turn: Turn) -> None:
    for subject in SUBJECTS:
        await subject.one_round(turn)


FAMILY = Family(
    "collections",
    "Collections: columns, appends, reads",
    tuple(goal for subject in SUBJECTS for goal in subject.GOALS),
    one_round,
    notes=tuple(note for subject in SUBJECTS for note in subject.NOTES),
    most_rounds=3,
)
