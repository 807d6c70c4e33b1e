"""What is to be trained: a recipe as its card says, or with what a user replaced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from stsbench.cards.catalogue import Catalogue, read_card
from stsbench.cards.names import replaced_once, variants
from stsbench.cards.recipe import BaseFacts, CorpusFacts, RecipeCard, SelectionFacts, StudentFacts, TrainingFacts
from stsbench.cards.strict import convert
from stsbench.encoders.trained import run_folder
from stsbench.errors import CardError, did_you_mean

if TYPE_CHECKING:
    from stsbench.training.loop.place import Place


@dataclass(frozen=True, kw_only=True)
class TrainPlan:
    """What one ``stsbench train`` does: a recipe, with what the user replaced, for one seed."""

    name: str
    card: RecipeCard
    seed: int
    out: Path
    base: str = ""
    corpora: Path | None = None
    data: Path | None = None
    device: str = "auto"
    fresh: bool = False
    """Train anew, in the place of what the folder holds; else what is done is kept and what was stopped goes on."""
    command: str = ""
    """How the user asked for this seed, and could ask again."""
    deterministic: bool = False
    checkpoint_seconds: float = 120.0
    report_to: Sequence[str] = ()
    workers: int | None = None
    """Processes that make batches ahead; None: as the device needs them."""
    catalogue: Catalogue = field(default_factory=Catalogue)

    @property
    def folder(self) -> Path:
        """Where the encoder is written."""
        return run_folder(self.out, self.name, self.seed)

    @cached_property
    def place(self) -> Place:
        """This process among those that train together, and its device."""
        from stsbench.training.loop.place import Place

        return Place.find(self.device)


def read_recipe(spec: str, catalogue: Catalogue, *, assign: Mapping[str, Any] | None = None) -> tuple[str, RecipeCard]:
    """Return a recipe's name and its card, with values replaced.

    Args:
        spec: a recipe's id, that with values replaced (``simcse-small+temperature=0.1``), or the path of a card.
        catalogue: where ids are looked up.
        assign: values by key: ``training.batch_size``, or ``batch_size`` where one table alone has it;
            what no table has is a parameter of the method.

    Raises:
        UnknownName: no such recipe. CardError: a value that does not fit.
    """
    stem, changes = next((one for one in variants(spec) if one[0] in catalogue.paths("trainers")), (spec, {}))
    path = Path(spec)
    name, card = (path.stem, read_card(path, RecipeCard)) if spec.endswith(".toml") else (stem, catalogue.recipe(stem))
    replaced = replaced_once(spec, changes, assign or {})
    if not replaced:
        return name, card
    table = msgspec.to_builtins(card)
    for key, value in replaced.items():
        _assign(table, key, value)
    _replace_length(table["training"], card.training)
    changed = "+".join([name, *(f"{key}={value}" for key, value in sorted(replaced.items()))])
    return changed, convert(table, RecipeCard, where=f"recipe {name}: --set")


def _replace_length(training: dict[str, Any], before: TrainingFacts) -> None:
    """Where the card says how long by one of epochs and steps and ``--set`` gives the other, that replaces it."""
    if training["steps"] and before.steps is None and training["epochs"] == before.epochs:
        training["epochs"] = None
    elif training["epochs"] and before.epochs is None and training["steps"] == before.steps:
        training["steps"] = None


TABLES = ("training", "student", "selection", "data", "base", "params")
KEYS = [
    key
    for table in (TrainingFacts, StudentFacts, SelectionFacts, CorpusFacts, BaseFacts)
    for key in table.__struct_fields__
]
"""Those of the tables that are the same for all methods."""


def _assign(table: dict[str, Any], key: str, value: Any) -> None:  # noqa: ANN401 - any TOML value
    first, _, rest = key.partition(".")
    if rest:
        if first not in TABLES:
            raise CardError(
                f"--set {key}: no table '{first}'{did_you_mean(first, TABLES)}; tables: {', '.join(TABLES)}"
            )
        table[first][rest] = value
        return
    homes = [name for name in TABLES[:-1] if key in table[name]]
    if len(homes) > 1:
        raise CardError(f"--set {key}: say which: {' or '.join(f'{home}.{key}' for home in homes)}")
    table[homes[0] if homes else "params"][key] = value
