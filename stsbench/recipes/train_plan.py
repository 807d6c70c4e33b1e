"""Plans of trainings: a recipe with replaced values, its text, start and development split."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

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
    Remedy,
    StsbenchError,
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
from stsbench.encoders.metadata import check_own_name
from stsbench.encoders.runs import RUN_FILE, run_folder
from stsbench.encoders.transformer.pooling import parse_training_poolings
from stsbench.numbers.similarity import alignment, paired_cosine, paired_similarities, uniformity
from stsbench.numbers.statistics import CORRELATIONS, Float64Array
from stsbench.training.methods.registry import METHODS, METHODS_BY_TRAINER

if TYPE_CHECKING:
    from stsbench.training.loop.gather import ProcessGroup


@dataclass(frozen=True, kw_only=True)
class TrainingEnvironment:
    """The folders, the device and the settings with which recipes are trained."""

    corpora: Path | None = None
    data: Path | None = None
    device: str = "auto"
    deterministic: bool = False
    checkpoint_seconds: float = 120.0
    report_to: Sequence[str] = ()
    workers: int | None = None
    """The number of processes that make batches ahead; None: as many as the device needs."""
    catalogue: Catalogue = field(default_factory=Catalogue)


@dataclass(frozen=True, kw_only=True)
class TrainPlan(TrainingEnvironment):
    """The plan of one training run: a recipe, with replaced values, and a seed."""

    name: str
    card: RecipeCard
    seed: int
    out: Path
    """The folder of runs."""
    base: str = ""
    """The user's checkpoint to start from; empty for that of the recipe."""
    fresh: bool = False
    """Replace what the folder holds; else a finished run is kept and a stopped one resumes."""
    command: str = ""
    """The call with which the user has started this run, and can resume it."""

    @property
    def folder(self) -> Path:
        """The folder of the trained encoder."""
        return run_folder(self.out, self.name, self.seed)

    @cached_property
    def processes(self) -> ProcessGroup:
        """The processes that train together, this one among them, and its device."""
        from stsbench.training.loop.gather import ProcessGroup

        return ProcessGroup.find(self.device)


class NamedRecipe(NamedTuple):
    """A recipe's card, and its name with the replaced values."""

    name: str
    card: RecipeCard


def read_recipe(
    spec: str, catalogue: Catalogue, *, params: Mapping[str, Any] | None = None
) -> NamedRecipe:
    """Read a recipe, and replace some of its values.

    A recipe is a TOML file (a card) with tables such as ``[training]`` and ``[data]``.

    Args:
        spec: The id of a recipe, an id with replaced values (``simcse-small+temperature=0.1``), or
            the path of a card.
        catalogue: The cards, by which the id is found.
        params: Further values by key: ``training.batch_size``, or ``batch_size`` if only one table
            has this key. A key that no table has is a parameter of the method.

    Returns:
        The recipe with the new values, and its name, to which they are added.

    Raises:
        UnknownName: There is no such recipe.
        CardError: A value is not valid.
    """
    # The id without the replaced values, and these; the path of a card, and no values.
    recipes = catalogue.paths("trainers")
    splits = (split for split in split_params(spec) if split[0] in recipes)
    stem, changes = next(splits, (spec, {}))
    if spec.endswith(".toml"):
        path = Path(spec)
        name, card = path.stem, read_card(path, RecipeCard)
    else:
        name, card = stem, catalogue.recipe(stem)
    # Raises CardError if a key is in both.
    replaced = merge_parameters(spec, changes, params=params or {})
    if not replaced:
        return NamedRecipe(name, card)
    # The card as a dict of dicts.
    tables = msgspec.to_builtins(card)
    # Table and key of a replaced value -> how the user has written them.
    names: dict[tuple[str, str], str] = {}
    for name_of_value, value in replaced.items():
        table, key = location = _find_table(tables, name_of_value)
        if location in names:
            raise CardError(
                f"`params={names[location]}` and `params={name_of_value}` are the same value; "
                "leave out one of them"
            )
        names[location] = name_of_value
        tables[table][key] = value
    # The length of a training is in epochs or in steps. If the card has one of these and the user
    # sets only the other, the card's is removed; some methods have both.
    for length, other in (("steps", "epochs"), ("epochs", "steps")):
        is_new = ("training", length) in names and getattr(card.training, length) is None
        if is_new and ("training", other) not in names:
            tables["training"][other] = None
    assignments = [f"{key}={value}" for key, value in sorted(replaced.items())]
    new_card = convert(tables, RecipeCard, where=f"recipe {name}: `params`")
    return NamedRecipe("+".join([name, *assignments]), new_card)


