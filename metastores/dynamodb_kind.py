"""What a condition on a DynamoDB table excludes: pure judgements of what the service says of the table.

=============  ===========================================================================================
kind           a conditional write excludes
=============  ===========================================================================================
``single``     every other one: the table is in one region
``strong``     every other one: a global table with strong consistency between its regions (MRSC)
``eventual``   those that the same replica judges: a global table whose last writer wins (MREC, 2019.11.21)
=============  ===========================================================================================

Global tables of version 2017.11.29 are refused: their last writer wins as well, but DescribeTable shows no replicas of
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, NoReturn

from metastores.errors import MetaStoreInvalidError

LEGACY = "2017.11.29"


class TableKind(Enum):
    """See the module docstring. The value is what items keep."""

    SINGLE = "single"
    STRONG = "strong"
    EVENTUAL = "eventual"


class TableRefusedError(MetaStoreInvalidError):
    """The table cannot hold metadata."""


def kind_of(table: str, description: Mapping[str, Any]) -> TableKind:
    """The kind of a table by its description; ``SINGLE`` may yet be a legacy global one. Raises `TableRefusedError`."""
    if description.get("GlobalTableVersion") == LEGACY:
        refuse_legacy(table)
    if not description.get("Replicas"):
        return TableKind.SINGLE
    return TableKind.STRONG if description.get("MultiRegionConsistency") == "STRONG" else TableKind.EVENTUAL


def refuse_legacy(table: str) -> NoReturn:
    """Raise `TableRefusedError` for a legacy global table."""
    raise TableRefusedError(
        f"DynamoDB table {table!r} is a legacy global table (version {LEGACY}), on which writers of two regions do not"
        " exclude each other: update it to version 2019.11.21, or use a table with strong multi-region consistency"
    )


def check_schema(table: str, description: Mapping[str, Any]) -> None:
    """Raise `TableRefusedError` unless the described table has hash key ``name`` and range key ``item``."""
    keys = {key["AttributeName"]: key["KeyType"] for key in description.get("KeySchema", ())}
    if keys != {"name": "HASH", "item": "RANGE"}:
        raise TableRefusedError(
            f"DynamoDB table {table!r} exists with other keys; a metastore needs hash key 'name' and range key 'item'"
        )
