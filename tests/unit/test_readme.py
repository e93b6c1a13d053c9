"""README.md leads to every page of the documentation."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_page_is_linked() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    pages = [f"(docs/{page.name})" for page in sorted((ROOT / "docs").glob("*.md"))]
    assert [page for page in pages if page not in readme] == []
