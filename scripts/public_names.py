#!/usr/bin/env python3
"""Write ``docs/reference/public-names.txt``: each public name with its signature; ``--check`` only compares."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.docs.public import public_names  # noqa: E402 - of the checkout

FILE = ROOT / "docs" / "reference" / "public-names.txt"


def main() -> int:
    """Write or check the file."""
    now = "".join(f"{name}\n" for name in public_names())
    if sys.argv[1:] != ["--check"]:
        FILE.write_text(now, encoding="utf-8")
        return 0
    before = FILE.read_text(encoding="utf-8") if FILE.exists() else ""
    changed = difflib.unified_diff(before.splitlines(), now.splitlines(), "public-names.txt", "now", lineterm="", n=0)
    for line in changed:
        print(line)
    if before != now:
        print("public names have changed: run scripts/public_names.py, and say so in CHANGELOG.md")
    return int(before != now)


if __name__ == "__main__":
    raise SystemExit(main())
