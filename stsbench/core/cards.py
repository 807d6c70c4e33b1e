"""The records of cards, and their hashes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, field

from stsbench.core.errors import suggest
from stsbench.core.secrets import redact
from stsbench.core.settings import find_key_problem
from stsbench.core.toml import StrictRecord

Scalar = bool | int | float | str
Overlap = Literal["none", "text", "gold", "unknown"]
Supervision = Literal["none", "nli", "sts", "pairs", "translation"]
PositiveInt = Annotated[int, Meta(ge=1, le=1_000_000_000)]
NonNegativeInt = Annotated[int, Meta(ge=0)]
Seed = Annotated[int, Meta(ge=0, lt=1 << 32)]
Share = Annotated[float, Meta(ge=0, le=1)]
PositiveFloat = Annotated[float, Meta(gt=0)]
NonNegativeFloat = Annotated[float, Meta(ge=0)]
Beta = Annotated[float, Meta(ge=0, lt=1)]
REPRODUCIBLE = {
    "weights": "the weights are published: scores agree up to rounding",
    "trainable": (
        "trained or fitted here by the published settings: "
        "scores agree up to the deviation of seeds"
    ),
    "objective": (
        "the objective is here, the paper's data or settings are not to be had: scores differ"
    ),
    "quoted": "neither weights nor method are here: printed scores only",
}


def check_choice(description: str, name: str, choices: Mapping[str, object]) -> None:
    """Check that a name in a card is one of the valid names.

    Args:
        description: The kind of thing that the name stands for, for the message, such as
            ``metric``.
        name: The name in the card.
        choices: A mapping whose keys are the valid names; its values are not used.

    Raises:
        ValueError: The name is none of them; the parser of cards adds the name of the file.
    """
    if name not in choices:
        raise ValueError(
            f"{description} '{name}' is not one of {', '.join(choices)}{suggest(name, choices)}"
        )


class FileSection(StrictRecord):
    """One data file: its path below its source, its number of rows, and its sha256."""

    path: str
    rows: NonNegativeInt | None = None
    sha256: str = ""
    subset: str = ""
    label: str = ""


class SplitSection(StrictRecord):
    """The expected properties of a split; one that is left out is not checked.

    They are the number of items, the characters of each column, and the mean gold score.
    """

    n: PositiveInt | None = None
    ungraded: NonNegativeInt = 0
    """The number of pairs without a gold score: never scored, training text of some methods."""
    characters: list[NonNegativeInt] = []
    mean: float | None = None
    subsets: dict[str, PositiveInt] = {}
    labels: dict[str, NonNegativeInt] = {}


class FileSource(StrictRecord):
    """A source made of files: a folder below the data folder, or files shipped in the package."""

    files: dict[str, list[FileSection]]
    reader: str = "table"
    folder: str = ""
    """A path below the data folder; below the card's folder if it begins with ``./`` or ``../``."""
    params: dict[str, Any] = {}


class DrawSection(StrictRecord):
    """A sample of a split's rows, as ``train_test_split`` of the ``datasets`` library draws it."""

    rows: PositiveInt
    """The number of rows; a split with no more of them is taken whole."""
    seed: Seed
    by: str
    """The column of classes that the sample has in the proportions of the split."""


class HubSource(StrictRecord):
    """A dataset on the Hub: rows by its splits and columns, or an archive of the local files."""

    repo: str
    revision: str
    splits: dict[str, str] = {}
    columns: dict[str, str] = {}
    classes: list[str] = []
    """The values of the label column in the order of the classes; empty without labels."""
    config: str = ""
    configs: list[str] = []
    """Configurations that are the subsets of the task, in their order; empty if it is of one."""
    scale: float = 1.0
    draw: DrawSection | None = None
    """The sample that the task is of; None for all rows."""
    archive: str = ""
    """A tar file in the repository with the local files; its top folder is ``archive_folder``."""
    archive_folder: str = ""

    def __post_init__(self) -> None:
        """Refuse both keys of configurations; msgspec makes the ValueError one of the card."""
        if self.config and self.configs:
            raise ValueError("give either 'config' or 'configs', not both")


