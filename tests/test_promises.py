"""What the pages promise is still written there, and each promise names tests that are there."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROMISES: dict[str, dict[str, list[str]]] = tomllib.loads(
    (ROOT / "tests" / "promises.toml").read_text(encoding="utf-8")
)
SKIPPING_MARKS = {"pytest.mark.skip", "pytest.mark.skipif", "pytest.mark.slow", "pytest.mark.xfail"}


def one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)


@cache
def quick_tests(path: str) -> frozenset[str]:
    """The tests of a file that pytest collects and runs by default."""
    assert re.fullmatch(r"tests/(\w+/)*test_\w+\.py", path), path
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    marks = {
        node.name: {ast.unparse(mark).partition("(")[0] for mark in node.decorator_list}
        for node in functions
    }
    return frozenset(name for name in marks if not marks[name] & SKIPPING_MARKS)


@pytest.mark.parametrize("page", PROMISES)
def test_each_promise_stands_in_its_page_word_for_word(page):
    text = one_line((ROOT / page).read_text(encoding="utf-8"))
    assert [promise for promise in PROMISES[page] if one_line(promise) not in text] == []


@pytest.mark.parametrize("page", PROMISES)
def test_each_promise_names_tests_that_are_collected(page):
    named = [test.partition("::") for tests in PROMISES[page].values() for test in tests]
    assert [f"{path}::{name}" for path, _, name in named if name not in quick_tests(path)] == []
    assert all(PROMISES[page].values())


def test_there_are_promises_of_every_kind_of_page():
    assert sum(map(len, PROMISES.values())) >= 100
    assert {"README.md", "SECURITY.md"} < set(PROMISES)
