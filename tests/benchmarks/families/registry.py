"""Families by name, in the order of their goals."""

from __future__ import annotations

from tests.benchmarks.families import cold, durable, flush, get, growth, lag, memory, opening, put, scan, spark
from tests.benchmarks.family import Family

MODULES = (put, durable, get, cold, scan, flush, lag, memory, opening, spark, growth)
FAMILIES: dict[str, Family] = {module.FAMILY.name: module.FAMILY for module in MODULES}
