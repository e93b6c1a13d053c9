from __future__ import annotations

import json

import pytest

from slate_async.merge_operators.json_patch import MOST_LEVELS
from slate_async.merge_operators.registry import merge_operator

PATCHES = merge_operator("json_merge_patch")

OF_THE_RFC = [
    ('{"a":"b"}', '{"a":"c"}', '{"a":"c"}'),
    ('{"a":"b"}', '{"b":"c"}', '{"a":"b","b":"c"}'),
    ('{"a":"b"}', '{"a":null}', "{}"),
    ('{"a":"b","b":"c"}', '{"a":null}', '{"b":"c"}'),
    ('{"a":["b"]}', '{"a":"c"}', '{"a":"c"}'),
    ('{"a":"c"}', '{"a":["b"]}', '{"a":["b"]}'),
    ('{"a":{"b":"c"}}', '{"a":{"b":"d","c":null}}', '{"a":{"b":"d"}}'),
    ('{"a":[{"b":"c"}]}', '{"a":[1]}', '{"a":[1]}'),
    ('["a","b"]', '["c","d"]', '["c","d"]'),
    ('{"a":"b"}', '["c"]', '["c"]'),
    ('{"a":"foo"}', "null", "null"),
    ('{"a":"foo"}', '"bar"', '"bar"'),
    ('{"e":null}', '{"a":1}', '{"e":null,"a":1}'),
    ("[1,2]", '{"a":"b","c":null}', '{"a":"b"}'),
    ("{}", '{"a":{"bb":{"ccc":null}}}', '{"a":{"bb":{}}}'),
]
"""RFC 7396, appendix A."""


@pytest.mark.parametrize(("value", "patch", "wanted"), OF_THE_RFC)
def test_the_examples_of_the_rfc(value: str, patch: str, wanted: str) -> None:
    assert PATCHES.apply(value.encode(), [patch.encode()]).decode() == wanted


def test_a_patch_of_nothing_makes_a_document() -> None:
    assert PATCHES.apply(None, [b'{"a": 1, "b": null}']) == b'{"a":1}'


def test_what_utf_8_cannot_say_is_escaped() -> None:
    assert PATCHES.apply(None, ['{"ä":"\\ud83d"}'.encode()]) == b'{"\\u00e4":"\\ud83d"}'
    assert PATCHES.apply(None, ['{"ä":"\\ud83d\\ude00"}'.encode()]) == '{"ä":"😀"}'.encode()


def test_whole_numbers_are_exact() -> None:
    assert PATCHES.apply(None, [b'{"n":123456789012345678901234567890,"x":0.10}']) == (
        b'{"n":123456789012345678901234567890,"x":0.1}'
    )


@pytest.mark.parametrize("patch", [b"", b"{", b"\xff", b"NaN", b'{"a":1e999}', b"-Infinity", b"1 2"])
def test_what_is_no_json_is_refused(patch: bytes) -> None:
    with pytest.raises(ValueError, match="a patch is not JSON"):
        PATCHES.check(patch)
    with pytest.raises(ValueError, match="the value is not JSON"):
        PATCHES.apply(patch, [b"{}"])


def test_patches_are_not_nested_without_end() -> None:
    def nested(levels: int) -> bytes:
        return b'{"a":' * levels + b"1" + b"}" * levels

    PATCHES.check(nested(MOST_LEVELS))
    assert json.loads(PATCHES.apply(nested(MOST_LEVELS), [nested(MOST_LEVELS)]))
    for levels in (MOST_LEVELS + 1, 100_000):
        with pytest.raises(ValueError, match=r"nested more than|recursion"):
            PATCHES.check(nested(levels))
