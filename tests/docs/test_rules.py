"""docs/design/protocol-rules.md states every rule that code cites, and names every switch that breaks one."""

from __future__ import annotations

import re
from pathlib import Path

from tests.simulation.test_rules import ALL_SWITCHES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "design" / "protocol-rules.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### Rule (R?\d+)\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL))
CITED = re.compile(r"\b[Rr]ules? ((?:R?\d+)(?:(?:, | and | to )(?:R?\d+))*)")


def test_rules_1_to_30_are_stated_each_in_full() -> None:
    assert [number for number in SECTIONS if number.isdigit()] == [str(number) for number in range(1, 31)]
    for number, text in SECTIONS.items():
        for part in ("- Prevents: ", "- Kept by: `", "- Shown by: "):
            assert text.count(part) == 1, f"rule {number}: {part}"


def test_each_switch_is_named_where_its_rule_is_stated() -> None:
    assert len(ALL_SWITCHES) > 80
    for switch in ALL_SWITCHES:
        numbers = re.findall(r"^R?\d+$|(?<=, )\d+|^\d+(?=,)", switch.rule)
        for text in [SECTIONS[number] for number in numbers] or [PAGE]:
            assert f"`rule-{switch.name}`" in text, f"{switch.name} ({switch.rule})"


def test_no_switch_is_named_that_is_not_there() -> None:
    assert set(re.findall(r"`rule-([a-z0-9-]+)`", PAGE)) == {switch.name for switch in ALL_SWITCHES}


def test_every_rule_that_code_cites_is_stated() -> None:
    cited: set[str] = set()
    for package in ("slate_async", "metastores"):
        for module in (ROOT / package).rglob("*.py"):
            for found in CITED.findall(module.read_text(encoding="utf-8")):
                cited.update(re.findall(r"R?\d+", found))
    assert len(cited) > 15
    assert cited <= set(SECTIONS)
