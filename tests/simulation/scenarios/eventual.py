"""The tiny database on an eventual global table: its processes stand in two regions, which both may create it.

A process that finds the database in another region, or does not see it yet, tries again, as its user would.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from metastores.errors import MetaStoreInvalidError, MetaStoreUnavailableError
from tests.simulation.dynamodb import REGIONS, SimGlobalTable, factory_in
from tests.simulation.node import Node
from tests.simulation.scenarios.protocol import Scenario
from tests.simulation.scenarios.tiny import Entries, Lost, ManifestCell, Unsure, objects_of, play_of, tiny_world
from tests.simulation.world import World

_TABLES: weakref.WeakKeyDictionary[World, SimGlobalTable] = weakref.WeakKeyDictionary()


class RegionalCell(ManifestCell):
    """The list as the head of a manifest that another region may hold."""

    async def read(self) -> tuple[Entries, Any]:
        """As the manifest's; the database may not have come here yet."""
        try:
            return await super().read()
        except MetaStoreInvalidError as error:
            raise Unsure from error

    async def write(self, entries: Entries, seen: Any) -> None:
        """As the manifest's; another region may have created the database."""
        try:
            await super().write(entries, seen)
        except MetaStoreInvalidError as error:
            raise Lost from error

    async def collect(self) -> None:
        """As the manifest's; the database may not have come here yet."""
        try:
            await super().collect()
        except MetaStoreInvalidError as error:
            raise MetaStoreUnavailableError(str(error)) from error


def _open(world: World, node: Node) -> ManifestCell:
    table = _TABLES.setdefault(world, SimGlobalTable(world))
    region = REGIONS[ord(node.name[0]) % len(REGIONS)]
    metastore = factory_in(world, node, table, region).manifest(objects_of(world, node), "memory://tiny")
    return RegionalCell(metastore, node.runtime.ids.token)


EVENTUAL: Sequence[Scenario] = (
    Scenario(
        "tiny-eventual-table",
        "as the head of the product's manifest on an eventual global table, from two regions",
        tiny_world,
        play_of(_open),
    ),
    Scenario(
        "tiny-eventual-table-collected",
        "the same while old versions are collected from both",
        tiny_world,
        play_of(_open, collectors=2),
    ),
)
