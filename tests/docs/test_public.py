"""Public names: each is documented, the reference shows it, and a change of one is seen."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import slate_async as slate
from tests.docs.public import PACKAGES, exported, public_names

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"


def test_every_name_is_as_written_down() -> None:
    """`scripts/public_names.py` writes the file; a change of a public name belongs in the changelog."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "public_names.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_name_has_a_docstring() -> None:
    names = list(public_names())
    assert len(names) > 500
    assert [public.name for public in names if public.needs_doc and not public.doc] == []


def test_the_reference_shows_every_name() -> None:
    shown = [
        found
        for page in sorted((REFERENCE / "api").glob("*.md"))
        for found in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert sorted(shown) == sorted(exported())


def test_the_sync_packages_names_are_those_of_the_package() -> None:
    assert set(slate.sync.__all__) <= set(slate.__all__)


def test_signatures_are_of_what_callers_write() -> None:
    written = {public.name: str(public) for public in public_names()}
    assert written["slate_async.Db.put"].startswith("slate_async.Db.put(key: BytesLike, value: BytesLike, ")
    assert written["slate_async.WriteBatch"] == "slate_async.WriteBatch() -> None"
    assert "(awaited)" in written["slate_async.Db.close"]
    assert "(awaited)" not in written["slate_async.sync.Db.close"]
    assert "slate_async.Settings.flush_interval_ms" in written
    assert not [line for line in written.values() if "object at 0x" in line or "ForwardRef" in line]
    assert len({name.partition(".")[0] for name in written}) == len({package.partition(".")[0] for package in PACKAGES})
