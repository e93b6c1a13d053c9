"""``json_merge_patch``: RFC 7396. An operand is a patch, a value a JSON document, both UTF-8.

Patches do not compose: ``{"a": null}`` and then ``{"a": {"b": 1}}`` replace ``a``, and no single patch does that to
every document. So operands are kept one by one until they meet a value, or the certainty that there is none.

What is stored has no spaces; members keep their order. Integers are exact, other numbers are IEEE doubles. A patch is
nested `MOST_LEVELS` deep at most, so that no stack is too small for it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import isfinite
from typing import Any, Final, NoReturn

MOST_LEVELS: Final = 128


class JsonMergePatch:
    """See the module docstring."""

    name = "json_merge_patch"

    def check(self, operand: bytes) -> None:
        """See `MergeOperator`."""
        patch = _load(operand, "a patch")
        _check_levels(patch)
        _dump(_merge(None, patch))

    def fold(self, operands: Sequence[bytes]) -> None:
        """See `MergeOperator`. Patches have none."""

    def apply(self, base: bytes | None, operands: Sequence[bytes]) -> bytes:
        """See `MergeOperator`."""
        document = None if base is None else _load(base, "the value")
        for operand in operands:
            document = _merge(document, _load(operand, "a patch"))
        return _dump(document)


def _load(data: bytes, what: str) -> Any:
    try:
        return json.loads(data.decode(), parse_float=_finite, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{what} is not JSON in UTF-8: {error}") from error


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        _refuse(text)
    return number


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"the number {text} is outside of what a double holds")


def _check_levels(document: Any) -> None:
    level = [document]
    for _ in range(MOST_LEVELS + 1):
        inside = [item for item in level if isinstance(item, dict | list)]
        level = [item for outer in inside for item in (outer.values() if isinstance(outer, dict) else outer)]
        if not inside:
            return
    raise ValueError(f"a patch is nested more than {MOST_LEVELS} levels deep")


def _merge(target: Any, patch: Any) -> Any:
    """RFC 7396, section 2. Changes ``target``."""
    if not isinstance(patch, dict):
        return patch
    if not isinstance(target, dict):
        target = {}
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        else:
            target[name] = _merge(target.get(name), value)
    return target


def _dump(document: Any) -> bytes:
    try:
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can say and UTF-8 cannot
        return json.dumps(document, separators=(",", ":")).encode()
