"""Names of buckets, and the picture where matplotlib is there."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import slate_async as slate
from slate_async.spark.report import bucket_names, draw_report


class Collected:
    """Stands for the DataFrame of `statistics`."""

    def collect(self) -> list[Any]:
        class Row(SimpleNamespace):
            def __getitem__(self, name: str) -> Any:
                return getattr(self, name)

        counts = {"versions": 9, "keys": 7, "tombstones": 2, "live": 4, "expiring": 1, "expired": 1}
        sizes = {"key_bytes": 16, "value_bytes": 400, "key_sizes": [0, 0, 4], "value_sizes": [0] * 7 + [4]}
        return [Row(range=number, **counts, **sizes, ttls=[0, 1]) for number in range(3)]


def test_buckets_are_named_by_what_they_hold() -> None:
    assert bucket_names(5) == ["0", "1", "2-3", "4-7", "8-15"]
    assert bucket_names(12)[-2:] == ["512-1k", "1k-2k"]


def test_the_report_is_a_picture_or_says_what_it_needs(tmp_path: Path) -> None:
    file = tmp_path / "report.png"
    if find_spec("matplotlib") is None:
        with pytest.raises(slate.InvalidError, match=r"slate-async\[spark,plot\]"):
            draw_report(Collected(), file)  # type: ignore[arg-type]
        assert not file.exists()
    else:
        assert draw_report(Collected(), file, title="db") == file  # type: ignore[arg-type]
        assert file.read_bytes().startswith(b"\x89PNG")
