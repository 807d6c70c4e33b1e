"""Check that a version can be released, and print the text of its release.

Run it as ``python .ci/release.py VERSION``. The version must be that of ``pyproject.toml`` and of
``CITATION.cff``, and the first section of ``CHANGELOG.md`` must have it with a date.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
SECTION = re.compile(r"^## (?P<version>\S+) \((?P<date>[^)]+)\)$", re.M)
DATE = re.compile(r"\d{4}-\d\d-\d\d")


def find_problems(version: str, repository: Path = REPOSITORY) -> list[str]:
    """Return one line for each file that does not agree with a version; empty if all do."""
    problems = []
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    if project["project"]["version"] != version:
        problems.append(f"pyproject.toml has version {project['project']['version']}")
    citation = (repository / "CITATION.cff").read_text(encoding="utf-8")
    if f"\nversion: {version}\n" not in citation:
        problems.append(f"CITATION.cff lacks the line 'version: {version}'")
    section = SECTION.search((repository / "CHANGELOG.md").read_text(encoding="utf-8"))
    if section is None or section["version"] != version:
        problems.append(f"the first section of CHANGELOG.md is not '## {version} (DATE)'")
    elif not DATE.fullmatch(section["date"]):
        problems.append(f"CHANGELOG.md has '{section['date']}' in the place of a date")
    return problems


def read_release_text(repository: Path = REPOSITORY) -> str:
    """Return the first section of the changelog, without its heading."""
    changes = (repository / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = re.split(r"^## .*$", changes, flags=re.M)
    return sections[1].strip()


def main(version: str) -> int:
    """Print the release's text, or what is not ready; return the exit code."""
    problems = find_problems(version)
    for problem in problems:
        print(f"{version} cannot be released: {problem}", file=sys.stderr)
    if not problems:
        print(read_release_text())
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