class TaskCard(StrictRecord):
    """A task: a dataset, and how it is scored."""

    name: str
    evaluator: str
    languages: list[str]
    paper: str
    license: str
    splits: Annotated[dict[str, SplitSection], Meta(min_length=1)]
    gold_range: tuple[float, float] | None = None
    note: str = ""
    version: str = ""
    """The release of the data, if there are several."""
    superseded_by: str = ""
    """The task with a later release; scores of the two are never compared."""
    options: dict[str, Scalar | list[Scalar]] = {}
    score_split: str = "test"
    aliases: list[str] = []
    """Further names by which the task may be requested, such as those of SentEval."""
    local: FileSource | None = None
    hub: HubSource | None = None
    package: FileSource | None = None

    def __post_init__(self) -> None:
        """Check that a task's card names no split that it does not have, and a valid gold range.

        ``self.splits`` has the splits by name; ``self.score_split`` names the one to score. Sources
        of the data, each may be None, are ``self.local`` (a folder), ``self.package`` (installed)
        and ``self.hub`` (a dataset of the Hugging Face Hub). ``self.gold_range``: the lowest and
        highest gold score. A ValueError, as of check_choice, becomes an error with the file's name.
        """
        check_choice("score_split", self.score_split, self.splits)
        sources_with_files = filter(None, (self.local, self.package))
        for source in sources_with_files:
            for split in source.files:
                check_choice("a split with files", split, self.splits)
        hub_splits = self.hub.splits if self.hub else ()
        for split in hub_splits:
            check_choice("a split of the Hub's", split, self.splits)
        if self.gold_range and not self.gold_range[0] < self.gold_range[1]:
            raise ValueError(
                f"gold_range {list(self.gold_range)}: the first must be below the second"
            )


class Suite(StrictRecord):
    """A named set of tasks that are reported with an average."""

    name: str
    tasks: Annotated[list[str], Meta(min_length=1)]
    average: bool = True
    note: str = ""
    mteb: str = ""
    """The benchmark of MTEB whose STS tasks it holds, by MTEB's name; empty if there is none."""


class ModelFamily(StrictRecord):
    """How the documentation of a family of checkpoints on the Hub has them run."""

    ids: Annotated[list[str], Meta(min_length=1)]
    """Patterns of Hub ids, for example ``princeton-nlp/sup-simcse-*``; case does not count."""
    pooling: str
    source: str
    """The page that documents it; empty if no documentation is known."""
    normalise: bool = False
    prompt: str = ""
    """A text before every sentence."""


class EncoderCard(StrictRecord):
    """An encoder worth comparing with: what it is, and where its checkpoint is stored."""

    name: str
    kind: str
    method: str
    backbone: str
    supervision: Supervision
    overlap: Overlap
    paper: str
    license: str
    languages: list[str] = []
    """Codes of the languages it is made for, as in task cards; empty if they are not known."""
    note: str = ""
    reproducible: Literal["weights", "trainable", "objective", "quoted"] = "weights"
    """How the encoder of the published rows can be reproduced; see ``REPRODUCIBLE``."""
    hub: str = ""
    """Its id on the Hub, if it is not loaded from there."""
    parameters: Annotated[int, Meta(ge=1, le=10**13)] | None = None
    dimensions: PositiveInt | None = None
    """The size of an embedding."""
    dimensions_offered: list[PositiveInt] = []
    """The sizes that its authors offer, by truncation (Matryoshka) or by request."""
    year: Annotated[int, Meta(ge=1990, le=2100)] | None = None
    """The year of its release; None: that of the paper."""
    params: dict[str, Any] = {}
    published: list[str] = []
    """Keys of the published rows that measured it, ``paper/table/row``; the best match first."""

    def __post_init__(self) -> None:
        """Refuse a server's key, which others would read; msgspec makes it an error of the card."""
        if problem := find_key_problem(self.params):
            raise ValueError(problem)


