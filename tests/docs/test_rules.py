"""docs/design/protocol-rules.md states every rule that code cites, and names the modules that keep it and the switches
that break it. Each of these modules leads back to the page."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.docs.public import public_names
from tests.simulation.catalogue import ALL_SWITCHES, ENGINE_SWITCHES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "design" / "protocol-rules.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### Rule (R?\d+)\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL))
CITED = re.compile(r"\b[Rr]ules? ((?:R?\d+)(?:(?:, | and | to )(?:R?\d+))*)")
RANGE = re.compile(r"(\d+) to (\d+)")
OF_PLACES = re.compile(r"\bR(?:10|21|23)\b")
MODULE = re.compile(r"`([a-z_0-9/]+\.py)`")
LINK = "docs/design/protocol-rules.md"


def cited(text: str) -> set[str]:
    """The numbers of the rules that a text cites."""
    numbers = set(OF_PLACES.findall(text))
    for found in CITED.findall(text):
        numbers.update(re.findall(r"R?\d+", found))
        for first, last in RANGE.findall(found):
            numbers.update(str(number) for number in range(int(first), int(last) + 1))
    return numbers


def citing() -> dict[str, set[str]]:
    """The rules that each module cites, by its path."""
    modules = [path for package in ("slate_async", "metastores") for path in (ROOT / package).rglob("*.py")]
    found = {str(path.relative_to(ROOT)): cited(path.read_text(encoding="utf-8")) for path in modules}
    return {path: numbers for path, numbers in found.items() if numbers}


CITING = citing()


def keepers(number: str) -> list[str]:
    """Modules that the page says keep a rule."""
    kept = SECTIONS[number].partition("- Kept by: ")[2].partition("\n- ")[0]
    return [name if name.startswith("metastores/") else f"slate_async/{name}" for name in MODULE.findall(kept)]


def test_rules_are_stated_in_order_and_each_in_full() -> None:
    numbers = [int(number) for number in SECTIONS if number.isdigit()]
    assert numbers[:35] == list(range(1, 36))
    assert numbers == sorted(set(numbers))
    for number, text in SECTIONS.items():
        for part in ("- Prevents: ", "- Kept by: `", "- Shown by: "):
            assert text.count(part) == 1, f"rule {number}: {part}"


def test_each_switch_is_named_where_its_rule_is_stated() -> None:
    assert len(ENGINE_SWITCHES) > 80
    for switch in ENGINE_SWITCHES:
        numbers = re.findall(r"^R?\d+$|(?<=, )\d+|^\d+(?=,)", switch.rule)
        for text in [SECTIONS[number] for number in numbers] or [PAGE]:
            assert f"`rule-{switch.name}`" in text, f"{switch.name} ({switch.rule})"


def test_the_page_on_the_simulator_has_every_switch_with_its_rule_and_bound() -> None:
    page = (ROOT / "docs" / "design" / "simulation.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \| `rule-([a-z0-9-]+)` \|[^|]+\|[^|]+\|[^|]+\| (\d+) \|$", page, re.MULTILINE)
    assert sorted(rows) == sorted((switch.rule, switch.name, str(switch.within)) for switch in ALL_SWITCHES)


def test_no_switch_is_named_that_is_not_there() -> None:
    assert set(re.findall(r"`rule-([a-z0-9-]+)`", PAGE)) == {switch.name for switch in ENGINE_SWITCHES}


def test_every_rule_that_code_cites_is_stated() -> None:
    assert len(CITING) > 40
    assert {path: missing for path, numbers in CITING.items() if (missing := numbers - set(SECTIONS))} == {}


@pytest.mark.parametrize("number", SECTIONS)
def test_the_modules_that_keep_a_rule_are_there_and_cite_it(number: str) -> None:
    assert keepers(number)
    for path in keepers(number):
        assert (ROOT / path).is_file(), path
        assert number in CITING.get(path, set()), f"{path} keeps rule {number} and does not cite it"


@pytest.mark.parametrize("path", CITING)
def test_a_module_that_cites_rules_leads_to_the_page(path: str) -> None:
    """The last line of its docstring has every number that it cites, and where they are stated."""
    doc = ast.get_docstring(ast.parse((ROOT / path).read_text(encoding="utf-8"))) or ""
    numbers, _, page = doc.splitlines()[-1].partition(": ")
    assert page == LINK
    assert cited(numbers) == CITING[path]


@pytest.mark.parametrize("number", SECTIONS)
def test_a_rule_has_a_switch_or_says_why_not(number: str) -> None:
    shown = SECTIONS[number].partition("- Shown by: ")[2]
    assert "`rule-" in shown or len(shown.partition("No switch")[2]) > 40, number


def test_public_docstrings_cite_no_rule() -> None:
    """They stand on pages of the reference, whose readers have no numbers."""
    assert [name.name for name in public_names() if CITED.search(name.doc or "")] == []


def test_citations_are_found() -> None:
    assert cited("Rules 15 to 17 and R21; rule 9, but no ruler 5") == {"15", "16", "17", "R21", "9"}
    assert cited("(R10)") == {"R10"}
    assert cited("R2, RFC 4180") == set()
