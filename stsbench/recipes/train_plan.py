"""What is to be trained: a recipe as its card says or with what a user replaced; its text, start and development split."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from stsbench.core.cards import (
    BaseSection,
    CorpusSection,
    RecipeCard,
    SelectionSection,
    StudentSection,
    TrainingSection,
)
from stsbench.core.catalogue import Catalogue, read_card
from stsbench.core.errors import (
    CardError,
    DataError,
    EncoderError,
    TrainingError,
    look_up,
    suggest,
)
from stsbench.core.names import merge_parameters, split_params
from stsbench.core.toml import convert
from stsbench.data.corpora.corpus import Corpus, load_corpus
from stsbench.data.corpora.selection import (
    NUMBER_COLUMNS,
    check_unordered,
    limit_words,
    repeat_rows,
    select_rows,
    to_form,
)
from stsbench.data.splits import PairSplit
from stsbench.data.task import load_task
from stsbench.encoders.base import Encoder, FloatArray
from stsbench.encoders.checkpoint import Checkpoint, find_checkpoint
from stsbench.encoders.runs import RUN_FILE, run_folder
from stsbench.numbers.similarity import alignment, paired_cosine, paired_similarities, uniformity
from stsbench.numbers.statistics import CORRELATIONS
from stsbench.training.methods.registry import METHODS, METHODS_BY_TRAINER

if TYPE_CHECKING:
    from stsbench.training.loop.gather import ProcessGroup


@dataclass(frozen=True, kw_only=True)
class TrainingEnvironment:
    """With what a training is carried out."""

    corpora: Path | None = None
    data: Path | None = None
    device: str = "auto"
    deterministic: bool = False
    checkpoint_seconds: float = 120.0
    report_to: Sequence[str] = ()
    workers: int | None = None
    """Processes that make batches ahead; None: as the device needs them."""
    catalogue: Catalogue = field(default_factory=Catalogue)


@dataclass(frozen=True, kw_only=True)
class TrainPlan(TrainingEnvironment):
    """What one ``stsbench train`` does: a recipe, with what the user replaced, for one seed."""

    name: str
    card: RecipeCard
    seed: int
    out: Path
    base: str = ""
    fresh: bool = False
    """Train anew, in the place of what the folder holds; else what is done is kept and what was stopped resumes."""
    command: str = ""
    """How the user asked for this seed, and could ask again."""

    @property
    def folder(self) -> Path:
        """Where the encoder is written."""
        return run_folder(self.out, self.name, self.seed)

    @cached_property
    def place(self) -> ProcessGroup:
        """This process among those that train together, and its device."""
        from stsbench.training.loop.gather import ProcessGroup

        return ProcessGroup.find(self.device)


def read_recipe(
    spec: str, catalogue: Catalogue, *, assign: Mapping[str, Any] | None = None
) -> tuple[str, RecipeCard]:
    """Return a recipe's name and its card, with values replaced.

    ``spec`` is a recipe's id, that with values replaced (``simcse-small+temperature=0.1``), or the path of a card. ``assign`` are
    values by key: ``training.batch_size``, or ``batch_size`` where one table alone has it; what no table has is a parameter of
    the method. Raises UnknownName where there is no such recipe, and CardError for a value that does not fit.
    """
    stem, changes = next(
        (one for one in split_params(spec) if one[0] in catalogue.paths("trainers")), (spec, {})
    )
    path = Path(spec)
    name, card = (
        (path.stem, read_card(path, RecipeCard))
        if spec.endswith(".toml")
        else (stem, catalogue.recipe(stem))
    )
    replaced = merge_parameters(spec, changes, assign or {})
    if not replaced:
        return name, card
    table = msgspec.to_builtins(card)
    for key, value in replaced.items():
        _assign(table, key, value)
    training, before = table["training"], card.training
    # Where the card says how long by one of epochs and steps and ``--set`` gives the other, that replaces it.
    if training["steps"] and before.steps is None and training["epochs"] == before.epochs:
        training["epochs"] = None
    elif training["epochs"] and before.epochs is None and training["steps"] == before.steps:
        training["steps"] = None
    changed = "+".join([name, *(f"{key}={value}" for key, value in sorted(replaced.items()))])
    return changed, convert(table, RecipeCard, where=f"recipe {name}: --set")


TABLES = ("training", "student", "selection", "data", "base", "params")
KEYS = [
    key
    for table in (TrainingSection, StudentSection, SelectionSection, CorpusSection, BaseSection)
    for key in table.__struct_fields__
]
"""Those of the tables that are the same for all methods."""


def _assign(table: dict[str, Any], key: str, value: Any) -> None:  # noqa: ANN401 - any TOML value
    first, _, rest = key.partition(".")
    if rest:
        if first not in TABLES:
            hint = f"{suggest(first, TABLES)}; tables: {', '.join(TABLES)}"
            raise CardError(f"--set {key}: no table '{first}'{hint}")
        table[first][rest] = value
        return
    homes = [name for name in TABLES[:-1] if key in table[name]]
    if len(homes) > 1:
        raise CardError(f"--set {key}: say which: {' or '.join(f'{home}.{key}' for home in homes)}")
    table[homes[0] if homes else "params"][key] = value


def values_of(corpus: Corpus, names: Sequence[str]) -> dict[str, Any]:
    """Some columns of a corpus: texts, or numbers."""
    return {
        name: corpus.numbers(name) if name in NUMBER_COLUMNS else corpus.column(name)
        for name in names
    }


def lines_as_documents(corpus: Corpus) -> Corpus:
    """Each line of a plain file of text is a document, where documents are asked for."""
    if corpus.columns != ["text"]:
        return corpus
    return replace(corpus, table=corpus.table.rename_columns(["document"]))


def load_validation(plan: TrainPlan) -> Callable[[Encoder], float]:
    """What scores an encoder on a plan's development split."""
    facts = plan.card.selection
    split = load_task(facts.task, data=plan.data, catalogue=plan.catalogue).load(facts.split)
    return validator(split, measure=facts.measure)


