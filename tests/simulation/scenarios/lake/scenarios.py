"""The scenarios ``collections-…`` over the product's roles."""

from __future__ import annotations

from collections.abc import Sequence

from tests.simulation.scenarios.lake.play import lake_scenario
from tests.simulation.scenarios.protocol import Scenario

LAKES: Sequence[Scenario] = (
    lake_scenario("collections-writers", "the product's writers of both kinds, all faults", names=2, copies=2),
    lake_scenario("collections-readers", "the product's readers beside writers and controllers, all faults", readers=3),
)