def plan_training(
    spec: str,
    catalogue: Catalogue,
    *,
    params: Mapping[str, Any],
    text: str | None,
    keep: str | None,
    base: str,
    name: str,
    **settings: Any,  # noqa: ANN401 - those of TrainPlan
) -> TrainPlan:
    """Plan the training of a recipe with the values that a user replaces, for its first seed.

    Args:
        spec: The id of a recipe, perhaps with replaced values, or the path of its card.
        catalogue: The cards, by which the id is found.
        params: New values of the recipe by key, such as ``batch_size``.
        text: The corpus or file to train on; None for the recipe's.
        keep: The weights to keep, ``best`` or ``last``; None for the recipe's.
        base: The checkpoint to start from; empty for that of the recipe.
        name: The name of the trained encoder; empty for that of the recipe.
        settings: Further fields of :class:`TrainPlan`, such as its folders.

    Raises:
        UnknownName: There is no such recipe.
        StsbenchError: A value is not valid or replaced twice, or the name is one of an encoder's.
    """
    # New values by key: ``params`` with ``text`` and ``keep``. ``base`` is passed only to refuse
    # another one in ``params``.
    values = replace_values(spec, catalogue, params=params, base=base, text=text, keep=keep)
    recipe_name, card = read_recipe(spec, catalogue, params=values)
    if name:
        # Raises an error for a name that is taken by a card or recipe.
        check_own_name(name, catalogue)
    # Raises CardError for an unknown pooling. It is checked again when the encoder is made, but a
    # dry run makes none.
    parse_training_poolings(card.student, card.selection.validation_pooling)
    return TrainPlan(
        name=name or recipe_name,
        card=card,
        seed=card.seeds[0] if card.seeds else 0,
        base=base,
        catalogue=catalogue,
        **settings,
    )


def replace_values(
    spec: str,
    catalogue: Catalogue,
    *,
    params: Mapping[str, Any],
    base: str = "",
    text: str | None = None,
    keep: str | None = None,
) -> dict[str, Any]:
    """Return all values of a recipe that a user replaces, by key, for :func:`read_recipe`.

    They are ``params``, with ``text`` added as ``data.corpus``, and ``keep`` as ``selection.keep``.

    Args:
        spec: The id of a recipe, perhaps with replaced values, or the path of its card.
        catalogue: The cards, by which the id is found.
        params: New values of the recipe by key, such as ``training.batch_size`` or ``batch_size``.
        base: The checkpoint to start from, which is only compared with ``params``; empty for that
            of the recipe.
        text: The corpus or file to train on; None for the recipe's.
        keep: The weights to keep, ``best`` or ``last``; None for the recipe's.

    Raises:
        StsbenchError: Two arguments replace the same value.
    """
    values = dict(params)
    base_keys = [key for key in values if key.startswith("base.")]
    if base and base_keys:
        raise StsbenchError(f"`params={base_keys[0]}` has no effect beside `base`; leave it out")
    for name, key, value in (("text", "data.corpus", text), ("keep", "selection.keep", keep)):
        if value is not None:
            # Users may write a key with its table or without.
            _, short_key = key.split(".")
            if key in values or short_key in values:
                raise StsbenchError(f"`{name}` and `params` both give {key}; leave out one of them")
            values[key] = value
    if text is not None and Path(text) == Path(read_recipe(spec, catalogue).card.data.corpus):
        # Not replaced, as it is the recipe's own text: so the run keeps the recipe's name.
        del values["data.corpus"]
    return values


