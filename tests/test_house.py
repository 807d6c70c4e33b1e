"""The packages of the house, and their floors are those that CONTRIBUTING.md states."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import stsbench

PACKAGE = Path(stsbench.__file__).parent
TEXT = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (\d) \| `(\w+)` \|", re.M)
FACES = {"stsbench", "stsbench.__main__"}
"""What hands the house on: they import from everywhere, and nothing imports them."""


@cache
def modules() -> dict[str, Path]:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


def named(node: ast.AST) -> Iterator[str]:
    """The modules that one statement imports, or one text of a registry gives the address of."""
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            yield inner if inner in modules() else str(node.module)
    elif isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)


def addressed(node: ast.AST) -> Iterator[str]:
    if (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"stsbench(\.\w+)+:\w+", node.value)
    ):
        yield node.value.partition(":")[0]


@cache
def statements() -> dict[str, list[ast.AST]]:
    return {
        name: list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        for name, path in modules().items()
    }


@cache
def imports() -> dict[str, set[str]]:
    """Every module's imports of ours, those inside functions and for types alone among them."""
    return {
        name: {one for node in nodes for one in named(node) if one in modules() and one != name}
        for name, nodes in statements().items()
    }


def room(module: str) -> str:
    return module.split(".")[1]


def arrows() -> set[tuple[str, str]]:
    """All imports and addresses, from module to module, without those of the faces."""
    found = set()
    for name, targets in imports().items():
        if name not in FACES:
            lazy = {one for node in statements()[name] for one in addressed(node)}
            found |= {(name, target) for target in (targets | lazy) - FACES}
    return found


def package(module: str) -> str:
    return module.split(".")[1]


def drawn() -> list[tuple[str, int]]:
    return [(name, int(floor)) for floor, name in ROW.findall(TEXT)]


def without_leaves(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """What is left of a graph when all that stands on no circle is taken away."""
    todo = {name: set(targets) for name, targets in graph.items()}
    while leaves := [name for name, targets in todo.items() if not targets & set(todo)]:
        for name in leaves:
            del todo[name]
    return todo


def test_nothing_imports_the_face():
    assert not {
        name for name, targets in imports().items() if targets & FACES and name not in FACES
    }


def test_the_packages_are_those_drawn():
    assert sorted(name for name, _ in drawn()) == sorted(
        {package(name) for name in modules() if name not in FACES}
    )
    assert len(drawn()) <= 17
    assert len({floor for _, floor in drawn()}) <= 8


def test_imports_point_down():
    height = {name: (floor, -row) for row, (name, floor) in enumerate(drawn())}
    assert {
        (name, target)
        for name, target in arrows()
        if package(name) != package(target) and height[package(target)] >= height[package(name)]
    } == set()


def test_no_circle_of_files():
    assert without_leaves(imports()) == {}


@pytest.mark.parametrize(
    ("above", "below"),
    [("training", "evaluators"), ("evaluators", "training"), ("bench", "training")],
)
def test_scoring_and_training_do_not_know_each_other(above, below):
    assert not {
        arrow for arrow in arrows() if (package(arrow[0]), package(arrow[1])) == (above, below)
    }


COMMAND_LINE = re.compile(r"(?<![\w-])--[a-z][a-z-]+|\bstsbench [a-z]{3,}\b")
"""An option, or the name of the program and a command."""
WITH_COMMANDS = {
    "stsbench/encoders/runs.py": "the command that resumes an unfinished run, which its record holds",
    "stsbench/studies/trials.py": "the command of a trial, which its record holds",
    "stsbench/check/reports.py": "the title of the report of this command",
}
"""Files outside ``cli`` that compose or name whole commands, each with its reason."""
NO_COMMAND = ("this stsbench ", "an earlier stsbench ", "as stsbench ", "stsbench sets ")
"""Phrases on stsbench itself; ``--porcelain`` and the like are options of git."""


def test_only_the_command_line_speaks_of_its_options():
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE.parent).as_posix()
        if name.startswith("stsbench/cli/") or name in WITH_COMMANDS:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
                if node in docstrings or name == "stsbench/core/provenance.py":
                    continue
                assert not COMMAND_LINE.search(text) or any(
                    phrase in text for phrase in NO_COMMAND
                ), (
                    f"{name}:{node.lineno}: {text!r} names an option or a command; parameters "
                    "stand in backticks, and stsbench/cli/wording.py words them"
                )