def load_text(plan: TrainPlan) -> Corpus:
    """What a plan learns from."""
    facts = plan.card.data
    corpus = load_corpus(
        facts.corpus, corpora=plan.corpora, data=plan.data, catalogue=plan.catalogue
    )
    if facts.where:
        check_unordered(corpus, "where")
        corpus = select_rows(corpus, facts.where)
    corpus = to_form(corpus, facts.form) if facts.form else corpus
    corpus = corpus.sentences() if facts.sentences else corpus
    corpus = corpus if facts.max_words is None else limit_words(corpus, facts.max_words)
    wanted = facts.rows
    if wanted is None:
        if facts.upsample:
            raise CardError("[data] upsample repeats the rows that are drawn; give 'rows' too")
        return corpus
    if not (1 if facts.upsample else 2) <= wanted <= len(corpus):
        fewest = "" if wanted > 1 else ", and two are the fewest"
        raise CardError(f"[data] rows {wanted}: the corpus has {len(corpus)}{fewest}")
    # Ordered text stays in one piece: a sentence's neighbours are what is learned from.
    drawn = np.arange(wanted)
    if "document_id" not in corpus.columns:
        drawn = np.sort(
            np.random.default_rng([plan.seed, 7]).choice(len(corpus), wanted, replace=False)
        )
    taken = corpus.take(drawn.tolist())
    if facts.upsample:
        check_unordered(corpus, "upsample")
    return repeat_rows(taken, len(corpus)) if facts.upsample else taken


def uses_training_loop(card: RecipeCard) -> bool:
    """Whether the common loop trains a recipe; torch is not loaded to know it of a method of ours."""
    ours = {name: trainer for trainer, rows in METHODS_BY_TRAINER.items() for name in rows}
    return (ours.get(card.method) or METHODS.load(card.method).trainer) == "loop"


def check_start(plan: TrainPlan) -> None:
    """Raise CardError where no checkpoint to start from is named."""
    base = plan.card.base
    if not (plan.base or base.recipe or base.model):
        raise CardError(
            f"recipe {plan.name}: no checkpoint to start from; pass --base FOLDER ({base.note})"
        )