RECIPE_TABLES = ("training", "student", "selection", "data", "base", "params")
"""The tables of a recipe whose values can be replaced."""
KEYS_OF_ALL_METHODS = [
    key
    for section in (TrainingSection, StudentSection, SelectionSection, CorpusSection, BaseSection)
    for key in section.__struct_fields__
]
"""The keys of the tables that are the same for all methods."""


def _find_table(tables: Mapping[str, Mapping[str, Any]], key: str) -> tuple[str, str]:
    """Return the table of a recipe that a key is in, and the key without it.

    A key without a table is that of the one table that has it. If no table has it, it is a
    parameter of the training method, in the table ``params``.

    Args:
        tables: The recipe: for each table its values by key.
        key: The key, perhaps with its table: ``training.batch_size``.

    Raises:
        CardError: There is no such table, or several tables have the key.
    """
    table_name, _, table_key = key.partition(".")
    if table_key:
        if table_name not in RECIPE_TABLES:
            hint = f"{suggest(table_name, RECIPE_TABLES)}; tables: {', '.join(RECIPE_TABLES)}"
            raise CardError(f"`params={key}`: no table '{table_name}'{hint}")
        return table_name, table_key
    candidates = [name for name in RECIPE_TABLES if name != "params" and key in tables[name]]
    if len(candidates) > 1:
        choices = " or ".join(f"{name}.{key}" for name in candidates)
        raise CardError(f"`params={key}`: say which: {choices}")
    return candidates[0] if candidates else "params", key


def read_columns(corpus: Corpus, names: Sequence[str]) -> dict[str, Any]:
    """Return columns of a corpus by name: arrays of numbers, or texts."""
    columns: dict[str, Any] = {}
    for name in names:
        is_number = name in NUMBER_COLUMNS
        columns[name] = corpus.numbers(name) if is_number else corpus.column(name)
    return columns


def lines_as_documents(corpus: Corpus) -> Corpus:
    """Return a plain text with each line as a document; other corpora are unchanged."""
    if corpus.columns != ["text"]:
        return corpus
    return replace(corpus, table=corpus.table.rename_columns(["document"]))


def load_validation(plan: TrainPlan) -> Callable[[Encoder], float]:
    """Load the development split of a plan's recipe, and return a function that scores encoders.

    Args:
        plan: The plan; the table ``[selection]`` of its recipe names task, split and similarity.

    Returns:
        A function from an encoder to its score on the split.

    Raises:
        DataError: The split cannot be read, or is not of pairs with gold scores.
    """
    selection = plan.card.selection
    task = load_task(selection.task, data=plan.data, catalogue=plan.catalogue)
    return make_validator(task.load(selection.split), measure=selection.measure)


def load_text(plan: TrainPlan) -> Corpus:
    """Load the text that a plan's recipe trains on, as its table ``[data]`` describes.

    Args:
        plan: The plan, with the recipe (``card``), the folders and the seed.

    Returns:
        The corpus: columns of text or labels.

    Raises:
        CardError: A value of the table does not fit the corpus.
        DataError: The corpus cannot be read.
    """
    section = plan.card.data
    # The order of the following changes matters: words are limited after the corpus is divided
    # into sentences, and rows are drawn last. ``corpus`` is the name of a known corpus, or a file.
    corpus = load_corpus(
        section.corpus, corpora=plan.corpora, data=plan.data, catalogue=plan.catalogue
    )
    if section.where:
        # Ordered text, whose sentences are neighbours, must not lose rows: CardError.
        check_unordered(corpus, key="where")
        # A condition such as "label = entailment".
        corpus = select_rows(corpus, section.where)
    if section.form:
        # Labelled pairs become pairs or triplets of an anchor with its positive and negative.
        corpus = to_form(corpus, section.form)
    if section.sentences:
        # The distinct sentences of all columns.
        corpus = corpus.sentences()
    if section.max_words is not None:
        # Rows that have a text with more words are dropped.
        corpus = limit_words(corpus, section.max_words)
    if section.rows is not None:
        return _draw_rows(corpus, section.rows, seed=plan.seed, upsample=section.upsample)
    if section.upsample:
        raise CardError("[data] upsample repeats the rows that are drawn; give 'rows' too")
    return corpus