class MakeSection(StrictRecord):
    """How a corpus that is not published as a file is made."""

    way: str
    """``first_rows`` or ``long_documents``."""
    of: str
    """The source: another corpus for ``first_rows``, a Hub dataset for ``long_documents``."""
    revision: str = "unpinned"
    rows: PositiveInt | None = None
    """The number of first rows to take."""
    column: str = "text"
    tokenizer: str = ""
    """A Hub id or folder; it counts ``tokens``, without the special tokens that it adds."""
    tokenizer_revision: str = "unpinned"
    tokens: PositiveInt | None = None
    """Only documents with more tokens than this are taken."""
    lowercase: bool = False


class CorpusCard(StrictRecord):
    """Training text under a logical name: a file in a folder or on the Hub, or text of tasks."""

    name: str
    license: str
    source: str
    columns: dict[str, str | NonNegativeInt]
    """By our column's name, its name in the file, or its position in a file without a header."""
    rows: PositiveInt
    file: str = ""
    """The file below a corpora folder."""
    sha256: str = ""
    repo: str = ""
    path: str = ""
    """The file in the Hub's repository; empty: it has the same name as ``file``."""
    revision: str = "unpinned"
    labels: dict[str, str] = {}
    """Our labels by those in the file."""
    split_sentences: bool = False
    """Whether each document is split into its sentences."""
    tasks: list[str] = []
    """The tasks whose text it is, including pairs without a gold score."""
    splits: list[str] = []
    """The splits of those tasks; empty: all."""
    make: MakeSection | None = None
    how: str = ""
    """How to get it if it is neither published nor made from ``make``, or a substitute."""
    note: str = ""


DECIDING_TABLES = ("method", "base", "data", "student", "training", "selection", "params")
"""The parts of a recipe that decide what is trained; the others describe it."""


class BaseSection(StrictRecord):
    """The start of training: a checkpoint, or its configuration only."""

    model: str = ""
    revision: str = "unpinned"
    recipe: str = ""
    """A recipe whose trained encoder of the same seed is the start, instead of ``model``."""
    sha256: dict[str, str] = {}
    from_scratch: bool = False
    layers: PositiveInt | None = None
    """The number of first layers to keep; default all."""
    fresh_language_head: bool = False
    """Whether a checkpoint without a masked language model head gets a new one, or is an error."""
    note: str = ""


class StudentSection(StrictRecord):
    """How embeddings are made in training and in tests."""

    pooling: str = "mean"
    test_pooling: str = ""
    max_length: PositiveInt | None = None
    dropout: Beta | None = None
    head: Literal["fresh", "checkpoint"] = "fresh"


class CorpusSection(StrictRecord):
    """The training text: a corpus by its logical name or file, and which rows of it."""

    corpus: str
    where: str = ""
    """A condition of rows, applied first: ``label = entailment``, ``score >= 4``."""
    form: str = ""
    """The form of rows made from labelled pairs, one of those in ``data/corpora/selection.py``."""
    rows: PositiveInt | None = None
    """The number of rows to draw, by the seed; default all."""
    upsample: bool = False
    """Repeat the drawn rows to about the number of all rows (ConSERT's figure 6)."""
    max_words: int | None = None
    """The maximum number of words of each text of a row, applied before ``rows`` are drawn."""
    sentences: bool = False
    """Use the distinct texts of all columns as sentences, instead of the rows."""


