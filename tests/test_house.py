"""The rooms of the house, their floors and their arrows are those that CONTRIBUTING.md draws."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import stsbench

PACKAGE = Path(stsbench.__file__).parent
TEXT = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (\d) \| `([\w/.]+)` \| [^|]+ \| ([^|]*) \|$", re.M)
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
    """The module that a text of a registry gives the address of: loaded when it is asked for."""
    if (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"stsbench(\.\w+)+:\w+", node.value)
    ):
        yield node.value.partition(":")[0]


@cache
def statements() -> dict[str, list[ast.AST]]:
    return {name: list(ast.walk(ast.parse(path.read_text(encoding="utf-8")))) for name, path in modules().items()}


@cache
def imports() -> dict[str, set[str]]:
    """Every module's imports of ours, those inside functions and for types alone among them."""
    return {
        name: {one for node in nodes for one in named(node) if one in modules() and one != name}
        for name, nodes in statements().items()
    }


def room(module: str) -> str:
    return module.split(".")[1]


def arrows() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {room(name): set() for name in modules() if name not in FACES}
    for name, targets in imports().items():
        if name not in FACES:
            lazy = {one for node in statements()[name] for one in addressed(node)}
            found[room(name)] |= {room(target) for target in (targets | lazy) - FACES} - {room(name)}
    return found


def drawn() -> dict[str, tuple[int, set[str]]]:
    return {name: (int(floor), set(re.findall(r"\w+", targets))) for floor, name, targets in ROW.findall(TEXT)}


def test_nothing_imports_the_face():
    assert not {name for name, targets in imports().items() if targets & FACES and name not in FACES}


def test_the_rooms_are_those_drawn():
    assert set(drawn()) == set(arrows())
    assert len(drawn()) < 24
    assert len({floor for floor, _ in drawn().values()}) <= 9


@pytest.mark.parametrize("name", sorted(drawn()))
def test_a_room_imports_what_is_drawn_and_only_from_below(name):
    floor, targets = drawn()[name]
    assert arrows()[name] == targets
    assert all(drawn()[target][0] < floor for target in targets)


def test_no_circle_of_files():
    todo = {name: set(targets) for name, targets in imports().items()}
    while leaves := [name for name, targets in todo.items() if not targets & set(todo)]:
        for name in leaves:
            del todo[name]
    assert not todo


@pytest.mark.parametrize(
    ("above", "below"), [("training", "evaluators"), ("evaluators", "training"), ("bench", "training")]
)
def test_scoring_and_training_do_not_know_each_other(above, below):
    assert below not in arrows()[above]


def defined(node: ast.stmt) -> Iterator[str]:
    """The public class, function or type that a top-level statement defines."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
        yield node.name
    elif isinstance(node, ast.Assign):
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        yield from (name for name in names if name[0].isupper() and not name.isupper())


def test_one_name_one_thing():
    places: dict[str, list[str]] = {}
    for module, path in modules().items():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            for name in defined(node):
                places.setdefault(name, []).append(module)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
