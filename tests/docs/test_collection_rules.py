"""docs/design/collections-protocol.md states every rule of collections that code cites, and names the modules that keep
it and the switches that break it. Each of these modules ends its docstring with the rules that it cites."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.docs.public import public_names
from tests.simulation.rules.collections_table import COLLECTION_SWITCHES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "design" / "collections-protocol.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### Rule (C\d+)\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL))
CITED = re.compile(r"\bC(\d+)\b(?: to C(\d+)\b)?")
MODULE = re.compile(r"`([a-z_0-9/]+\.py)`")
LAST_LINE = re.compile(r"Rules? (?:C\d+(?:, | and | to )?)+ of collections\.")
PROPERTY = re.compile(r"^\| (P\d+) \|[^|]+\|([^|]+)\|$", re.MULTILINE)


def cited(text: str) -> set[str]:
    """The rules that a text cites."""
    found: set[str] = set()
    for first, last in CITED.findall(text):
        found.update(f"C{number}" for number in range(int(first), int(last or first) + 1))
    return found


def citing() -> dict[str, set[str]]:
    """The rules that each module cites, by its path."""
    modules = (ROOT / "slate_async").rglob("*.py")
    found = {str(path.relative_to(ROOT)): cited(path.read_text(encoding="utf-8")) for path in modules}
    return {path: rules for path, rules in found.items() if rules}


CITING = citing()


def keepers(rule: str) -> list[str]:
    """Modules that the page says keep a rule."""
    kept = SECTIONS[rule].partition("- Kept by: ")[2].partition("\n- ")[0]
    return [f"slate_async/{name}" for name in MODULE.findall(kept)]


def test_rules_c1_to_c30_are_stated_each_in_full() -> None:
    assert list(SECTIONS) == [f"C{number}" for number in range(1, 31)]
    for rule, text in SECTIONS.items():
        for part in ("- Prevents: ", "- Kept by: `", "- Shown by: "):
            assert text.count(part) == 1, f"{rule}: {part}"


def test_each_switch_is_named_where_its_rules_are_stated_and_no_other() -> None:
    assert len(COLLECTION_SWITCHES) > 30
    for switch in COLLECTION_SWITCHES:
        rules = cited(switch.rule)
        assert rules, switch.name
        for rule in rules:
            assert f"`rule-{switch.name}`" in SECTIONS[rule], f"{switch.name} ({rule})"
    assert set(re.findall(r"`rule-(collections-[a-z0-9-]+)`", PAGE)) == {switch.name for switch in COLLECTION_SWITCHES}


@pytest.mark.parametrize("rule", SECTIONS)
def test_a_rule_has_a_switch_or_says_why_not(rule: str) -> None:
    shown = SECTIONS[rule].partition("- Shown by: ")[2]
    assert "`rule-" in shown or len(shown.partition("No switch")[2]) > 40, rule


@pytest.mark.parametrize("rule", SECTIONS)
def test_the_modules_that_keep_a_rule_are_there_and_cite_it(rule: str) -> None:
    assert keepers(rule)
    for path in keepers(rule):
        assert (ROOT / path).is_file(), path
        assert rule in CITING.get(path, set()), f"{path} keeps {rule} and does not cite it"


@pytest.mark.parametrize("path", CITING)
def test_a_module_that_cites_rules_ends_its_docstring_with_them(path: str) -> None:
    assert CITING[path] <= set(SECTIONS)
    doc = ast.get_docstring(ast.parse((ROOT / path).read_text(encoding="utf-8"))) or ""
    last = " ".join(doc.rpartition("\n\n")[2].split())
    assert LAST_LINE.fullmatch(last), f"{path}: {last}"
    assert cited(last) == CITING[path]


def test_public_docstrings_cite_no_rule() -> None:
    """They stand on pages of the reference, whose readers have no numbers."""
    assert [name.name for name in public_names() if cited(name.doc or "")] == []


def test_each_property_has_tests_that_are_there() -> None:
    found = dict(PROPERTY.findall(PAGE))
    assert list(found) == [f"P{number}" for number in range(1, 16)]
    for name, tests in found.items():
        assert MODULE.findall(tests), name
        for path in MODULE.findall(tests):
            assert name in (ROOT / path).read_text(encoding="utf-8"), f"{name} is not named in {path}"


def test_links_to_rules_lead_to_them() -> None:
    anchors = {heading.lower().replace(" ", "-") for heading in re.findall(r"^### (.*)$", PAGE, re.MULTILINE)}
    for target in re.findall(r"\]\(#(rule-[a-z0-9]+)\)", PAGE):
        assert target in anchors


def test_citations_are_found() -> None:
    assert cited("Rules C3, C10 to C12 and C29 of collections; RC4, C4a") == {"C3", "C10", "C11", "C12", "C29"}