class TrainingSection(StrictRecord):
    """Optimiser, schedule and batches. Rates are per step; ``warmup`` is a share of the steps."""

    batch_size: PositiveInt
    learning_rate: PositiveFloat
    head_rate: PositiveFloat = 1.0
    """The rate of what the method adds for training only, as a multiple of ``learning_rate``."""
    epochs: Annotated[float, Meta(gt=0, le=1_000_000)] | None = None
    steps: PositiveInt | None = None
    schedule: str = "linear"
    """One of the schedules of ``training/loop/optimisers.py``."""
    schedule_steps: PositiveInt | None = None
    """The total steps for ``schedule`` and ``warmup``; default the steps that are taken."""
    warmup: Share = 0.0
    milestones: list[NonNegativeInt] = []
    """For ``piecewise``: the step at which each of ``rates`` begins."""
    rates: list[PositiveFloat] = []
    optimiser: str = "adamw"
    """One of the optimisers of ``training/loop/optimisers.py``."""
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    epsilon: NonNegativeFloat = 1e-8
    weight_decay: NonNegativeFloat = 0.0
    clip: NonNegativeFloat = 1.0
    accumulate: PositiveInt = 1
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    chunk: PositiveInt | None = None
    """The number of texts in the model at once, to save memory; the loss is of the whole batch."""
    checkpointing: bool = False
    """Store only each layer's input, and compute the layer again for its gradient."""
    compile: bool = False
    """Compile the model with ``torch.compile``."""
    drop_last: bool = False


class SelectionSection(StrictRecord):
    """The choice of the weights to keep, by validations on a development split every few steps."""

    every: PositiveInt = 125
    task: str = "stsb"
    split: str = "validation"
    measure: str = "cosine"
    """The similarity that Spearman is computed of, a measure of ``recipes/train_plan.py``.

    ``best_of_four`` is the best of cosine, dot product, Manhattan and Euclidean distance at each
    validation, as in sentence-transformers when SBERT and IS-BERT were trained.
    """
    validation_pooling: str = ""
    """The pooling for validation; default that of tests (ConSERT validates on the last layer)."""
    keep: Literal["best", "last"] = "best"
    at_start: bool = False
    at_epoch_end: bool = False
    at_end: bool = True
    """Validate after the last step too; always so with ``keep = "last"`` or no other validation."""
    restart_each_epoch: bool = False
    """Count ``every`` anew in each epoch (ConSERT)."""
    patience: NonNegativeInt = 0
    """Stop after this many validations without a better score; 0: never."""
    patience_counts: Literal["since_best", "declines"] = "since_best"
    """``declines`` counts each score below the previous one and never resets (SG-OPT's code)."""


class RecipeCard(StrictRecord):
    """A recipe of a trained encoder: method, start, text and hyperparameters, with sources."""

    name: str
    method: str
    paper: str
    preset: str
    """The configuration's source: paper, released code or our own, and how they differ."""
    supervision: Supervision
    backbone: str
    base: BaseSection
    data: CorpusSection
    training: TrainingSection
    student: StudentSection = StudentSection()
    selection: SelectionSection = SelectionSection()
    params: dict[str, Any] = {}
    seeds: list[Seed] = []
    """Those of the released command, or as many as the published means are over."""
    label: str = ""
    """The method's name in tables; default its id."""
    note: str = ""
    reproducible: Literal["trainable", "objective"] = "trainable"
    """Whether the published settings and data are available; see ``REPRODUCIBLE``."""
    published: list[str] = []
    """Keys of the published rows that it reproduces, ``paper/table/row``."""

    def __post_init__(self) -> None:
        """Check that no parameter of the recipe (``self.params``, by name) is a password or key.

        Parameters are stored with the trained encoder. A ValueError becomes an error with the
        file's name.
        """
        for name, value in self.params.items():
            # redact replaces secrets, so a value that it changes holds one.
            if redact(value, name) != value:
                raise ValueError(
                    f"'{name}' holds a secret, which would be written beside what is trained; "
                    "let your code read it from an environment variable"
                )


