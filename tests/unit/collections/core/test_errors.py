"""Errors of collections keep what they know on their way to another process."""

from __future__ import annotations

import pickle

import pytest

from slate_async.collections.core.errors import LeaseLostError, SinceError, UpperMismatchError
from slate_async.collections.core.frontier import Frontier
from slate_async.errors import ConflictError, InvalidError, SlateError

FIVE = Frontier([(5,)])


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (SinceError("as_of 4 is before since 5", since=FIVE), InvalidError),
        (LeaseLostError("the lease ran out"), ConflictError),
        (UpperMismatchError("the collection ends at 5", upper=FIVE), ConflictError),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_survive_pickling(error: SlateError, kind: type[SlateError]) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, kind)
    assert (type(again), str(again), again.__dict__) == (type(error), str(error), error.__dict__)


def test_an_append_that_met_another_upper_was_not_applied_unless_it_says_so() -> None:
    assert UpperMismatchError("ends at 5", upper=FIVE).outcome == "not_applied"
    assert UpperMismatchError("ends at 5", upper=FIVE, outcome="unknown").outcome == "unknown"
