"""Each house rule finds what it is there to find, and leaves proper text alone."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.tidy import code, copies, prose, text, versions, words
from tests.tidy.findings import Finding, Source

PRODUCT = "slate_async/engine/read/scan.py"
CodeRule = Callable[[Source, ast.Module], Iterator[Finding]]


def _of_code(rule: CodeRule, program: str, path: str = PRODUCT) -> list[str]:
    return [finding.message for finding in rule(Source(path, program), ast.parse(program))]


@pytest.mark.parametrize(
    "program",
    [
        "import time\ntime.time()",
        "import time as t\nt.monotonic()",
        "from time import perf_counter\nperf_counter()",
        "import random\nrandom.random()",
        "from random import Random\nRandom(1)",
        "import uuid\nuuid.uuid4()",
        "import threading\nthreading.Thread()",
        "import concurrent.futures\nconcurrent.futures.ThreadPoolExecutor()",
        "from datetime import datetime\ndatetime.now()",
        "import datetime\ndatetime.datetime.now()",
        "import asyncio\nasyncio.to_thread(f)",
        "import asyncio\nasyncio.get_running_loop().run_in_executor(None, f)",
        "def f():\n    import secrets\n    secrets.token_hex()",
    ],
)
def test_only_the_runtime_asks_the_outside_world(program: str) -> None:
    assert len(_of_code(code.outside_world, program)) == 1
    assert _of_code(code.outside_world, program, "slate_async/runtime/system.py") == []
    assert _of_code(code.outside_world, program, "tests/unit/test_time.py") == []


@pytest.mark.parametrize(
    "program",
    [
        "import random\ndef f(rng: random.Random) -> float:\n    return rng.random()",
        "from uuid import UUID\nUUID(bytes=b'')",
        "import threading\nthreading.Lock()",
        "clock.time()",
    ],
)
def test_what_is_passed_in_may_be_asked(program: str) -> None:
    assert _of_code(code.outside_world, program) == []


def test_sizes_and_names() -> None:
    assert _of_code(code.size, "x = 1\n" * 500) == []
    assert _of_code(code.size, "x = 1\n" * 501) == ["has more than 500 lines"]
    assert _of_code(code.size, "def f():\n" + "    x = 1\n" * 80) == ["f has 81 lines, over 80"]
    assert _of_code(code.size, "", "slate_async/utils.py") == ["is not named after what it does"]


def test_docstrings() -> None:
    assert _of_code(code.docstrings, "x = 1") == ["has no docstring"]
    assert _of_code(code.docstrings, '"""Purpose."""\nclass A: ...\nclass _B: ...') == ["A has no docstring"]
    assert _of_code(code.docstrings, "x = 1", "tests/unit/test_x.py") == []


@pytest.mark.parametrize("line", ["a\u200bb", "a\u00a0b", "a\ufeff", "a\r", "a\x00", "a ", "a\t"])
def test_unwanted_characters(line: str) -> None:
    assert len(list(text.characters(Source("a.md", f"{line}\n")))) == 1


def test_wanted_characters() -> None:
    assert list(text.characters(Source("a.md", "p ≤ q · 5 µs — ok → é\n\tindented\n"))) == []
    assert len(list(text.characters(Source("a.md", "no newline")))) == 1
    assert len(list(text.characters(Source("a.md", "two\n\n")))) == 1


@pytest.mark.parametrize(
    "line",
    [
        "https://py" "pi.org/simple",
        "pip install --index" "-url x",
        "npm --reg" "istry x",
        "/wo" "rk/main",
        "cd /ho" "me/someone/x",
        "# TO" "DO: later",
        "<<<<" "<<< HEAD",
    ],
)  # fmt: skip
def test_leftovers(line: str) -> None:
    assert len(list(text.leftovers(Source("a.md", line)))) == 1


def test_proper_lines_are_no_leftovers() -> None:
    lines = "https://example.org/pypi\n.servers/work/a\nhomework/root/x\nrm -rf build\n"
    assert list(text.leftovers(Source("a.md", lines))) == []


def test_documents_name_scripts_and_files_that_exist(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "test").touch(mode=0o755)
    (tmp_path / "scripts" / "plain").touch(mode=0o644)
    (tmp_path / "scripts" / "a.py").touch(mode=0o644)
    (tmp_path / "docs").mkdir()
    readme = Source(
        "README.md",
        "`scripts/test --full`, `scripts/plain`, `scripts/none`, `scripts/a.py`\n[a](docs) [b](gone.md#x) [c](https://x)\n",
    )
    assert [f.message for f in text.commands(readme, tmp_path)] == [
        "names scripts/plain, which is not executable",
        "names scripts/none, which does not exist",
    ]
    assert [f.message for f in text.links(readme, tmp_path)] == ["links to gone.md#x, which does not exist"]


def test_license() -> None:
    assert len(list(text.license_text(Source("LICENSE", "MIT")))) == 3
    assert list(text.license_text(Source("README.md", "MIT"))) == []


def test_each_decision_has_a_number_of_its_own() -> None:
    folder = "docs/decisions"
    first, second = Source(f"{folder}/0007-a.md", "# 7. A\n"), Source(f"{folder}/0008-b.md", "# 8. B\n")
    assert list(text.decisions([first, second, Source("docs/0007-c.md", "# C\n")])) == []
    wrong = [first, Source(f"{folder}/0007-b.md", "# 7. B\n"), Source(f"{folder}/0009-c.md", "# 8. C\n")]
    assert [finding.path for finding in text.decisions(wrong)] == [f"{folder}/0007-b.md", f"{folder}/0009-c.md"]


def _project(tmp_path: Path, dependency: str, python: str = ">=3.11") -> Path:
    (tmp_path / "pyproject.toml").write_text(
        f'[project]\nname = "slate-async"\nrequires-python = "{python}"\ndependencies = ["{dependency}"]\n'
        '[project.optional-dependencies]\nall = ["slate-async[x]"]\nx = ["mypy>=1"]\n'
        'dev = ["slate-async[all]"]\nbench = []\n'
        '[tool.ruff]\ntarget-version = "py311"\n[tool.mypy]\npython_version = "3.11"\n'
    )
    return tmp_path


@pytest.mark.parametrize(
    ("dependency", "python", "message"),
    [
        ("pytest>=9999", ">=3.11", "needs pytest>=9999, installed is "),
        ("slate-no-such-package", ">=3.11", "needs slate-no-such-package, which is not installed"),
        ("pytest", ">=4.0", "requires Python >=4.0, this is "),
    ],
)
def test_versions_out_of_bounds(tmp_path: Path, dependency: str, python: str, message: str) -> None:
    (finding,) = versions.installed(_project(tmp_path, dependency, python))
    assert finding.message.startswith(message)


def test_versions_within_bounds(tmp_path: Path) -> None:
    root = _project(tmp_path, "pytest>=8")
    assert list(versions.installed(root)) == []
    assert list(versions.one_python(root)) == []
    assert len(list(versions.one_python(_project(tmp_path, "pytest", ">=3.12")))) == 2


def test_imports_are_declared(tmp_path: Path) -> None:
    root = _project(tmp_path, "pytest>=8")
    program = "import os, pytest, mypy.api, hypothesis\nfrom metastores import errors\nfrom . import x"
    (finding,) = versions.declared([Source(PRODUCT, program)], root)
    assert finding.message == "imports hypothesis, which no dependency of the project provides"


COPY = """
class Many:
    def find(self):
        # {sign} copy of {original}; 20 ns, 2026-01-31
        return 1
