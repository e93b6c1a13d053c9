"""Conditions of writes: which there are, and when one is broken."""

from __future__ import annotations

from typing import Any, cast

import pytest

from slate_async.codec.columns import NO_EXPIRY
from slate_async.engine.transactions.condition import delete_condition, put_condition
from slate_async.errors import InvalidError
from slate_async.types import PUT, RowHit

ROW = RowHit(b"v", 7, PUT, NO_EXPIRY, 0)


@pytest.mark.parametrize(
    ("arguments", "of_none", "of_row"),
    [
        ({"if_absent": True}, None, "present"),
        ({"if_seq": 7}, "absent", None),
        ({"if_seq": 8, "if_absent": False}, "absent", "changed"),
        ({"if_value": b"v"}, "absent", None),
        ({"if_value": bytearray(b"w")}, "absent", "changed"),
        ({"if_value": b""}, "absent", "changed"),
    ],
)
def test_a_condition_is_broken_by_what_it_does_not_expect(
    arguments: Any, of_none: str | None, of_row: str | None
) -> None:
    wanted = put_condition(arguments)
    assert wanted is not None
    assert (wanted.broken(None), wanted.broken(ROW)) == (of_none, of_row)
    if "if_absent" not in arguments:
        assert delete_condition(arguments) == wanted


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"if_absent": True, "if_seq": 1}, "one of if_absent"),
        ({"if_seq": 1, "if_value": b"x"}, "one of if_absent"),
        ({"if_absent": 1}, "if_absent is True or False"),
        ({"if_absent": None}, "if_absent is True or False"),
        ({"if_seq": 0}, "if_seq is a row's sequence number, not 0$"),
        ({"if_seq": True}, "if_seq is a row's sequence number"),
        ({"if_seq": "7"}, "if_seq is a row's sequence number"),
        ({"if_value": "v"}, "a value is bytes-like"),
        # what get and get_row give of a missing key: without an error a write that overwrites what others put
        ({"if_seq": None}, "not None; of a key that is not there ask for if_absent=True"),
        ({"if_value": None}, "not None; of a key that is not there ask for if_absent=True"),
    ],
)
def test_wrong_conditions_are_refused(arguments: Any, said: str) -> None:
    calls: list[Any] = [put_condition] if "if_absent" in arguments else [put_condition, delete_condition]
    for call in calls:
        with pytest.raises(InvalidError, match=said) as caught:
            call(arguments)
        assert caught.value.outcome == "not_applied"


def test_keywords_are_a_condition_or_none() -> None:
    assert put_condition({"if_absent": False}) is None
    assert delete_condition({}) is None
    with pytest.raises(TypeError, match=r"put\(\) got an unexpected keyword argument 'tll'"):
        put_condition(cast("Any", {"tll": 3}))
    with pytest.raises(TypeError, match=r"delete\(\) got an unexpected keyword argument 'if_absent'"):
        delete_condition(cast("Any", {"if_absent": True}))