def _draw_rows(corpus: Corpus, n_rows: int, *, seed: int, upsample: bool) -> Corpus:
    """Return rows that are drawn at random from a corpus, in its order.

    Of ordered text, which has a column ``document_id``, the first rows are taken instead: a
    sentence's neighbours are what is learned from.

    Args:
        corpus: The corpus.
        n_rows: The number of rows to draw.
        seed: The seed of the run.
        upsample: Repeat the rows to about the length of the corpus.

    Raises:
        CardError: The corpus has fewer rows, or is ordered text that cannot be repeated.
    """
    # A batch needs two rows; a single one can be repeated.
    min_rows = 1 if upsample else 2
    if not min_rows <= n_rows <= len(corpus):
        hint = "" if n_rows > 1 else ", and two are the fewest"
        raise CardError(f"[data] rows {n_rows}: the corpus has {len(corpus)}{hint}")
    rows = np.arange(n_rows)
    if "document_id" not in corpus.columns:
        # The 7 makes these draws independent of other draws of the run with the same seed.
        rng = np.random.default_rng([seed, 7])
        rows = np.sort(rng.choice(len(corpus), n_rows, replace=False))
    # Each seed draws other rows. What the seeds of a recipe have in common is the text that they
    # draw from, so its hash is stored too.
    selected = replace(corpus.take(rows.tolist()), drawn_from=corpus.sha256)
    if not upsample:
        return selected
    # Raises CardError for ordered text, whose sentences are neighbours.
    check_unordered(corpus, key="upsample")
    # As many whole copies as fit into the length of the corpus, at least one.
    return repeat_rows(selected, len(corpus))


def uses_training_loop(card: RecipeCard) -> bool:
    """Return whether the common loop trains a recipe; for methods of ours torch is not loaded."""
    for trainer, methods in METHODS_BY_TRAINER.items():
        if card.method in methods:
            return trainer == "loop"
    return bool(METHODS.load(card.method).trainer == "loop")


def check_start_is_named(plan: TrainPlan) -> None:
    """Raise CardError if neither the user nor the recipe names a checkpoint to start from."""
    base = plan.card.base
    if not (plan.base or base.recipe or base.model):
        raise CardError(
            f"recipe {plan.name}: no checkpoint to start from; pass `base=FOLDER` ({base.note})"
        )


def find_start(plan: TrainPlan) -> Checkpoint:
    """Find the checkpoint that training starts from, and download it if necessary.

    It is the one that the user names; or else the one of the recipe's table ``[base]``: a model, or
    the run of another recipe with the same seed.

    Args:
        plan: The plan; its ``base`` is the user's checkpoint, empty for that of the recipe.

    Raises:
        CardError: No checkpoint is named.
        TrainingError: The run of the other recipe does not exist yet.
        EncoderError, SourceError: There is no such checkpoint, or it cannot be downloaded.
    """
    if plan.base:
        return _find_user_start(plan)
    base = plan.card.base
    if not base.recipe:
        # Raises CardError if the recipe names no model either.
        check_start_is_named(plan)
        return find_checkpoint(base.model, revision=base.revision, sha256=base.sha256)
    # The recipe continues from the run of another recipe.
    folder = run_folder(plan.out, base.recipe, plan.seed)
    if not (folder / RUN_FILE).is_file():
        raise TrainingError(
            f"recipe {plan.name} continues from '{base.recipe}', seed {plan.seed}, "
            "which is not trained here",
            remedy=Remedy("train", {"recipe": base.recipe, "seeds": str(plan.seed)}),
        )
    return find_checkpoint(str(folder))


