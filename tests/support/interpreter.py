"""Code in an interpreter of its own, which has imported nothing yet."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(code: str) -> list[str]:
    """The words a fresh interpreter prints."""
    command = [sys.executable, "-W", "error", "-c", code]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.split()
