"""Two collectors among writers, compactors and checkpoints, each request in any order, each process killed anywhere.

At every step: nothing that lives is missing. In the end, left alone: nothing else is left.
"""

from __future__ import annotations

import pytest

from tests.property.gc.play import play
from tests.slices import seeds


@pytest.mark.parametrize("seed", seeds(25))
def test_nothing_that_lives_goes_and_nothing_else_stays(seed: int) -> None:
    assert play(seed) > 100


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_two_thousand_more() -> None:
    for seed in seeds(2_000):
        play(seed)
