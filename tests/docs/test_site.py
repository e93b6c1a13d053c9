"""The strict build of the site fails on a broken link, a missing anchor, and a public name without documentation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    "README.md": "# Map\n\n## Guide: use\n\n- [Page](page.md): 1\n\n## All\n\n- [API](reference/api/README.md): all\n",
    "page.md": "# Page\n\n## Section\n\n[names](reference/api/names.md#tiny.thing), [above](#section)\n",
    "reference/api/README.md": "# API\n\n[names](names.md)\n",
    "reference/api/names.md": "# Names\n\n::: tiny.thing\n",
}
MODULE = '''"""A package."""

__all__ = ["thing"]


def thing(one: int = 1, two: int = 2, three: int = 3) -> None:
    """Do it.

    one: of these, as
    long as there are
    two, three: of those

    Raises nothing."""
'''


def build(folder: Path, pages: dict[str, str], module: str) -> subprocess.CompletedProcess[str]:
    """Build a site of ``pages`` and a package ``tiny`` as `scripts/docs` does, with its configuration and hooks."""
    for name, text in pages.items():
        (folder / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "docs" / name).write_text(text, encoding="utf-8")
    (folder / "tiny").mkdir()
    (folder / "tiny" / "__init__.py").write_text(module, encoding="utf-8")
    (folder / "scripts").mkdir()
    for called in (ROOT / "scripts").glob("docs_*.py"):
        shutil.copy(called, folder / "scripts")
    configuration = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    (folder / "mkdocs.yml").write_text(f"{configuration}  packages: [tiny]\n", encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_sound_site_is_built(tmp_path: Path) -> None:
    done = build(tmp_path, PAGES, MODULE)
    assert done.returncode == 0, done.stderr
    shown = (tmp_path / "site" / "reference" / "api" / "names.html").read_text(encoding="utf-8")
    assert "<p>Do it.</p>" in shown
    assert "<li><code>one</code>: of these, as\n  long as there are</li>" in shown
    assert "<li><code>two</code>, <code>three</code>: of those</li>" in shown
    assert "<p>Raises nothing.</p>" in shown


@pytest.mark.parametrize(
    ("page", "text", "module", "said"),
    [
        ("page.md", "# Page\n\n[gone](nowhere.md)\n", MODULE, "nowhere.md"),
        ("page.md", "# Page\n\n[no anchor](reference/api/names.md#other)\n", MODULE, "#other"),
        ("page.md", "# Page\n\n[no anchor here](#below)\n", MODULE, "#below"),
        ("lonely.md", "# No map leads here\n", MODULE, "lonely.md"),
        (
            "page.md",
            "# Page\n",
            MODULE.partition('    """Do it.')[0] + "    return\n",
            "tiny.thing is public, and has no docstring",
        ),
        ("page.md", "# Page\n", f"{MODULE}\n\nthing2 = 1\n".replace('["thing"]', '["thing", "thing2"]'), "tiny.thing2"),
    ],
    ids=["link", "anchor", "own-anchor", "map", "docstring", "unshown"],
)
def test_a_defect_fails_the_build(page: str, text: str, module: str, said: str, tmp_path: Path) -> None:
    done = build(tmp_path, {**PAGES, page: text}, module)
    assert done.returncode != 0
    assert said in done.stderr


def test_the_script_builds_strictly() -> None:
    assert "mkdocs build --strict" in (ROOT / "scripts" / "docs").read_text(encoding="utf-8")
