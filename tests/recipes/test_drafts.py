"""A drafted method is one that works; what Python cannot import by its name is refused. Training it is tested by the command."""

from __future__ import annotations

import ast

import pytest

from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import StsbenchError
from stsbench.data.card_draft import locate_card
from stsbench.data.corpora.corpus import load_corpus
from stsbench.data.corpora.overlap import find_overlap
from stsbench.data.task import load_task
from stsbench.recipes.method_draft import TEMPLATES_FOLDER, draft_method


def test_a_module_and_its_recipe_name_each_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    draft = draft_method(locate_card(tmp_path / "cards", "trainers", "pull_apart"))
    draft.write(force=False)
    recipe = Catalogue(tmp_path / "cards").recipe("pull_apart")
    assert (recipe.method, recipe.data.corpus) == ("pull_apart:PullApart", "pull_apart.csv")
    tree = ast.parse((tmp_path / "pull_apart.py").read_text())
    assert [node.name for node in tree.body if isinstance(node, ast.ClassDef)] == [
        "PullApart",
        "PullApartOfText",
    ]
    assert len(load_corpus("pull_apart.csv")) == 16
    # The same draft again finds its own module, and that is no other.
    assert (
        draft_method(locate_card(tmp_path / "cards", "trainers", "pull_apart")).files == draft.files
    )


def test_the_pairs_hold_no_test_sentence():
    corpus = load_corpus(TEMPLATES_FOLDER / "pairs.csv")
    assert find_overlap(corpus, [load_task("quickstart-en")])[0].n_found == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my-method", "'my-method' cannot be the name of a Python module; give my_method$"),
        ("class", "'class' cannot be the name of a Python module$"),
        ("1st", "'1st' cannot be the name of a Python module$"),
        ("json", r"Python has a module 'json' already \(.*json.*\); give another name"),
        ("sys", "Python has a module 'sys' already"),
    ],
)
def test_names_that_are_no_modules_or_others(tmp_path, monkeypatch, name, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StsbenchError, match=message):
        draft_method(locate_card(tmp_path / "cards", "trainers", name))