class ValueRange(StrictRecord, rename={"low": "from", "high": "to"}):
    """All numbers from ``low`` to ``high``, both included; whole numbers if both are whole."""

    low: float | int
    high: float | int
    step: PositiveFloat | None = None
    """The distance of the numbers to try, counted from ``low``; None: any number."""
    log: bool = False
    """Whether numbers are drawn evenly on a logarithmic scale."""

    def __post_init__(self) -> None:
        """Check that the limits, the step and the scale of a range of numbers fit together.

        A card writes ``self.low`` and ``self.high``, the limits, as ``from`` and ``to``.
        ``self.log`` is whether numbers are drawn evenly on a logarithmic scale. ``self.step`` is
        the distance of the numbers to try, or None.

        Raises:
            ValueError: Values contradict each other; the parser of cards adds the file's name.
        """
        if not self.low < self.high:
            raise ValueError(
                f"from {self.low:g} to {self.high:g}: the first must be below the second"
            )
        if self.log and self.low <= 0:
            raise ValueError(f"from {self.low:g}: what is drawn over the logarithm is above 0")
        if self.log and self.step is not None:
            raise ValueError("step and log: give one of them")

    def points(self) -> list[float | int]:
        """Return the numbers of a range with a step."""
        step = self.step or 1
        # The small number outweighs rounding if high is the last of the numbers.
        n_points = int((self.high - self.low) / step + 1e-9) + 1
        return [self.round_number(self.low + index * step) for index in range(n_points)]

    def round_number(self, value: float) -> float | int:
        """Round a number drawn from this range of numbers, so that it can be part of a name.

        ``self.low`` and ``self.high`` are the limits of the range, and ``self.step`` the distance
        of its numbers, or None. If all of these are whole, the result is the nearest whole number;
        otherwise it has four significant digits and lies within the limits.
        """
        has_whole_limits = isinstance(self.low, int) and isinstance(self.high, int)
        has_whole_step = self.step is None or self.step % 1 == 0
        if has_whole_limits and has_whole_step:
            return round(value)
        rounded = float(f"{value:.4g}")
        # Rounding may move a number a little outside the range.
        return min(max(rounded, self.low), self.high)


class DecideSection(StrictRecord):
    """The score by which settings are compared."""

    task: str = "stsb"
    split: str = "validation"
    protocol: str = ""
    """Default the task's first protocol."""
    metric: str = ""
    """A metric of a result, for example ``pearson.all``; default the protocol's own."""


class BudgetSection(StrictRecord):
    """Limits of a sweep."""

    settings: PositiveInt | None = None
    """The number of settings to draw; a grid is always tried completely."""
    hours: PositiveFloat | None = None
    """The time after which no training starts; the same command resumes."""


class HalvingSection(StrictRecord):
    """Asynchronous successive halving (arXiv 1810.05934): most trainings stop early.

    Trainings are compared by their validations.
    """

    first_step: PositiveInt
    """The first step at which trainings are compared: none stops earlier."""
    factor: Annotated[int, Meta(ge=2, le=100)] = 4
    """One of this many trainings continues, to this many times the steps."""


class SweepCard(StrictRecord):
    """A sweep: recipes, the values to try for each of their keys, and the score that decides."""

    name: str
    recipes: Annotated[list[str], Meta(min_length=1)]
    values: dict[str, Annotated[list[Any], Meta(min_length=1)] | ValueRange]
    """The values to choose from, or a range, by the dotted key of a recipe."""
    set: dict[str, Any] = {}
    """Values that replace those of all recipes, by dotted key."""
    base: str = ""
    text: str = ""
    seeds: Annotated[list[Seed], Meta(min_length=1)] = field(default_factory=lambda: [0])
    """The seeds of each setting."""
    search: str = "grid"
    """One of the searches of ``studies/search.py``."""
    search_seed: Seed = 0
    decide: DecideSection = DecideSection()
    budget: BudgetSection = BudgetSection()
    halving: HalvingSection | None = None

    def __post_init__(self) -> None:
        """Check that the card of a sweep, a search for the best settings, is consistent.

        ``self.values`` holds the values to try, and ``self.set`` values that are the same in all
        trainings, both by the dotted key of a recipe. Each setting is trained with each of
        ``self.seeds``. A ValueError becomes an error with the file's name.
        """
        if duplicate_keys := sorted(self.values.keys() & self.set.keys()):
            raise ValueError(
                f"'{duplicate_keys[0]}' is in [values] and in [set]; leave out one of them"
            )
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds {self.seeds}: one stands there twice")


