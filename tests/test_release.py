"""What a repository on GitHub needs: a release that agrees with itself, workflows and templates."""

from __future__ import annotations

import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[1]
RELEASE = runpy.run_path(str(ROOT / ".ci/release.py"))


def write_repository(folder: Path, heading: str, version: str = "1.2.3") -> Path:
    (folder / "pyproject.toml").write_text(f'[project]\nversion = "{version}"\n')
    (folder / "CITATION.cff").write_text(f"cff-version: 1.2.0\nversion: {version}\ntitle: x\n")
    changes = f"# Changes\n\n{heading}\n\nWhat is new.\n\n## 1.2.2 (2026-01-01)\n\nWhat was.\n"
    (folder / "CHANGELOG.md").write_text(changes)
    return folder


def test_a_release_whose_files_agree_has_its_section_as_text(tmp_path):
    repository = write_repository(tmp_path, "## 1.2.3 (2026-11-24)")
    assert RELEASE["find_problems"]("1.2.3", repository) == []
    assert RELEASE["read_release_text"](repository) == "What is new."


@pytest.mark.parametrize(
    ("version", "heading", "problems"),
    [
        (
            "1.2.3",
            "## 1.2.3 (unreleased)",
            ["CHANGELOG.md has 'unreleased' in the place of a date"],
        ),
        (
            "1.2.3",
            "## 1.2.4 (2026-11-24)",
            ["the first section of CHANGELOG.md is not '## 1.2.3 (DATE)'"],
        ),
        (
            "1.2.4",
            "## 1.2.4 (2026-11-24)",
            ["pyproject.toml has version 1.2.3", "CITATION.cff lacks the line 'version: 1.2.4'"],
        ),
    ],
)
def test_a_release_whose_files_disagree_is_refused(tmp_path, version, heading, problems):
    assert RELEASE["find_problems"](version, write_repository(tmp_path, heading)) == problems


def test_the_citation_is_of_this_version():
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == project["version"]
    assert citation["license"] == project["license"]


def test_workflows_and_templates_are_yaml_with_what_github_asks_for():
    for path in (ROOT / ".github/workflows").glob("*.yml"):
        workflow = yaml.safe_load(path.read_text())
        # YAML reads the key "on" as true.
        assert workflow["name"] and workflow[True] and workflow["permissions"], path
        for job in workflow["jobs"].values():
            assert job["runs-on"] and all("uses" in step or "run" in step for step in job["steps"])
    templates = [p for p in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if p.stem != "config"]
    assert len(templates) >= 3
    for path in templates:
        form = yaml.safe_load(path.read_text())
        assert form["name"] and form["description"] and form["body"], path


def test_no_address_that_nobody_owns_is_in_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "stsbench/stsbench" not in str(project.get("urls", ""))
    for path in (ROOT / "stsbench").rglob("*.py"):
        assert "github.com/stsbench" not in path.read_text(encoding="utf-8"), path
