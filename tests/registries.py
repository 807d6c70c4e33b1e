"""Every registry of the package, found in its source: tables by name, and the places that refuse a name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import stsbench

PACKAGE = Path(stsbench.__file__).parent
REFUSERS = ("Registry", "choose", "UnknownName")


@cache
def trees() -> dict[str, ast.Module]:
    """The package's files by module, without the package's name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def tables() -> set[str]:
    """The tables ``module:NAME`` of what is chosen by name: functions, classes and rows, no plain values."""
    return {f"{module}:{name}" for module, tree in trees().items() for name in _tables(tree)}


def _tables(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and _is_table(node.value):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            yield ast.unparse(target)


def _is_table(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id in ("Registry", "by_name")
    if isinstance(value, ast.DictComp):
        return True
    if not isinstance(value, ast.Dict) or not value.keys:
        return False
    named = all(isinstance(key, ast.Attribute) or _is_text(key) for key in value.keys)
    return named and any(isinstance(one, ast.Lambda | ast.Name | ast.Attribute | ast.Call) for one in value.values)


def _is_text(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def refusals() -> set[str]:
    """The kinds of name that are refused, ``module:kind``; what is told at run time of a kind is left out of it."""
    return {f"{module}:{kind}" for module, tree in trees().items() for kind in _refusals(tree)}


def _refusals(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in REFUSERS and node.args:
            kind = node.args[0]
            if isinstance(kind, ast.JoinedStr):
                yield "".join(str(part.value) for part in kind.values if isinstance(part, ast.Constant)).strip(" ':")
            elif isinstance(kind, ast.Constant):
                yield str(kind.value)
