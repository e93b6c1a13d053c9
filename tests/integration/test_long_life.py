"""Everything that ever works on a database, at once, killed and started again at random: nothing is lost."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.integration.long_life import SMALL, live
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
    place = await make_place(store, log, tmp_path, endpoint, **{**SMALL, "compaction": style})
    await live(place, seconds=SECONDS_FULL if full else SECONDS, pause=1.0, rng=rng, tell=print)
