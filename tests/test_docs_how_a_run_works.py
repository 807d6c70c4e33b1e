"""docs/how-a-run-works.md names files and functions that exist."""

import ast
import re
from pathlib import Path

import pytest

import stsbench

PACKAGE = Path(stsbench.__file__).parent
PAGE = PACKAGE.parent / "docs/how-a-run-works.md"
ROWS = [
    (re.findall(r"`([^`]+)`", cells[2]), re.findall(r"`([^`]+)`", cells[3]))
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if len(cells := line.split("|")) == 5 and ".py`" in cells[2]
]


def defined_names(path: Path) -> set[str]:
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}.{inner.name}"
                for inner in node.body
                if isinstance(inner, ast.FunctionDef)
            }
    return names


def test_every_step_has_a_row():
    assert len(ROWS) >= 20


@pytest.mark.parametrize(("files", "functions"), ROWS, ids=lambda value: ",".join(value))
def test_files_define_the_functions(files, functions):
    assert set(functions) <= set().union(*(defined_names(PACKAGE / file) for file in files))
