"""A training method of a user's own: a module that works, a recipe that trains it, and pairs to try it on."""

from __future__ import annotations

import keyword
from importlib.util import find_spec
from pathlib import Path
from string import Template

from stsbench.core.errors import StsbenchError
from stsbench.data.task_draft import CardLocation, Draft

FOLDER = Path(__file__).parent / "draft"
"""The texts of a draft: a module and a recipe in which names are filled in, and pairs for a first run, written for it."""


def draft_method(home: CardLocation) -> Draft:
    """Draft a method's module and pairs, in the current folder, and its recipe.

    Raises StsbenchError: the name is no name of a module, or one that Python finds elsewhere.
    """
    name = home.name
    if not name.isidentifier() or keyword.iskeyword(name) or not name.isascii():
        near = "".join(sign if sign.isalnum() or sign == "_" else "_" for sign in name)
        fits = near.isidentifier() and not keyword.iskeyword(near)
        raise StsbenchError(
            f"'{name}' cannot be the name of a Python module{f'; give {near}' if fits else ''}"
        )
    module = Path(f"{name}.py")
    found = find_spec(name)
    if found is not None and (
        found.origin is None or Path(found.origin).resolve() != module.resolve()
    ):
        raise StsbenchError(
            f"Python has a module '{name}' already ({found.origin or 'a package'}); give another name"
        )
    names = {
        "name": name,
        "class_name": "".join(part[:1].upper() + part[1:] for part in name.split("_")) or "Method",
    }
    return Draft(
        files={
            module: Template((FOLDER / "method.py.txt").read_text(encoding="utf-8")).substitute(
                names
            ),
            Path(f"{name}.csv"): (FOLDER / "pairs.csv").read_text(encoding="utf-8"),
            home.path: Template((FOLDER / "recipe.toml").read_text(encoding="utf-8")).substitute(
                names
            ),
        },
        found=[
            f"{module}: the method, a class to change",
            f"{name}.csv: sixteen pairs for a first run; replace them with your own text",
            f"{home.path}: the recipe",
        ],
        unsure=[],
        command=f"stsbench train {name} --base minilm {home.option()}",
    )
