"""P5, P6 and P8 over stores that lose requests and answers of holds and let them land late: readers that open, clone,
read, wait, give times up, are cancelled and die; listeners that are started again; writers; and a controller that
absorbs, compacts, collects and revokes meanwhile.

The switches show which rules the answers rest on. Those of C3, C12 and C14 are rarer, and stand in the tests of what
they guard.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from slate_async.collections.codec.life import Appends
from slate_async.collections.core.times import TimeKind
from slate_async.collections.core.updates import UpdateSchema
from slate_async.errors import CorruptionError
from slate_async.runtime.supervisor import Supervisor
from tests.engine import memory_store
from tests.slices import sample, seeds
from tests.unit.collections.reader.conftest import ReadLake
from tests.unit.collections.reader.roles import History, HoldFaults, truth_of

SLICE_SEEDS = 2
FULL_SEEDS = 40
SLICE_SWITCHES = 1


async def play(seed: int, appends: Appends, kind: TimeKind = TimeKind.U64) -> History:
    """A history to its end."""
    rng = random.Random(seed)
    store = HoldFaults(memory_store(), watch="readers/")
    store.rng, store.late = rng, set()
    supervisor = Supervisor("test", lambda cause: None)
    lake = ReadLake(store, supervisor, rng=rng, schema=UpdateSchema.of_bytes(kind))
    history = History(lake, rng, truth_of(kind, rng), appends)
    writers = ("a", "b") if appends is Appends.DEFINITE else ("a",)
    keeping = asyncio.ensure_future(history.keep())
    try:
        async with asyncio.timeout(60), asyncio.TaskGroup() as roles:
            for role in (
                *(history.write(name) for name in writers),
                *(history.read() for _ in range(seed % 3)),
                *(history.listen(number) for number in range(1 + seed % 2)),
            ):
                roles.create_task(role)
    except* CorruptionError as errors:  # P8
        history.wrong += map(str, errors.exceptions)
    finally:
        history.ended = True
        store.faults = False
        await asyncio.wait([keeping])
        for task in store.late:
            task.cancel()
        for writer in lake.opened:
            await writer.close()
        await supervisor.close()
    if (failed := keeping.exception()) is not None:
        raise failed
    return history


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("kind", list(TimeKind))
@pytest.mark.parametrize("appends", list(Appends))
async def test_every_snapshot_and_every_delta_is_what_was_written(appends: Appends, kind: TimeKind, full: bool) -> None:
    done = dict.fromkeys(("snapshots", "deltas", "restarts", "clones", "lost"), 0)
    played = seeds(FULL_SEEDS if full else SLICE_SEEDS)
    for seed in played:
        history = await play(seed, appends, kind)
        assert history.wrong == [], f"seed {seed}"
        done = {name: count + getattr(history, name) for name, count in done.items()}
    assert done["deltas"] > 2 * len(played), done
    if full:
        assert min(done.values()) > len(played) / 4, done


HOLDING, READING = "slate_async.collections.core.holding.", "slate_async.collections.core.reading."
SWITCHES: list[tuple[str, dict[str, Any]]] = [
    ("C2", {READING + "may_adopt": lambda head, coverages: True}),
    ("C11", {HOLDING + "registered": lambda handle, head: True}),
    ("C13", {"slate_async.collections.reader.pins.Pins.lowest": lambda pins, newest: newest}),
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One of the switches, another one with every commit; all of them in the long form."""
    if "rule" in metafunc.fixturenames:
        full = metafunc.config.getoption("--full")
        switches = SWITCHES if full else sample(SWITCHES, SLICE_SWITCHES, "histories of readers")
        metafunc.parametrize(("rule", "instead"), switches, ids=[rule for rule, _ in switches])


async def test_without_a_rule_a_history_goes_wrong(
    rule: str, instead: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for target, value in instead.items():
        monkeypatch.setattr(target, value)
    for seed in range(60):
        if (await play(seed, Appends.DEFINITE)).wrong:
            return
    pytest.fail(f"no history noticed that {rule} is off")
