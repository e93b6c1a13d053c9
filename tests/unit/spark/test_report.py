"""Names of buckets, and the picture of what was counted."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import slate_async as slate
from slate_async.spark.report import DEAD, LIVE, bucket_names, draw_report


class Collected:
    """Stands for the DataFrame of `statistics`."""

    def __init__(self, ranges: int = 3, ttls: Sequence[int] = (0, 1)) -> None:
        self._ranges = ranges
        self._ttls = ttls

    def collect(self) -> list[Any]:
        class Row(SimpleNamespace):
            def __getitem__(self, name: str) -> Any:
                return getattr(self, name)

        counts = {"versions": 9, "keys": 7, "tombstones": 2, "live": 4, "expiring": 1, "expired": 1}
        sizes = {"key_bytes": 16, "value_bytes": 400, "key_sizes": [0, 0, 4], "value_sizes": [0] * 7 + [4]}
        return [Row(range=number, **counts, **sizes, ttls=self._ttls) for number in range(self._ranges)]


def test_buckets_are_named_by_what_they_hold() -> None:
    assert bucket_names(5) == ["0", "1", "2-3", "4-7", "8-15"]
    assert bucket_names(12)[-2:] == ["512-1k", "1k-2k"]


def test_the_report_is_a_picture_of_what_was_counted(tmp_path: Path) -> None:
    file = tmp_path / "report.png"
    assert draw_report(Collected(), file, title="db") == file  # type: ignore[arg-type]
    picture = import_module("matplotlib.image").imread(file)
    assert picture.shape == (770, 1210, 4)
    height, width, _ = picture.shape
    ranges = picture[height // 10 : height // 2, : width // 2]  # below the title
    live, dead = (int(has(ranges, colour).sum(axis=0).max()) for colour in (LIVE, DEAD))  # beside the legend
    assert live > 80
    assert live / dead == pytest.approx(4 / 3, rel=0.1)  # of 9 versions 4 are live, 3 superseded
    for histogram in (picture[:, width // 2 :], picture[height // 2 :, : width // 2]):
        assert has(histogram, LIVE).sum() > 10_000


def test_a_report_of_no_range_is_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert draw_report(Collected(0), tmp_path / "report.png").stat().st_size > 0  # type: ignore[arg-type]


def test_one_range_has_one_tick_and_a_histogram_of_nothing_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda figure, *_, **__: drawn.append(figure))
    draw_report(Collected(1, ttls=[0, 0]), tmp_path / "report.png")  # type: ignore[arg-type]
    ranges, keys, _, lives = drawn[0].axes
    assert list(ranges.get_xticks()) == [0]
    assert [[text.get_text() for text in axis.texts] for axis in (keys, lives)] == [[], ["none"]]


def has(picture: Any, colour: str) -> Any:
    """Which pixels have just that colour."""
    wanted = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
    return ((picture[..., :3] * 255).round() == wanted).all(axis=2)


def test_without_matplotlib_the_report_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(slate.InvalidError, match=r"slate-async\[spark,plot\]"):
        draw_report(Collected(), tmp_path / "report.png")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
