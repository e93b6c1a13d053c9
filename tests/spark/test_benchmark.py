"""The benchmark of Spark runs, on a few rows, and has figures for its goals."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.benchmarks.families import first_read, lookup, micro_batches, spark_collections
from tests.benchmarks.families import spark as engine
from tests.benchmarks.family import Family
from tests.benchmarks.rounds import Plan, Samples, Turn

pytestmark = pytest.mark.timeout(600)  # three JVMs are started


FAMILIES = [engine.FAMILY, lookup.FAMILY, micro_batches.FAMILY, first_read.FAMILY, spark_collections.FAMILY]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
async def test_it_measures_what_its_goals_are_about(spark: SparkSession, family: Family) -> None:
    samples = Samples()
    await family.one_round(Turn(0, Plan(rounds=1, size="tiny"), samples))
    assert all(goal.measured(samples) is not None for goal in family.goals)
