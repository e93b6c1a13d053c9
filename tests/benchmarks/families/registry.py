"""Families by name, in the order of their goals."""

from __future__ import annotations

from tests.benchmarks.families import (
    cadence,
    cold,
    collections,
    collections_growth,
    cost,
    durable,
    first_read,
    flush,
    get,
    growth,
    history,
    lag,
    lookup,
    memory,
    micro_batches,
    opening,
    put,
    scan,
    spark,
    spark_collections,
    sync,
    transactions,
    watch,
    ycsb,
)
from tests.benchmarks.family import Family

MODULES = (
    put,
    durable,
    cost,
    cadence,
    get,
    cold,
    scan,
    flush,
    lag,
    memory,
    opening,
    history,
    ycsb,
    spark,
    lookup,
    micro_batches,
    first_read,
    spark_collections,
    growth,
    sync,
    transactions,
    collections,
    collections_growth,
    watch,
)
FAMILIES: dict[str, Family] = {module.FAMILY.name: module.FAMILY for module in MODULES}
