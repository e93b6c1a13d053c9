"""Rules of merges and vacuums of tables, each with the way to break it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from slate_async.objectstore.protocol import ObjectNotFoundError
from slate_async.tables import vacuum as vacuum_module
from slate_async.tables.codec.link import StoredLink
from slate_async.tables.core.chain import Link
from slate_async.tables.core.head import LinkRef
from slate_async.tables.store.chain import Chain
from tests.simulation.rules.switch import Patch, Switch
from tests.simulation.scenarios.tables.upkeep import UPKEEP

ALL_FAULTS = UPKEEP[0]
_read = Chain._read


def whatever_is_not_kept(listed: Collection[str], kept: Collection[str], floor: int) -> list[str]:
    """The floor is not looked at."""
    return sorted(set(listed) - set(kept))


async def end_of_chain(self: Chain, ref: LinkRef) -> StoredLink:
    """A link that is missing is the end of the chain."""
    try:
        return await _read(self, ref)
    except ObjectNotFoundError:
        return StoredLink(self._uuid, None, Link(whole=True))


def _switch(name: str, rule: str, broken: str, patch: Patch, within: int) -> Switch:
    return Switch(f"tables-{name}", rule, broken, (patch,), within=within, stage=ALL_FAULTS)


UPKEEP_SWITCHES: Sequence[Switch] = (
    _switch(
        "floor",
        "T5",
        "a vacuum deletes what was put above the floor",
        Patch(vacuum_module, "garbage", whatever_is_not_kept),
        20,
    ),
    _switch("missing-link", "T11", "a missing link is the end of the chain", Patch(Chain, "_read", end_of_chain), 40),
)
