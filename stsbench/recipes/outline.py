"""What a plan is to do by its card alone, and what of its materials is not here: for a forecast that cannot be made."""

from __future__ import annotations

from typing import Any

from stsbench.errors import CardError, DataError, EncoderError, TrainingError
from stsbench.recipes.plan import TrainPlan
from stsbench.recipes.prepare import find_start, load_text, load_validation
from stsbench.training.loop.batches import BatchPlan
from stsbench.training.methods import load_method


def find_missing(plan: TrainPlan) -> dict[str, str]:
    """Return what of development split, text and start cannot be had, each with the reason and what to do."""
    wanted: dict[str, Any] = {"development split": load_validation, "text": load_text}
    if load_method(plan.card.method)[0] == "loop":
        wanted["start"] = find_start
    missing = {}
    for what, load in wanted.items():
        try:
            load(plan)
        except (CardError, DataError, EncoderError, TrainingError) as error:
            missing[what] = str(error)
    return missing


def outline(plan: TrainPlan) -> dict[str, str]:
    """Return what a recipe's card says of method, start, text, steps and validations."""
    card, facts, chosen_by = plan.card, plan.card.training, plan.card.selection
    rows = _rows(plan)
    start = plan.base or card.base.model or (f"recipe {card.base.recipe}" if card.base.recipe else "")
    long = (
        f"{facts.epochs:g} epoch{'' if facts.epochs == 1 else 's'}"
        if facts.steps is None and facts.epochs is not None
        else f"{facts.steps:,} steps"
    )
    if facts.steps is None and rows is not None and load_method(card.method)[0] == "loop":
        long += f", {BatchPlan.make(facts, rows, seed=plan.seed).steps:,} steps"
    told = {
        "method": card.method,
        "start": start or card.base.note,
        "corpus": f"{card.data.corpus}{'' if rows is None else f', {rows:,} rows'}",
        "length": f"{long} of {facts.batch_size * facts.accumulate} rows",
        "rate": f"{facts.learning_rate:g}, schedule {facts.schedule}",
        "validations": f"every {chosen_by.every:,} steps on {chosen_by.task} {chosen_by.split}",
    }
    return {key: value for key, value in told.items() if value}


def _rows(plan: TrainPlan) -> int | None:
    """How many rows are learned from, where the cards tell."""
    data, known = plan.card.data, plan.catalogue.corpora()
    changed = data.sentences or data.max_words or data.where or data.form
    whole = known[data.corpus].rows if data.corpus in known and not changed else None
    if data.rows is not None and data.upsample:
        return whole and whole // data.rows * data.rows
    return whole if data.rows is None else data.rows
