"""Conditions of writes: which there are, and when one is broken."""

from __future__ import annotations

from typing import Any

import pytest

from slate_async.codec.columns import NO_EXPIRY
from slate_async.engine.transactions.condition import condition, put_condition
from slate_async.errors import InvalidError
from slate_async.types import PUT, RowHit

ROW = RowHit(b"v", 7, PUT, NO_EXPIRY, 0)


@pytest.mark.parametrize(
    ("arguments", "of_none", "of_row"),
    [
        ((True, None, None), None, "present"),
        ((False, 7, None), "absent", None),
        ((False, 8, None), "absent", "changed"),
        ((False, None, b"v"), "absent", None),
        ((False, None, bytearray(b"w")), "absent", "changed"),
        ((False, None, b""), "absent", "changed"),
    ],
)
def test_a_condition_is_broken_by_what_it_does_not_expect(
    arguments: tuple[Any, Any, Any], of_none: str | None, of_row: str | None
) -> None:
    wanted = condition(*arguments)
    assert (wanted.broken(None), wanted.broken(ROW)) == (of_none, of_row)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((True, 1, None), "one of if_absent"),
        ((False, 1, b"x"), "one of if_absent"),
        ((False, None, None), "one of if_absent"),
        ((1, None, None), "if_absent is True or False"),
        ((False, 0, None), "if_seq is a row's sequence number"),
        ((False, True, None), "if_seq is a row's sequence number"),
        ((False, "7", None), "if_seq is a row's sequence number"),
        ((False, None, "v"), "a value is bytes-like"),
    ],
)
def test_wrong_conditions_are_refused(arguments: tuple[Any, Any, Any], said: str) -> None:
    with pytest.raises(InvalidError, match=said) as caught:
        condition(*arguments)
    assert caught.value.outcome == "not_applied"


def test_keywords_of_a_put_are_a_condition_or_none() -> None:
    assert put_condition({"if_absent": False, "if_seq": None, "if_value": None}) is None
    assert put_condition({"if_absent": True}) == condition(True, None, None)
    assert put_condition({"if_seq": 3, "if_value": None}) == condition(False, 3, None)
    unknown: Any = {"tll": 3}
    with pytest.raises(TypeError, match="unexpected keyword argument 'tll'"):
        put_condition(unknown)