def _find_user_start(plan: TrainPlan) -> Checkpoint:
    """Find the checkpoint that the user names: a folder, an encoder with a card, or a Hub id.

    Args:
        plan: The plan; its ``base`` is the name.

    Raises:
        CardError: The card of the encoder names no checkpoint.
    """
    # "baselines" are the cards of encoders, by name.
    if Path(plan.base).is_dir() or plan.base not in plan.catalogue.paths("baselines"):
        return find_checkpoint(plan.base)
    params = plan.catalogue.encoder(plan.base).params
    # ``model`` is a folder or a Hub id; ``package`` a Python package that ships the checkpoint.
    if not {"model", "package"} & {*params}:
        raise CardError(
            f"`base={plan.base}`: its card names no checkpoint; "
            "give a folder that holds it, or a Hub id"
        )
    # The card's parameters that say where the checkpoint is, and which hashes its files must have.
    keys = ("model", "package", "revision", "subfolder", "sha256")
    return find_checkpoint(**{key: params[key] for key in keys if key in params})


MEASURES: Mapping[str, Callable[[FloatArray, FloatArray], Sequence[Float64Array]]] = {
    "cosine": lambda first, second: [paired_cosine(first, second)[0]],
    "best_of_four": paired_similarities,
}
"""The similarities of which Spearman is computed to select weights; the highest counts."""


def make_validator(
    split: Any,  # noqa: ANN401 - any split
    *,
    measure: str = "cosine",
) -> Callable[[Encoder], float]:
    """Return a function that scores an encoder on a development split.

    The score is Spearman's correlation of the similarities of pairs with their gold scores, from -1
    to 1. It is a float with further measures as an attribute: alignment and uniformity of the
    split's embeddings.

    Args:
        split: A split of sentence pairs with gold scores.
        measure: The similarity of two embeddings: ``cosine``, or ``best_of_four``, for which the
            best correlation of cosine, dot product, Manhattan and Euclidean distance counts.

    Raises:
        DataError: The split is not of pairs with gold scores.
        UnknownName: There is no such measure.
    """
    if not isinstance(split, PairSplit):
        raise DataError(
            "selection needs a split of sentence pairs with gold scores, such as stsb's dev"
        )

    from stsbench.training.learner import DevelopmentScore

    # A function from the embeddings of first and second sentences, (n, d), to one or four arrays of
    # similarities, (n,).
    compute_similarities = look_up("measure", measure, MEASURES)
    # Alignment is of pairs with a score above 4 of STS-B's 5, as in SimCSE's section 3.
    is_positive = split.gold > 0.8 * split.gold.max()

    def validate(encoder: Encoder) -> float:
        """Return the encoder's score on ``split``, with further measures as its attribute."""
        # (2 n, d): those of the first sentences, then those of the second.
        embeddings = encoder.encode([*split.sentences1, *split.sentences2])
        first, second = embeddings[: split.n], embeddings[split.n :]
        correlations = [
            CORRELATIONS["spearman"](similarities, split.gold)
            for similarities in compute_similarities(first, second)
        ]
        # If training has collapsed, all sentences have the same embedding, and the correlation is
        # NaN: this gets the worst score, and is no error.
        score = DevelopmentScore(np.nan_to_num(correlations, nan=-1.0).max())
        measures: dict[str, float] = {}
        if is_positive.any():
            measures["alignment"] = alignment(first[is_positive], second[is_positive])
        measures["uniformity"] = uniformity(embeddings)
        score.measures = measures
        return score

    return validate


def find_missing(plan: TrainPlan) -> dict[str, StsbenchError]:
    """Try to load the inputs of a training, and return the error for each that is missing.

    Args:
        plan: The plan of the training.

    Returns:
        The errors by ``development split``, ``text`` (the corpus) and ``start`` (the checkpoint to
        start from); empty if nothing is missing.
    """
    loaders: dict[str, Callable[[TrainPlan], object]] = {
        "development split": load_validation,
        "text": load_text,
    }
    # Other methods start from nothing.
    if uses_training_loop(plan.card):
        loaders["start"] = find_start
    missing: dict[str, StsbenchError] = {}
    for name, load in loaders.items():
        try:
            load(plan)
        except (CardError, DataError, EncoderError, TrainingError) as error:
            missing[name] = error
    return missing


