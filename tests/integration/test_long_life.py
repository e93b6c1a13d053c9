"""Everything that ever works on a database, at once, killed and started again at random: nothing is lost."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.integration.long_life import live, settings_for
from tests.integration.parts import Compactor, Life, Reader, Writer
from tests.integration.places import LOGS, make_place
from tests.slices import sample

SECONDS = 10.0
SECONDS_FULL = 300.0


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("store", ["local", pytest.param("s3+dynamodb", marks=pytest.mark.slow)])
async def test_all_parts_live_together(
    store: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    aws_environment: dict[str, str],
    full: bool,
    slice_seed: int,
) -> None:
    endpoint = None if store == "local" else request.getfixturevalue("s3_endpoint")
    rng = random.Random(f"{slice_seed} {store}")
    (log,) = sample(LOGS, 1)
    style = rng.choice(["size_tiered", "leveled"])
    place = await make_place(store, log, tmp_path, endpoint, **settings_for(store, style))
    await live(place, seconds=SECONDS_FULL if full else SECONDS, pause=1.0, rng=rng, tell=print)


def test_a_reader_that_goes_back_is_caught() -> None:
    life = Life()
    reader = Reader("follower", life, [])
    for state in ("3", "3", "5"):
        reader.judge(["saw", state])
    assert life.seen == 5
    with pytest.raises(AssertionError, match="shows state 4 after 5"):
        reader.judge(["saw", "4"])


def test_a_checkpoint_that_changes_is_caught() -> None:
    holder = Reader("holder", Life(), [], stays=7)
    holder.judge(["saw", "7"])
    with pytest.raises(AssertionError, match="its checkpoint is of 7"):
        holder.judge(["saw", "8"])


LIE = "print('wrote 5'); import sys; sys.stdin.read()"


async def test_a_lost_write_and_an_end_that_nobody_asked_for_are_caught() -> None:
    life = Life()
    first = Writer("writer", life, ["-c", LIE])
    await first.start()
    await first.works()
    await first.kill()
    assert life.acknowledged == 5
    second = Writer("writer", life, ["-c", "print('open 4')"])
    await second.start()
    with pytest.raises(AssertionError, match="found state 4, but 5 was acknowledged"):
        await second.opens()
    await second._child.wait()
    with pytest.raises(AssertionError, match="ended by itself"):
        await second.kill()
    compactor = Compactor("compactor", life, ["-c", "print('closed failed CorruptionError')"])
    await compactor.start()
    with pytest.raises(AssertionError, match="CorruptionError"):
        await compactor.works()
    await compactor.stop()
