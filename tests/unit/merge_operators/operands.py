"""What operators are tried with: operands, values and absent ones, by Hypothesis."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from slate_async.merge_operators.values import pack_i64, pack_set

NUMBERS = st.integers(-(2**63), 2**63 - 1).map(pack_i64)
BYTES = st.binary(max_size=8)
SETS = st.sets(st.binary(max_size=3), max_size=4).map(pack_set)
NAMES = st.sampled_from("abc") | st.text(max_size=2)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
DOCUMENTS: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
)
JSON = DOCUMENTS.map(lambda document: json.dumps(document).encode())

OPERANDS: dict[str, st.SearchStrategy[bytes]] = {
    "add_i64": NUMBERS,
    "max": BYTES,
    "min": BYTES,
    "append": BYTES,
    "set_union": SETS,
    "json_merge_patch": JSON,
}
