"""``python -m tests.tidy``: print every broken house rule; status 1 if there is one."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from tests.tidy import code, contracts, copies, prose, text, versions, words
from tests.tidy.findings import Finding, Source, project_sources

ROOT = Path(__file__).resolve().parents[2]


def check(root: Path) -> list[Finding]:
    """Every finding in the project at ``root``, in order."""
    sources, findings = project_sources(root)
    for source in sources:
        findings += _of_one(source, root)
    findings += text.decisions(sources)
    findings += contracts.complete(root)
    findings += copies.originals(sources)
    findings += versions.installed(root)
    findings += versions.one_python(root)
    findings += versions.declared(sources, root)
    return sorted(findings)


def _of_one(source: Source, root: Path) -> list[Finding]:
    findings = [*text.characters(source), *text.leftovers(source), *text.license_text(source), *words.banned(source)]
    findings += [
        *words.retired(source),
        *text.short_readme(source),
        *text.commands(source, root),
        *text.links(source, root),
        *prose.unclear(source),
    ]
    if source.path.endswith(".py"):
        tree = ast.parse(source.text, source.path)
        findings += [*code.size(source, tree), *code.docstrings(source, tree), *code.outside_world(source, tree)]
        findings += [*code.loop_names(source, tree), *words.identifiers(source, tree)]
    return findings


def main() -> None:
    """Check the project this file is part of."""
    findings = check(ROOT)
    for finding in findings:
        print(finding)
    if findings:
        sys.exit(f"tidy: {len(findings)} findings")
    print("tidy: nothing found")


if __name__ == "__main__":
    main()
