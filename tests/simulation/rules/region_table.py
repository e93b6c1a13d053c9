"""The rules of databases in several regions, each with the way to break it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metastores import names
from metastores.dynamodb_place import DynamoPlace
from metastores.dynamodb_table import DynamoTable
from metastores.note import PlaceNote
from tests.simulation.rules.switch import Patch, Switch
from tests.simulation.scenarios.eventual import EVENTUAL

_CREATED, _COLLECTED = EVENTUAL
_to_write = DynamoPlace.to_write


async def write_near(self: DynamoPlace) -> Any:
    """A condition on the near replica."""
    _, home, kind = await _to_write(self)
    return self.table, home, kind


async def read_near(self: DynamoPlace) -> DynamoTable:
    """Whatever the near replica has."""
    return self.table


async def overwrite_note(self: PlaceNote) -> None:
    """The note names its last writer."""
    await self._objects.put(names.MANIFEST.elsewhere, (await self._here()).encode())


REGION_SWITCHES: Sequence[Switch] = (
    Switch(
        "r23-written-near",
        "R23",
        "a writer away from home writes to the near replica, which judges its conditions",
        (Patch(DynamoPlace, "to_write", write_near),),
        within=30,
        stage=_CREATED,
    ),
    Switch(
        "r23-read-near",
        "R23",
        "a process away from home reads bodies from the near replica, whose items come in any order",
        (Patch(DynamoPlace, "to_read", read_near),),
        within=30,
        stage=_COLLECTED,
    ),
    Switch(
        "r23-created-twice",
        "R23",
        "the note of where a database is created is put without a condition",
        (Patch(PlaceNote, "leave", overwrite_note),),
        within=60,
        stage=_CREATED,
    ),
)
