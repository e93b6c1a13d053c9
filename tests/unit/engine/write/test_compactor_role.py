"""What is said of who compacts, and by whose mark the role is free."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from uuid import UUID

import pytest

from slate_async.engine.write.compactor_role import CompactorRole, embedded_token, is_free
from slate_async.errors import CorruptionError
from slate_async.storage.manifest.state import ManifestState

EPOCH = 3
STATE = ManifestState(UUID(int=1), "contiguous", True, created_ms=0, writer_epoch=EPOCH)


@pytest.mark.parametrize(
    ("token", "free"),
    [("", True), (embedded_token(2, "a"), True), (embedded_token(3, "a"), True), (embedded_token(4, "a"), False)],
)
def test_the_role_of_a_dead_writers_compactor_is_free(token: str, free: bool) -> None:
    assert is_free(replace(STATE, compactor_token=token), EPOCH) is free
    assert not is_free(replace(STATE, compactor_token="0f0f"), EPOCH)


def test_the_newest_state_says_who_compacts_elsewhere_unless_it_is_the_one_here() -> None:
    driver, adopted = SimpleNamespace(head=None), SimpleNamespace(manifest=STATE, epoch=EPOCH)
    role = CompactorRole(driver, adopted, auto_compaction=False)  # type: ignore[arg-type]
    assert role.describe().startswith("no compactor runs")
    role.auto_compaction = True
    assert role.describe() == "standing by"
    driver.head = replace(STATE, compactor_epoch=7, compactor_token="0f0f")
    assert role.describe() == "compacted elsewhere, epoch 7"
    role.epoch = 8
    assert role.describe() == "compacting here, epoch 8"
    role.failure = CorruptionError("is damaged", object_name="sst/1")
    assert role.describe() == "failed: sst/1 at byte 0: is damaged"
