"""What every test of this folder keeps: it asserts where it is read, calls public names, and reads no pickle."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
CHECKS = ("pytest.raises", "pytest.warns")
LIBRARIES_OWN = {
    # What transformers counts GPUs in: it has no other place.
    "training/loop/test_loop.py: arguments._n_gpu",
    # Where the Hub's library asks for a token.
    "data/test_hub.py: huggingface_hub.utils._headers.get_token",
    # Where sentence-transformers asks the Hub for the model's base, which no option leaves out.
    "api/test_trainer_evaluator.py: _create_model_card",
    # All that torch has for a device whose operations are in Python.
    "accelerator/pretend.py: _pytree",
    "accelerator/pretend.py: _setup_privateuseone_for_python_backend",
    "accelerator/pretend.py: func._schema",
    "accelerator/walk_all.py: func._schema",
    "accelerator/pretend.py: torch.Tensor._make_wrapper_subclass",
}
"""Private names of libraries, with the reason why nothing else does."""


@cache
def trees() -> dict[str, ast.Module]:
    return {
        path.relative_to(HERE).as_posix(): ast.parse(path.read_text("utf-8"))
        for path in HERE.rglob("*.py")
    }


def checks(function: ast.AST) -> bool:
    """Whether a function asserts in its own body, by the word or by a call that says so."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in CHECKS or ".assert_" in name:
                return True
    return False


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_names(tree: ast.Module) -> Iterator[str]:
    """The private names that a file takes from others: imported, fetched from an object, or patched by their path."""
    own = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self"
    }
    own |= {
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names if private(alias.name))
        elif isinstance(node, ast.Attribute) and private(node.attr) and node.attr not in own:
            yield ast.unparse(node)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("setattr"):
            texts = [
                arg.value
                for arg in node.args
                if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
            ]
            yield from (text for text in texts if any(map(private, text.split("."))))


def test_each_test_asserts_in_its_own_body():
    tests = [
        (path, node)
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    assert len(tests) > 1000
    assert [f"{path}: {test.name}" for path, test in tests if not checks(test)] == []


def test_no_private_name_is_called():
    found = {f"{path}: {name}" for path, tree in trees().items() for name in private_names(tree)}
    assert found == LIBRARIES_OWN


def test_no_pickle_is_read():
    imported = {
        f"{path}: {ast.unparse(node)}"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        and "pickle" in {getattr(node, "module", None), *(alias.name for alias in node.names)}
    }
    assert imported == set()