"""


@pytest.mark.parametrize(
    ("original", "sign", "broken"),
    [
        ("engine.read.one.search", copies.SIGN, False),
        ("engine.read.one.One.search", copies.SIGN, False),
        ("engine.read.one.One", copies.SIGN, True),
        ("engine.read.one.gone", copies.SIGN, True),
        ("engine.gone.search", copies.SIGN, True),
        ("search", copies.SIGN, True),
        ("engine.read.one.search and more", copies.SIGN, True),
        ("engine.read.one.gone", "SLOW:", False),
    ],
)
def test_a_copy_has_an_original(original: str, sign: str, broken: bool) -> None:
    sources = [
        Source(PRODUCT, COPY.format(original=original, sign=sign)),
        Source("slate_async/engine/read/one.py", "def search(): ...\nclass One:\n    async def search(self): ..."),
    ]
    assert len(list(copies.originals(sources))) == broken
    if sign == copies.SIGN and not broken:
        assert [copy[2:] for copy in copies.marks(sources)[0]] == [("engine.read.scan.Many.find", original)]


def test_a_copy_lies_in_a_function() -> None:
    lines = f"# {copies.SIGN} copy of arguments.key_bytes; 20 ns, 2026-01-31\n"
    assert (
        len(
            list(copies.originals([Source(PRODUCT, lines), Source("slate_async/arguments.py", "def key_bytes(): ...")]))
        )
        == 1
    )


@pytest.mark.parametrize(
    ("program", "findings"),
    [
        ("for one in ssts:\n    pass", 1),
        ("found = [one for one in ssts]", 1),
        ("async def f():\n    async for one in ssts:\n        pass", 1),
        ("for sst in ssts:\n    pass\nfor one, other in pairs:\n    pass", 0),
    ],
)
def test_loop_variables_are_called_for_what_they_run_over(program: str, findings: int) -> None:
    assert len(_of_code(code.loop_names, program)) == findings
    assert len(_of_code(code.loop_names, program, "tests/unit/test_time.py")) == findings


def test_words_that_hide_who_acts_are_refused() -> None:
    def findings(path: str, text: str) -> list[tuple[int, str]]:
        return [(finding.line, finding.message.split("'")[1]) for finding in words.banned(Source(path, text))]

    assert findings(PRODUCT, "# Whoever asks\n# is told at\n# hand") == [(1, "Whoever"), (2, "told")]
    assert findings(PRODUCT, "by whomever,\nat  hand") == [(1, "whomever"), (2, "at hand")]
    assert findings("scripts/soak", "a moment") == [(1, "moment")]
    assert findings("scripts/soak", "moments, a foretold bygone, who") == []
    assert findings("tests/unit/test_time.py", "gone") == []


def test_parameters_are_called_by_their_noun() -> None:
    assert len(_of_code(code.loop_names, "def f(one): ...\nasync def g(*, one): ...\nlambda one: one")) == 3
    assert _of_code(code.loop_names, "def f(one, other): ...") == []


@pytest.mark.parametrize(
    ("program", "path", "found"),
    [
        ("def check_same_moment(): ...", PRODUCT, ["moment"]),
        ("self._moment_ms = 1", PRODUCT, ["moment"]),
        ("class VersionGoneError: ...", "scripts/soak.py", ["gone"]),
        ("def f(*, wasTold): ...", PRODUCT, ["told"]),
        ("import x as is_gone", PRODUCT, ["gone"]),
        ("moments = foretold + bygone_days", PRODUCT, []),
        ("def check_same_moment(): ...", "tests/unit/test_time.py", []),
    ],
)
def test_parts_of_identifiers_are_words(program: str, path: str, found: list[str]) -> None:
    assert [message.split("'")[1] for message in _of_code(words.identifiers, program, path)] == found


@pytest.mark.parametrize(
    ("program", "path", "findings"),
    [
        ("class Collector: ...", "tests/integration/parts.py", 1),
        ("class LogCollectors: ...", PRODUCT, 1),
        ("def test_a_collector_ends(): ...", "tests/unit/test_time.py", 1),
        ("", "tests/integration/collector.py", 1),
        ("class GarbageCollector: ...\nclass StatsCollector: ...", "tests/integration/garbage_collector.py", 0),
        ("def test_collections(): ...\nclass Collection: ...\ncollector = 1", "tests/unit/test_time.py", 0),
    ],
)
def test_what_is_collected_is_said(program: str, path: str, findings: int) -> None:
    assert len(_of_code(words.identifiers, program, path)) == findings


@pytest.mark.parametrize(
    ("text_", "findings"),
    [
        ("withdraw_ingest, NotAdmittedError", 2),
        ('outcome = "admitted"', 1),
        ("status.behind_ms; metrics['loop.wakes']", 2),
        ("db.changes(hold='x', hold_lifetime=1)", 2),
        ("slate changes --hold x", 1),
        ("self._let_go(); feed.place; db.create_checkpoint()", 3),
        ("a take-over by the reader at_hand", 2),
        ("memory admits it; a write is admitted; StoreInHand(hold=True); a takeover; holding", 0),
    ],
)
def test_retired_words_are_refused(text_: str, findings: int) -> None:
    assert len(list(words.retired(Source("docs/guide/reads.md", text_)))) == findings
    assert list(words.retired(Source("CHANGELOG.md", text_))) == []


def test_files_that_may_say_retired_words_do() -> None:
    """An exception that nothing needs is dropped."""
    root = Path(__file__).resolve().parents[2]
    assert [path for path in words.MAY_SAY_RETIRED if not words.RETIRED.search((root / path).read_text())] == []


def test_the_readme_is_short() -> None:
    assert list(text.short_readme(Source("README.md", "line\n" * 150))) == []
    assert len(list(text.short_readme(Source("README.md", "line\n" * 151)))) == 1
    assert list(text.short_readme(Source("CHANGELOG.md", "line\n" * 151))) == []


def _of_page(page: str, path: str = "docs/guide/reads.md") -> list[tuple[int, str]]:
    return [(finding.line, finding.message) for finding in prose.unclear(Source(path, page))]


def test_sentences_of_pages_are_short() -> None:
    limit, longer = "Words" + " are" * 23 + " allowed.", "Words" + " are" * 24 + " refused."
    assert _of_page(f"# Title\n\n{limit} {limit}\n\n- {limit}\n- {limit}\n") == []
    assert [line for line, _ in _of_page(f"# Title\n\n{limit}\n{longer}\n\n- {limit}\n- {longer}\n")] == [3, 7]
    assert [line for line, _ in _of_page(f"| {limit} | {limit} |\n|---|---|\n| a | {longer} |\n")] == [3]
    assert "26 words, 25 are allowed: Words are" in _of_page(longer)[0][1]
    assert _of_page(longer, "docs/reference/public-names.txt") == _of_page(longer, "CHANGELOG.md") == []
    assert len(_of_page(longer, "README.md")) == 1


@pytest.mark.parametrize(
    "page",
    [
        "```python\n" + "word " * 30 + "\n```\n",
        "Run:\n\n    " + "word " * 30 + "\n\nDone.\n",
        "<!-- " + "word " * 30 + "-->\n",
        "word " * 20 + "`" + "word " * 30 + "`.\n",
        "word " * 20 + "[word](" + "a/" * 30 + ").\n",
        "word " * 20 + "e.g. this. Now `f()` begins. " + "word " * 20 + "\n",
        "word " * 20 + ". `f()` begins " + "word " * 20 + "\n",
    ],
)
def test_code_and_links_do_not_lengthen_a_sentence(page: str) -> None:
    assert _of_page(page) == []


def test_pages_have_no_banned_word() -> None:
    assert len(_of_page("The caller is told.\n\nIt is `gone`.\n")) == 1
    assert [line for line, _ in _of_page("Now.\n\nIt is\ngone, made\nagain.\n")] == [3]
    assert _of_page("| made again | [moments](x.md) |\n")[0][0] == 1
