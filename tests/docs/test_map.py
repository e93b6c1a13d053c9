"""docs/README.md leads to every page of the documentation, and README.md leads there."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LISTED_BY_FOLDER = {"format", "decisions"}


def test_every_page_is_linked() -> None:
    leads_to = (DOCS / "README.md").read_text(encoding="utf-8")
    pages = [page.relative_to(DOCS) for page in sorted(DOCS.rglob("*.md")) if page != DOCS / "README.md"]
    assert len(pages) > 20
    wanted = {f"({page})" for page in pages if page.parts[0] not in LISTED_BY_FOLDER}
    wanted |= {f"({folder}" for folder in LISTED_BY_FOLDER}
    assert [link for link in sorted(wanted) if link not in leads_to] == []


def test_readme_leads_to_the_map() -> None:
    assert "](docs/README.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
