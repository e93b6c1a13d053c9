"""Families by name, in the order of their goals."""

from __future__ import annotations

from tests.benchmarks.families import durable, get, put, scan
from tests.benchmarks.family import Family

FAMILIES: dict[str, Family] = {module.FAMILY.name: module.FAMILY for module in (put, durable, get, scan)}
