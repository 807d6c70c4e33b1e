"""Every recipe: read strictly, its names known, its method built on a tiny model with the recipe's own parameters."""

from pathlib import Path

import msgspec
import pytest

from stsbench.boards.published.rows import look_up_published_row
from stsbench.core.catalogue import Catalogue
from stsbench.core.parameters import call_with_params
from stsbench.encoders.checkpoint import find_checkpoint
from stsbench.training.learner import Learner
from stsbench.training.loop.optimisers import make_optimiser, make_schedule
from stsbench.training.methods.registry import METHODS, METHODS_BY_TRAINER
from stsbench.training.student import Student

CATALOGUE = Catalogue()
RECIPES = list(CATALOGUE.paths("trainers"))
OF_STUDENTS = [
    name for name in RECIPES if CATALOGUE.recipe(name).method in METHODS_BY_TRAINER["loop"]
]


@pytest.mark.parametrize("name", RECIPES)
def test_names_are_known(name):
    card = CATALOGUE.recipe(name)
    assert card.data.corpus in CATALOGUE.corpora() or Path(card.data.corpus).suffix
    assert card.selection.task in CATALOGUE.paths("tasks")
    assert card.preset and card.paper
    for key in card.published:
        look_up_published_row(key)
    if card.base.recipe:
        assert not card.base.model and card.base.recipe in RECIPES
    elif name in OF_STUDENTS:
        assert card.base.model or card.base.note
    if name in OF_STUDENTS:
        assert (card.training.epochs is None) != (card.training.steps is None)


@pytest.mark.parametrize("name", [name for name in RECIPES if CATALOGUE.recipe(name).published])
def test_a_published_row_is_of_the_same_backbone(name):
    card = CATALOGUE.recipe(name)
    rows = [look_up_published_row(key) for key in card.published]
    assert {row.backbone for row in rows} == {card.backbone}


@pytest.mark.parametrize("name", OF_STUDENTS)
def test_method_is_built_on_a_tiny_model(masked_lm, name):
    card = CATALOGUE.recipe(name)
    method = METHODS.load(card.method)
    student = Student(
        find_checkpoint(str(masked_lm)),
        # The tiny model reads no more.
        msgspec.structs.replace(
            card.student, head="fresh", max_length=min(card.student.max_length or 40, 40)
        ),
        language_model=method.needs_language_model(card.params),
        device="cpu",
    )
    # The width of a head is no matter here, the time to draw its weights is.
    params = (
        {**card.params, "head_width": 32} if card.method == "self_guided" else dict(card.params)
    )
    # The tiny model's positions begin at 0, as RoBERTa's do not.
    params.pop("positions_from_zero", None)
    # A generator has the words of the model it is made for.
    params.pop("generator", None)
    learner = call_with_params(method, {"student": student, **params}, where=name)
    assert isinstance(learner, Learner)
    columns = (
        {"text"} if card.data.sentences else set(CATALOGUE.corpora()[card.data.corpus].columns)
    )
    assert set(learner.needs) <= columns
    assert make_optimiser(learner, card.training).param_groups
    assert make_schedule(card.training, 100)(1) > 0