def find_start(plan: TrainPlan) -> Checkpoint:
    """The checkpoint that training starts from."""
    base = plan.card.base
    if plan.base and (
        Path(plan.base).is_dir() or plan.base not in plan.catalogue.paths("baselines")
    ):
        return find_checkpoint(plan.base)
    if plan.base:
        params = plan.catalogue.encoder(plan.base).params
        if not {"model", "package"} & {*params}:
            raise CardError(
                f"--base {plan.base}: its card names no checkpoint; give a folder that holds it, or a Hub id"
            )
        where_it_lies = ("model", "package", "revision", "subfolder", "sha256")
        return find_checkpoint(**{key: params[key] for key in where_it_lies if key in params})
    if base.recipe:
        earlier = run_folder(plan.out, base.recipe, plan.seed)
        if not (earlier / RUN_FILE).is_file():
            what = f"recipe {plan.name} continues from '{base.recipe}', seed {plan.seed}, which is not trained here"
            raise TrainingError(f"{what}; run: stsbench train {base.recipe} --seeds {plan.seed}")
        return find_checkpoint(str(earlier))
    check_start(plan)
    return find_checkpoint(base.model, revision=base.revision, sha256=base.sha256)


MEASURES: Mapping[str, Callable[[FloatArray, FloatArray], Sequence[npt.NDArray[np.float64]]]] = {
    "cosine": lambda a, b: [paired_cosine(a, b)[0]],
    "best_of_four": paired_similarities,
}
"""What Spearman is taken of when weights are chosen; the highest counts."""


def validator(split: Any, *, measure: str = "cosine") -> Callable[[Encoder], float]:  # noqa: ANN401 - any split
    """Return what scores an encoder on a development split: Spearman of cosine or the best of four, x100 nowhere.

    Beside the score it gives alignment and uniformity of the split's embeddings.
    """
    if not isinstance(split, PairSplit):
        raise DataError(
            "selection needs a split of sentence pairs with gold scores, such as stsb's dev"
        )

    from stsbench.training.learner import DevelopmentScore

    similarities = look_up("measure", measure, MEASURES)
    # Positives: above 4 of STS-B's 5, as in SimCSE's section 3.
    close = split.gold > 0.8 * split.gold.max()

    def validate(encoder: Encoder) -> float:
        embeddings = encoder.encode([*split.sentences1, *split.sentences2])
        a, b = embeddings[: split.n], embeddings[split.n :]
        scores = [float(CORRELATIONS["spearman"](one, split.gold)) for one in similarities(a, b)]
        # A collapsed student embeds everything alike: the worst there is, not an error.
        best = max(score if np.isfinite(score) else -1.0 for score in scores)
        aligned = {"alignment": alignment(a[close], b[close])} if close.any() else {}
        found = DevelopmentScore(best)
        found.measures = {**aligned, "uniformity": uniformity(embeddings)}
        return found

    return validate


def find_missing(plan: TrainPlan) -> dict[str, str]:
    """Return what of development split, text and start cannot be had, each with the reason and what to do."""
    wanted: dict[str, Any] = {"development split": load_validation, "text": load_text}
    if uses_training_loop(plan.card):
        wanted["start"] = find_start
    missing = {}
    for what, load in wanted.items():
        try:
            load(plan)
        except (CardError, DataError, EncoderError, TrainingError) as error:
            missing[what] = str(error)
    return missing


def summarise_plan(plan: TrainPlan) -> dict[str, str]:
    """Return what a recipe's card says of method, start, text, steps and validations."""
    card, facts, data, chosen_by = (
        plan.card,
        plan.card.training,
        plan.card.data,
        plan.card.selection,
    )
    known = plan.catalogue.corpora()
    changed = data.sentences or data.max_words or data.where or data.form
    rows = known[data.corpus].rows if data.corpus in known and not changed else None
    if data.rows is not None:
        rows = (rows and rows // data.rows * data.rows) if data.upsample else data.rows
    start = (
        plan.base or card.base.model or (f"recipe {card.base.recipe}" if card.base.recipe else "")
    )
    long = f"{facts.steps or 0:,} steps"
    if facts.steps is None and facts.epochs is not None:
        long = f"{facts.epochs:g} epoch{'' if facts.epochs == 1 else 's'}"
        if rows is not None and uses_training_loop(card):
            from stsbench.training.loop.batches import BatchPlan

            long += f", {BatchPlan(facts, rows, plan.seed).steps:,} steps"
    found = {
        "method": card.method,
        "start": start or card.base.note,
        "corpus": f"{data.corpus}{'' if rows is None else f', {rows:,} rows'}",
        "length": f"{long} of {facts.batch_size * facts.accumulate} rows",
        "rate": f"{facts.learning_rate:g}, schedule {facts.schedule}",
        "validations": f"every {chosen_by.every:,} steps on {chosen_by.task} {chosen_by.split}",
    }
    return {key: value for key, value in found.items() if value}