def summarise_plan(plan: TrainPlan, values: Mapping[str, Any]) -> dict[str, str]:
    """Return the rows of a table that summarises the plan of a training: a text by its name.

    Rows without text are absent, for example the start of a method that starts from nothing.

    Args:
        plan: The plan, with the recipe as its ``card``.
        values: The values of the recipe by table and key. Those of a method that trains itself are
            as :func:`stsbench.recipes.trainers.effective_values` returns them.
    """
    card, training, selection = plan.card, values["training"], values["selection"]
    n_rows = _count_rows(plan)
    base_recipe = f"recipe {card.base.recipe}" if card.base.recipe else ""
    # A step adds up the gradients of ``accumulate`` batches.
    n_step_rows = training["batch_size"] * training.get("accumulate", 1)
    schedule = f", schedule {training['schedule']}" if "schedule" in training else ""
    interval = f"{selection['every']:,} steps" if "every" in selection else "epoch"
    summary = {
        "method": card.method,
        # The user's checkpoint, or the recipe's: a model, another recipe, or a note about it.
        "start": plan.base or card.base.model or base_recipe or card.base.note,
        "corpus": f"{card.data.corpus}{'' if n_rows is None else f', {n_rows:,} rows'}",
        "length": f"{_describe_length(plan, training, n_rows)} of {n_step_rows} rows",
        "rate": f"{training['learning_rate']:g}{schedule}",
        "validations": f"every {interval} on {selection['task']} {selection['split']}",
    }
    # A method that trains itself scores nothing if the last weights are kept.
    if selection["keep"] == "last" and not uses_training_loop(card):
        del summary["validations"]
    return {name: text for name, text in summary.items() if text}


def _count_rows(plan: TrainPlan) -> int | None:
    """Return the number of rows of a plan's corpus; None if that is unknown before it is read.

    Args:
        plan: The plan; the table ``[data]`` of its recipe names the corpus and how it is changed.
    """
    section = plan.card.data
    # The cards of known corpora by name, with their numbers of rows.
    corpora = plan.catalogue.corpora()
    # These settings change the number of rows in a way that only reading tells.
    is_changed = section.sentences or section.max_words or section.where or section.form
    n_rows = None
    if section.corpus in corpora and not is_changed:
        n_rows = corpora[section.corpus].rows
    if section.rows is None or not section.upsample:
        return section.rows or n_rows
    if n_rows is None:
        return None
    # The drawn rows are repeated, all of them equally often, to about the length of the corpus.
    return n_rows // section.rows * section.rows


def _describe_length(plan: TrainPlan, training: Mapping[str, Any], n_rows: int | None) -> str:
    """Return the length of a training as text, such as "1 epoch, 15,625 steps" or "500 steps".

    It is in steps if the recipe sets these, otherwise in epochs; then the number of steps is added
    if it can be computed. It is "0 steps" for a recipe that sets neither.

    Args:
        plan: The plan of the training.
        training: The values of its recipe's table ``[training]`` by key.
        n_rows: The number of rows of its corpus; None if it is unknown.
    """
    steps, n_epochs = training.get("steps"), training["epochs"]
    if steps or not n_epochs:
        # A method that trains itself has a number of epochs too, after which it ends.
        return f"{'at most ' if n_epochs else ''}{steps or 0:,} steps"
    epochs = f"{n_epochs:g} epoch{'' if n_epochs == 1 else 's'}"
    # Methods that do not use the common training loop may make other batches.
    if n_rows is None or not uses_training_loop(plan.card):
        return epochs
    from stsbench.training.loop.batches import BatchPlan

    batch_plan = BatchPlan(section=plan.card.training, n_rows=n_rows, seed=plan.seed)
    return f"{epochs}, {batch_plan.steps:,} steps"
