"""docs/design/tables-protocol.md states every rule of tables that code cites, names the modules that keep it, and the
switches that break it. Each of these modules ends its docstring with the rules that it cites."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.docs.public import public_names
from tests.simulation.rules.tables_table import TABLE_SWITCHES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "design" / "tables-protocol.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### Rule (T\d+)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
CITED = re.compile(r"\bT\d+\b")
MODULE = re.compile(r"`([a-z_0-9/]+\.py)`")
LAST_LINE = re.compile(r"Rules? (?:T\d+(?:, | and )?)+\.")
PACKAGE = ROOT / "slate_async"


def citing() -> dict[str, set[str]]:
    """The rules that each module cites, by its path."""
    modules = {
        path: set(CITED.findall(path.read_text(encoding="utf-8"))) for path in (PACKAGE / "tables").rglob("*.py")
    }
    return {str(path.relative_to(PACKAGE)): rules for path, rules in modules.items() if rules}


CITING = citing()


def test_every_rule_is_stated_in_full() -> None:
    assert len(SECTIONS) > 12
    for rule, text in SECTIONS.items():
        for part in ("- Prevents: ", "- Kept by: `", "- Shown by: "):
            assert text.count(part) == 1, f"{rule}: {part}"


def test_every_rule_that_code_cites_is_stated() -> None:
    assert set().union(*CITING.values()) == set(SECTIONS)


@pytest.mark.parametrize("rule", SECTIONS)
def test_a_rule_names_the_modules_that_cite_it_and_how_it_is_shown(rule: str) -> None:
    text = SECTIONS[rule]
    kept = text.partition("- Kept by: ")[2].partition("\n- ")[0]
    assert MODULE.findall(kept) == sorted(path for path, rules in CITING.items() if rule in rules)
    shown = text.partition("- Shown by: ")[2]
    switches = {f"rule-{switch.name}" for switch in TABLE_SWITCHES if switch.rule == rule}
    assert set(re.findall(r"`(rule-[a-z0-9-]+)`", shown)) == switches
    assert switches or shown.startswith("No switch, because ")


@pytest.mark.parametrize("path", CITING)
def test_a_module_that_cites_rules_ends_its_docstring_with_them(path: str) -> None:
    doc = ast.get_docstring(ast.parse((PACKAGE / path).read_text(encoding="utf-8"))) or ""
    last = doc.splitlines()[-1]
    assert LAST_LINE.fullmatch(last), f"{path}: {last}"
    assert set(CITED.findall(last)) == CITING[path]


def test_public_docstrings_cite_no_rule() -> None:
    assert [name.name for name in public_names() if re.search(r"\b[Rr]ules? T\d", name.doc or "")] == []
