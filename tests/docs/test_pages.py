"""Pages for users: each has a task with code that runs near its top, and leads to the glossary once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.examples import examples_of

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
TOP = 30  # lines
NEVER_RUN = {"benchmarks.md", "spark-collections.md", "spark-deployments.md", "spark.md", "web-services.md"}
"""They begin with code that takes an hour, installs something, needs Java, or needs FastAPI."""

TASKS = {
    "getting started": "quickstart",
    "data model": "data-model",
    "keys": "key-design",
    "time to live": "data-model#expiry",
    "scans": "reads#scan-a-range",
    "pages": "reads#page-through-results",
    "web services": "web-services",
    "errors": "failure-handling",
    "testing": "testing",
    "several processes": "processes",
    "deployment": "../operations/deployment",
    "costs": "../operations/cost",
    "operations": "../operations/monitoring",
}
PAGES = [
    *sorted((DOCS / "guide").glob("*.md")),
    *sorted((DOCS / "operations").glob("*.md")),
    *(DOCS / "reference" / f"{name}.md" for name in ("cli", "errors", "settings", "stores")),
]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))


@each_page
def test_a_page_leads_to_the_glossary_once(page: Path) -> None:
    assert len(re.findall(r"\]\([./a-z]*glossary\.md", page.read_text(encoding="utf-8"))) == 1


@each_page
def test_a_page_begins_with_code_that_runs(page: Path) -> None:
    examples = list(examples_of(str(page), page.read_text(encoding="utf-8")))
    assert examples[0].line < TOP
    first = next(example.line for example in examples if example.runs or page.name in NEVER_RUN)
    assert first < TOP + len(examples[0].code.splitlines())


@pytest.mark.parametrize("task", TASKS)
def test_the_map_leads_to_every_task(task: str) -> None:
    name, _, anchor = TASKS[task].partition("#")
    page = (DOCS / "guide" / f"{name}.md").resolve()
    assert f"({page.relative_to(DOCS)}" in (DOCS / "README.md").read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert not anchor or anchor in [heading.lower().replace(" ", "-") for heading in headings]


@pytest.mark.parametrize("page", sorted((DOCS / "decisions").glob("0*.md")), ids=lambda page: page.stem[:4])
def test_a_decision_has_its_parts_in_order(page: Path) -> None:
    headings = re.findall(r"^## (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    parts = ["Context", "Decision", "Consequences", "Failure analysis", "Alternatives"]
    assert [heading for heading in headings if heading in parts] == parts


def test_terms_of_the_glossary_stand_there_once() -> None:
    terms = re.findall(
        r"^- \*\*([^*]+)\*\*", (DOCS / "reference" / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(terms) > 60
    assert len(terms) == len(set(terms))
