"""The examples of the documentation run as they stand there."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

import slate_async as slate
from tests.docs.examples import ROOT, Example, examples_of, pages, run_story, stories_of

EXAMPLES = {
    str(page.relative_to(ROOT)): list(examples_of(str(page.relative_to(ROOT)), page.read_text(encoding="utf-8")))
    for page in pages()
}
STORIES = [story for examples in EXAMPLES.values() for story in stories_of(examples)]


FENCE = re.compile(r"^ *```([a-z]*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {"python", "sh", "sql", "toml", "json", "text"}


def example(code: str, mark: str = "", setup: str = "", language: str = "python") -> Example:
    (found,) = examples_of("page.md", f"<!-- example: {mark}\n{setup}-->\n```{language}\n{code}```\n")
    return found


@pytest.mark.parametrize("story", STORIES, ids=[f"{story[0].page}:{story[0].line}" for story in STORIES])
def test_example_runs(story: list[Example], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_story(story, tmp_path)


def test_every_comment_is_understood() -> None:
    found = [example for examples in EXAMPLES.values() for example in examples]
    assert len(found) > 20
    assert [f"{example.page}:{example.line} {example.mark}" for example in found if not example.mark_is_known] == []


def test_every_block_is_found() -> None:
    for page in pages():
        text = page.read_text(encoding="utf-8")
        blocks = len(re.findall("```(?:python|sh)\n", text))
        assert blocks == len(EXAMPLES[str(page.relative_to(ROOT))]), page
        assert text.count("<!-- example:") == len(
            [example for example in EXAMPLES[str(page.relative_to(ROOT))] if example.mark]
        )


def test_a_failing_example_fails(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        run_story([example("assert 1 == 2\n")], tmp_path)
    with pytest.raises(NameError):
        run_story([example("await nobody.knows()\n")], tmp_path)


def test_a_failure_names_the_line_of_the_page(tmp_path: Path) -> None:
    (found,) = examples_of("page.md", "# Title\n\n```python\na = 1\nb = c\n```\n")
    with pytest.raises(NameError) as caught:
        run_story([found], tmp_path)
    assert caught.traceback[-1].lineno == 4  # counted from 0: the page's fifth line


def test_what_is_given_is_open_and_closed_afterwards(tmp_path: Path) -> None:
    names = run_story(
        [example("await db.put(key, b'1')\nassert await db.get(b'k')\n", "given db", "key = b'k'\n")], tmp_path
    )
    assert "reader" not in names
    assert names["db"].status().state == "closed"


def test_stores_are_folders_of_the_scratch_folder(tmp_path: Path) -> None:
    run_story([example("async with slate.open('s3://bucket/x') as db:\n    await db.put(b'k', b'v')\n")], tmp_path)
    assert (tmp_path / "bucket" / "x").is_dir()


def test_a_continued_example_has_the_names_of_the_one_before(tmp_path: Path) -> None:
    first, then = example("a = 1\n"), example("assert a == 1\n", "continues")
    (story,) = stories_of([first, example("raise SystemExit\n", "not run, because it ends the process"), then])
    assert run_story(story, tmp_path)["a"] == 1


def test_a_reason_must_be_given() -> None:
    assert not example("x\n", "not run").mark_is_known
    assert not example("x\n", "given money").mark_is_known


def test_a_shell_ends_at_the_first_command_that_fails(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="exit code 1"):
        run_story([example("false\ntrue\n", language="sh")], tmp_path)
    with pytest.raises(AssertionError, match="exit code 127"):
        run_story([example("no-such-command | cat\n", language="sh")], tmp_path)


def test_blocks_of_a_shell_share_a_database_and_variables(tmp_path: Path) -> None:
    first = example("export SLATE_PATH=s3://bucket/db\n", "given db", "slate --path s3://bucket/db put a 1\n", "sh")
    (story,) = stories_of([first, example("slate get a\n", "continues", language="sh")])
    assert run_story(story, tmp_path)["printed"].splitlines()[-1] == "1"


def test_every_block_has_a_language_and_data_is_sound(tmp_path: Path) -> None:
    settings = 0
    for page in pages():
        for language, text in FENCE.findall(page.read_text(encoding="utf-8")):
            assert language in LANGUAGES, f"{page}: {language!r}: {text[:60]}"
            if language == "json":
                json.loads(text)
            elif language == "toml" and "slate" in tomllib.loads(text):
                (tmp_path / "slate.toml").write_text(text)
                slate.Settings.from_toml(tmp_path / "slate.toml")
                settings += 1
    assert settings > 0
