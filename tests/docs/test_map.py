"""docs/README.md leads to every page of the documentation, and README.md leads there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scripts.docs_hooks import navigation

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
FOLDERS = {Path("format"), Path("decisions"), Path("reference/api")}  # their own README lists their pages


def test_every_page_is_linked() -> None:
    pages = [page.relative_to(DOCS) for page in sorted(DOCS.rglob("*.md")) if page != DOCS / "README.md"]
    assert len(pages) > 20
    for page in pages:
        folder = page.parent if page.parent in FOLDERS and page.name != "README.md" else Path()
        leads_to = (DOCS / folder / "README.md").read_text(encoding="utf-8")
        assert f"({page.relative_to(folder)}" in leads_to, f"docs/{folder}/README.md does not lead to {page}"


def test_the_index_of_decisions_has_their_titles() -> None:
    index = (DOCS / "decisions" / "README.md").read_text(encoding="utf-8")
    for page in sorted((DOCS / "decisions").glob("0*.md")):
        number, title = page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ").split(". ", 1)
        assert f"| {number} | [{title}]({page.name}) |" in index


def test_the_sites_navigation_is_the_map() -> None:
    overview, *sections = navigation(DOCS)
    assert overview == {"Overview": "README.md"}
    assert [name for section in sections for name in section] == ["Guide", "Reference", "Operations", "Design"]
    pages: list[str] = []

    def collect(node: Any) -> None:
        if isinstance(node, str):
            pages.append(node)
        else:
            for inner in node.values() if isinstance(node, dict) else node:
                collect(inner)

    collect([overview, *sections])
    assert sorted(pages) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def test_readme_leads_to_the_map() -> None:
    assert "](docs/README.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
