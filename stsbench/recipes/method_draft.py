"""Drafts of a user's own training method: a working module, its recipe, and pairs to try it on."""

from __future__ import annotations

import keyword
from importlib.util import find_spec
from pathlib import Path
from string import Template

from stsbench.core.errors import StsbenchError
from stsbench.data.card_draft import CardLocation, Draft

TEMPLATES_FOLDER = Path(__file__).parent / "draft"
"""Templates of a module and a recipe, and pairs for a first run, which were written for it."""


def draft_method(location: CardLocation) -> Draft:
    """Draft a new training method: a Python module, a file of sentence pairs, and a recipe.

    Module and pairs are for the current folder. Nothing is written here.

    Args:
        location: The name of the recipe, which the method and its module get too, and its path.

    Returns:
        The contents of the three files by path, and a line of explanation for each.

    Raises:
        StsbenchError: The name cannot be that of a module, or is that of another module.
    """
    name = location.name
    module_path = Path(f"{name}.py")
    _check_module_name(name, module_path)
    # "my_method" becomes "MyMethod".
    class_name = "".join(word[:1].upper() + word[1:] for word in name.split("_"))
    names = {"name": name, "class_name": class_name or "Method"}
    pairs_path = Path(f"{name}.csv")
    return Draft(
        files={
            # The templates hold ``$name`` and ``$class_name``, which are replaced.
            module_path: _fill_template("method.py.txt", names),
            pairs_path: (TEMPLATES_FOLDER / "pairs.csv").read_text(encoding="utf-8"),
            location.path: _fill_template("recipe.toml", names),
        },
        findings=[
            f"{module_path}: the method, a class to change",
            f"{pairs_path}: sixteen pairs for a first run; replace them with your own text",
            f"{location.path}: the recipe",
        ],
        # Nothing in the draft is unsure.
        doubts=[],
    )


def _check_module_name(name: str, module_path: Path) -> None:
    """Check that a name can be that of a module, and that no other module has it.

    Args:
        name: The name.
        module_path: The path of the module, which may exist already.

    Raises:
        StsbenchError: The name is not that of a module, or another module has it.
    """
    if not name.isidentifier() or keyword.iskeyword(name) or not name.isascii():
        # A suggestion for the message: other characters than letters, digits, "_" replaced by "_".
        valid_name = "".join(
            character if character.isalnum() or character == "_" else "_" for character in name
        )
        is_valid = valid_name.isidentifier() and not keyword.iskeyword(valid_name)
        hint = f"; give {valid_name}" if is_valid else ""
        raise StsbenchError(f"'{name}' cannot be the name of a Python module{hint}")
    # Where ``import`` finds a module of this name, perhaps the file itself; None if nowhere.
    spec = find_spec(name)
    if spec is None:
        return
    if spec.origin is None or Path(spec.origin).resolve() != module_path.resolve():
        raise StsbenchError(
            f"Python has a module '{name}' already ({spec.origin or 'a package'}); "
            "give another name"
        )


def _fill_template(file_name: str, names: dict[str, str]) -> str:
    """Return a template of the folder with names filled in."""
    template = Template((TEMPLATES_FOLDER / file_name).read_text(encoding="utf-8"))
    return template.substitute(names)
