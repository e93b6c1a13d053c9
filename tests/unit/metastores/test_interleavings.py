"""The protocol rules hold in seeded interleavings with faults, and each rule switched off is caught.

The switches patch the method that carries the rule; the product has none. SLATE_METASTORE_SEEDS sets how many seeds
run with all rules on.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from metastores import names
from metastores.bodies import ObjectBodies
from metastores.factories import IfMatchFactory, PutIfAbsentFactory
from metastores.put_if_absent import PutIfAbsentMetaStore
from metastores.register_store import RegisterMetaStore
from tests.unit.metastores.interleaving import Run, caught

SWITCHED_OFF_SEEDS = 600
"""Within so many seeds every missing rule is caught (seen: 0 to 94)."""


def seeds(full: bool, slice_seed: int) -> range:
    """This run's seeds with all rules on."""
    count = int(os.environ.get("SLATE_METASTORE_SEEDS", "10000" if full else "700"))
    return range(slice_seed, slice_seed + count)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("factory", [PutIfAbsentFactory, IfMatchFactory])
def test_all_rules_on(factory: Any, full: bool, slice_seed: int) -> None:
    assert caught(seeds(full, slice_seed), factory) is None


@pytest.mark.timeout(900)
@pytest.mark.parametrize("factory", [PutIfAbsentFactory, IfMatchFactory])
def test_all_rules_on_for_merged_areas(factory: Any, full: bool, slice_seed: int) -> None:
    assert caught(seeds(full, slice_seed), factory, layout=names.MERGED_AREAS) is None


def test_same_seed_same_run() -> None:
    def trace(seed: int) -> object:
        run = Run(seed, PutIfAbsentFactory)
        run.go()
        return run.acknowledged, run.objects.objects

    assert trace(7) == trace(7)


async def always(*_: object) -> bool:
    return True


async def probing(self: Any) -> Any:
    """A `latest` that tries the next version after the one it knows, without asking the boundary."""
    if self._seen is not None:
        version = self._seen.record.ref.version + 1
        stored = await self._get(names.MANIFEST.version_key(version))
        if stored is not None:
            self._see(self._record(version, stored.data), stored.etag)
            return self._seen.record
    return await REAL_LATEST(self)


REAL_LATEST = PutIfAbsentMetaStore.latest


async def no_boundary(*_: object) -> None:
    return None


@pytest.mark.parametrize(
    ("factory", "owner", "method", "instead"),
    [
        pytest.param(PutIfAbsentFactory, PutIfAbsentMetaStore, "_boundary_allows", always, id="boundary-not-read"),
        pytest.param(
            PutIfAbsentFactory, PutIfAbsentMetaStore, "_raise_boundary", no_boundary, id="boundary-not-raised"
        ),
        pytest.param(
            PutIfAbsentFactory, PutIfAbsentMetaStore, "_etag_still_listed", lambda *_: True, id="etag-not-compared"
        ),
        pytest.param(PutIfAbsentFactory, PutIfAbsentMetaStore, "latest", probing, id="next-version-probed"),
        pytest.param(
            IfMatchFactory, ObjectBodies, "_key", lambda _, ref: f"manifest/{ref.version:020}", id="body-without-token"
        ),
        pytest.param(
            IfMatchFactory, RegisterMetaStore, "_collectable", lambda *_: True, id="bodies-above-head-deleted"
        ),
    ],
)
def test_a_rule_switched_off_is_caught(
    factory: Any, owner: type, method: str, instead: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, method, instead)
    assert caught(range(SWITCHED_OFF_SEEDS), factory) is not None


@pytest.mark.parametrize("factory", [PutIfAbsentFactory, IfMatchFactory])
def test_edits_without_marks_are_caught(factory: Any) -> None:
    assert caught(range(SWITCHED_OFF_SEEDS), factory, marks_kept=False) is not None
