"""What mkdocs asks while it builds the site: the navigation, which is the map in ``docs/README.md``, and whether the
reference shows every public name, and each has a docstring."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.docs.public import PACKAGES, exported, public_names  # noqa: E402 - of the checkout

MAP = "README.md"
REFERENCE = "reference/api"
LINK = re.compile(r"^- \[(?P<title>[^\]]+)\]\((?P<page>[^)#]+\.md)\)")
SHOWN = re.compile(r"^::: (\S+)$", re.MULTILINE)

logger = logging.getLogger("mkdocs.hooks.public_names")
"""Below mkdocs' own, so that each warning fails a strict build."""


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


def shown(folder: Path) -> list[str]:
    """The names that pages of the reference show."""
    pages = sorted((folder / REFERENCE).glob("*.md"))
    return [name for page in pages for name in SHOWN.findall(page.read_text(encoding="utf-8"))]


def undocumented(folder: Path, packages: Sequence[str] = PACKAGES) -> Iterator[str]:
    """What is wrong with the public names of the packages, a line each."""
    pages = set(shown(folder))
    for name in exported(packages):
        if name not in pages:
            yield f"{name} is public, and no page below docs/{REFERENCE} shows it"
    for name in public_names(packages):
        if name.needs_doc and not name.doc:
            yield f"{name.name} is public, and has no docstring"


def on_config(config: Any) -> Any:
    """Hand mkdocs the navigation."""
    config["nav"] = navigation(Path(config["docs_dir"]))
    return config


def on_pre_build(config: Any) -> None:
    """Warn of public names without documentation."""
    for line in undocumented(Path(config["docs_dir"]), config["extra"].get("packages", PACKAGES)):
        logger.warning(line)
