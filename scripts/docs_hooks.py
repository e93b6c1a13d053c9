"""What mkdocs asks while it builds the site: the navigation, which is the map in ``docs/README.md``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

MAP = "README.md"
LINK = re.compile(r"^- \[(?P<title>[^\]]+)\]\((?P<page>[^)#]+\.md)\)")


def navigation(folder: Path) -> list[Any]:
    """Sections and pages in the order of the map; folders that have a map of their own become sections with it."""
    sections: list[Any] = [{"Overview": MAP}]
    for line in (folder / MAP).read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            sections.append({line.removeprefix("## ").partition(":")[0]: []})
        elif found := LINK.match(line):
            (pages,) = sections[-1].values()
            title, page = found["title"], found["page"]
            pages.append({title: _inner(folder, page) if page.endswith(f"/{MAP}") else page})
    return sections


def _inner(folder: Path, page: str) -> list[Any]:
    parent = Path(page).parent
    others = sorted(other for other in (folder / parent).rglob("*.md") if other.name != MAP)
    return [page, *(str(other.relative_to(folder)) for other in others)]


def on_config(config: Any) -> Any:
    """Hand mkdocs the navigation."""
    config["nav"] = navigation(Path(config["docs_dir"]))
    return config