STARTED_FROM = " started from "
"""Separates two hashes of a trained encoder: the recipe's, and that of its files and text."""


def task_digest(card: TaskCard) -> str:
    """Return the hash of how a task is scored."""
    return _sha256_of_json(
        {"evaluator": card.evaluator, "options": card.options, "score_split": card.score_split}
    )


def encoder_digest(
    kind: str, params: Mapping[str, Any], overlap: str, base_digest: str | None
) -> str:
    """Return the hash of an encoder's card; ``base_digest`` is that of its base's card, or None."""
    return _sha256_of_json(
        {"kind": kind, "params": params, "overlap": overlap, "base": base_digest}
    )


def recipe_digest(card: RecipeCard, *, other_base: Mapping[str, str] | None = None) -> str:
    """Return the sha256, in hexadecimal digits, of all in a recipe that decides what is trained.

    Its description, such as its name and its paper, is not included.

    Args:
        card: The recipe: the settings of a training.
        other_base: The sha256, by file name, of the model files that training started from in place
            of the base model that the recipe names; None if training starts from that base.
    """
    # The keys are method, base, data, student, training, selection and params.
    deciding_values = {key: strip_defaults(getattr(card, key)) for key in DECIDING_TABLES}
    if other_base is not None:
        deciding_values["start"] = other_base
    return _sha256_of_json(deciding_values)


def trained_digest(
    card: RecipeCard,
    *,
    other_base: Mapping[str, str] | None,
    files: Mapping[str, str],
    corpus: str,
    code: str = "",
) -> str:
    """Return the hashes of a trained encoder's recipe and inputs as ``A started from B``.

    ``A`` is the sha256 of the recipe. ``B`` is the sha256 of the model files that training started
    from, of the training text, and of the code of a user's own method. The seed is in neither, so
    encoders that differ only by their seed have the same value.

    Args:
        card: The recipe: the settings of the training.
        other_base: ``files`` if these are not the base model that the recipe names; else None.
        files: The sha256 of each model file that training started from, by file name.
        corpus: The sha256 of the training text.
        code: The sha256 of each file of the method's code; empty for a method of stsbench.
    """
    recipe_hash = recipe_digest(card, other_base=other_base)
    inputs_hash = _sha256_of_json([files, corpus, code] if code else [files, corpus])
    return f"{recipe_hash}{STARTED_FROM}{inputs_hash}"


def card_digest_part(digest: str | None) -> str | None:
    """Return the part for the card or recipe of a result's hash; None for None."""
    return digest.partition(STARTED_FROM)[0] if digest is not None else None


def strip_defaults(value: Any) -> Any:  # noqa: ANN401 - a card's table, or a value in it
    """Return a value of a card as plain dicts and lists, without notes and default values.

    The result is what a card is hashed by. Values that equal their default are omitted, so that a
    key that a later version adds to all cards, with a default, changes no hash.

    Args:
        value: A card, a table in it (both are ``msgspec.Struct``), a mapping, a list or a plain
            value. Plain values are returned unchanged.
    """
    if isinstance(value, Mapping):
        return {key: strip_defaults(nested_value) for key, nested_value in value.items()}
    if isinstance(value, list):
        return [strip_defaults(nested_value) for nested_value in value]
    if not isinstance(value, msgspec.Struct):
        return value
    table = {}
    for field_info in msgspec.structs.fields(value):
        field_value = getattr(value, field_info.name)
        if field_info.name != "note" and field_value != default_value(field_info):
            table[field_info.name] = strip_defaults(field_value)
    return table


def default_value(field: msgspec.structs.FieldInfo) -> Any:  # noqa: ANN401 - any default
    """Return the value of a card's key that is left out."""
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def _sha256_of_json(values: Any) -> str:  # noqa: ANN401 - any JSON value
    text = json.dumps(msgspec.to_builtins(values), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
