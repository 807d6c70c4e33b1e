"""TOML read strictly: every mistake is one line naming file, key and the nearest right name."""

from __future__ import annotations

import hashlib
import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Meta, field

from stsbench.core.errors import CardError, suggest
from stsbench.core.files import check_is_file
from stsbench.core.secrets import redact
from stsbench.core.settings import key_among
from stsbench.core.wording import describe_type_problem, join_lines

StructT = TypeVar("StructT", bound=msgspec.Struct)
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
    "trainable": "trained or fitted here by the published settings: scores agree up to the deviation of seeds",
    "objective": "the objective is here, the paper's data or settings are not to be had: scores differ",
    "quoted": "neither weights nor method are here: printed scores only",
}


class StrictRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A strict, frozen record."""


def parse_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file, in which a key that is given twice is an error."""
    check_is_file(path, CardError)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CardError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CardError(f"{path}: not valid UTF-8 (byte {error.start})") from error
    except (ValueError, RecursionError) as error:
        raise CardError(f"{path}: not valid TOML: {join_lines(error)}") from error


def convert(table: dict[str, Any], record: type[StructT], *, where: str) -> StructT:
    """Turn a parsed table into its record, naming the key of the first thing wrong."""
    if key := _endless(table):
        raise CardError(
            f"{where}: key '{key}': nan and inf are not allowed; give a number, or leave the key out"
        )
    try:
        return msgspec.convert(table, record)
    except msgspec.ValidationError as error:
        raise CardError(f"{where}: {_explain(str(error), record)}") from error


def _endless(value: Any, key: str = "") -> str:  # noqa: ANN401 - any TOML value
    """The first key whose value is no finite number; TOML has words for such, and no fact is one."""
    if isinstance(value, dict):
        found = (_endless(inner, f"{key}.{name}".lstrip(".")) for name, inner in value.items())
    elif isinstance(value, list):
        found = (_endless(inner, key) for inner in value)
    else:
        return key if isinstance(value, float) and not math.isfinite(value) else ""
    return next(filter(None, found), "")


def _explain(message: str, record: type[msgspec.Struct]) -> str:
    # TOML has no null: what may be None is left out.
    what, _, place = message.replace(" | null", "").partition(" - at `")
    place = place.removesuffix("`").removeprefix("$").removeprefix(".")
    inside = f" in [{place}]" if place else ""
    if unknown := re.match(r"Object contains unknown field `(.*)`", what):
        return (
            f"unknown key '{unknown[1]}'{inside}{suggest(unknown[1], sorted(set(_keys(record))))}"
        )
    if missing := re.match(r"Object missing required field `(.*)`", what):
        return f"key '{missing[1]}' is missing{inside}"
    key = f"key '{place}': " if place else ""
    if wrong := re.match(r"Invalid enum value (.*)", what):
        hint: Any = record
        for name in place.split("."):
            hint = get_type_hints(hint).get(name) if isinstance(hint, type) else None
        choices = list(map(str, get_args(hint)))
        near = suggest(wrong[1].strip("'"), choices)
        return f"{key}{wrong[1]} is not one of {', '.join(choices)}{near}"
    return f"{key}{describe_type_problem(what[0].lower() + what[1:])}"


def _keys(record: type[msgspec.Struct]) -> Iterator[str]:
    for key, hint in get_type_hints(record).items():
        yield key
        stack = [hint]
        while stack:
            inner = stack.pop()
            if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
                yield from _keys(inner)
            stack.extend(get_args(inner))


def check_among(what: str, name: str, known: Mapping[str, object]) -> None:
    """Raise ValueError, which msgspec makes an error of the card, where a name is not among these."""
    if name not in known:
        raise ValueError(f"{what} '{name}' is not one of {', '.join(known)}{suggest(name, known)}")


class FileSection(StrictRecord, frozen=True, kw_only=True):
    """One data file: where it is below its source, how many rows it has, and its sha256."""

    path: str
    rows: NonNegativeInt | None = None
    sha256: str = ""
    subset: str = ""
    label: str = ""


class SplitSection(StrictRecord, frozen=True, kw_only=True):
    """What must be found in a split: counts, characters of each column, mean gold score. What is left out is not checked."""

    n: PositiveInt | None = None
    ungraded: NonNegativeInt = 0
    """Pairs that the release holds without a gold score: never scored, training text of some methods."""
    characters: list[NonNegativeInt] = []
    mean: float | None = None
    subsets: dict[str, PositiveInt] = {}
    labels: dict[str, NonNegativeInt] = {}


class FileSource(StrictRecord, frozen=True, kw_only=True):
    """A source made of files: a folder below the data folder, or files shipped in the package."""

    files: dict[str, list[FileSection]]
    reader: str = "table"
    folder: str = ""
    """Below the data folder; or, if it begins with ``./`` or ``../``, seen from the card's own folder."""
    params: dict[str, Any] = {}


class HubSource(StrictRecord, frozen=True, kw_only=True):
    """A dataset on the Hub: rows by its own splits and columns, or an archive of the local files."""

    repo: str
    revision: str
    splits: dict[str, str] = {}
    columns: dict[str, str] = {}
    classes: list[str] = []
    """What the label column holds, of a task with labels, in the order of the classes."""
    config: str = ""
    scale: float = 1.0
    archive: str = ""
    """A tar file in the repository that holds the local files, ``archive_folder`` being its top."""
    archive_folder: str = ""


class TaskCard(StrictRecord, frozen=True, kw_only=True):
    """A task: a dataset with the way it is scored."""

    name: str
    evaluator: str
    languages: list[str]
    paper: str
    license: str
    splits: Annotated[dict[str, SplitSection], Meta(min_length=1)]
    gold_range: tuple[float, float] | None = None
    note: str = ""
    version: str = ""
    """Which release of the data this is, where there are several."""
    superseded_by: str = ""
    """The task that holds a later release; scores of the two are never compared."""
    options: dict[str, Scalar | list[Scalar]] = {}
    score_split: str = "test"
    local: FileSource | None = None
    hub: HubSource | None = None
    package: FileSource | None = None

    def __post_init__(self) -> None:
        """Refuse what contradicts itself; msgspec makes it an error of the card."""
        check_among("score_split", self.score_split, self.splits)
        for source in filter(None, (self.local, self.package)):
            for split in source.files:
                check_among("a split with files", split, self.splits)
        for split in self.hub.splits if self.hub else ():
            check_among("a split of the Hub's", split, self.splits)
        if self.gold_range and not self.gold_range[0] < self.gold_range[1]:
            raise ValueError(
                f"gold_range {list(self.gold_range)}: the first must be below the second"
            )


class Suite(StrictRecord, frozen=True, kw_only=True):
    """A named set of tasks reported with an average."""

    name: str
    tasks: Annotated[list[str], Meta(min_length=1)]
    average: bool = True
    note: str = ""


class EncoderCard(StrictRecord, frozen=True, kw_only=True):
    """An encoder worth comparing with: what it is and where its checkpoint lies."""

    name: str
    kind: str
    method: str
    backbone: str
    supervision: Supervision
    overlap: Overlap
    paper: str
    license: str
    note: str = ""
    reproducible: Literal["weights", "trainable", "objective", "quoted"] = "weights"
    """How the encoder of the published rows can be had, see ``REPRODUCIBLE``."""
    hub: str = ""
    """Its id on the Hub, where it is not loaded from there."""
    parameters: Annotated[int, Meta(ge=1, le=10**13)] | None = None
    dimensions: PositiveInt | None = None
    """The size of an embedding."""
    dimensions_offered: list[PositiveInt] = []
    """The sizes that its authors offer: an embedding may be cut to each (Matryoshka), or be asked for."""
    year: Annotated[int, Meta(ge=1990, le=2100)] | None = None
    """Of its release; left out, that of the paper."""
    params: dict[str, Any] = {}
    published: list[str] = []
    """Keys of the published rows that measured it, ``paper/table/row``; the most fitting first."""

    def __post_init__(self) -> None:
        """Refuse a server's key, which others would read; msgspec makes it an error of the card."""
        if problem := key_among(self.params):
            raise ValueError(problem)


class MakeSection(StrictRecord, frozen=True, kw_only=True):
    """How ``stsbench data make`` makes a corpus that is not published as a file."""

    way: str
    """``first_rows`` or ``long_documents``."""
    of: str
    """For ``first_rows`` another corpus; for ``long_documents`` a dataset on the Hub."""
    revision: str = "unpinned"
    rows: PositiveInt | None = None
    """How many of the first rows."""
    column: str = "text"
    tokenizer: str = ""
    """A Hub id or folder; ``tokens`` are counted by it, without those that it adds."""
    tokenizer_revision: str = "unpinned"
    tokens: PositiveInt | None = None
    """Documents with more tokens than this are kept."""
    lowercase: bool = False


class CorpusCard(StrictRecord, frozen=True, kw_only=True):
    """Training text known by a logical name: a file in a corpora folder or on the Hub, or the text of tasks."""

    name: str
    license: str
    source: str
    columns: dict[str, str | NonNegativeInt]
    """Our columns, and what each is called in the file, or its position in a file without a header."""
    rows: PositiveInt
    file: str = ""
    """The file below a corpora folder."""
    sha256: str = ""
    repo: str = ""
    path: str = ""
    """The file in the Hub's repository; ``""``: it is called as ours."""
    revision: str = "unpinned"
    labels: dict[str, str] = {}
    """What the file's labels stand for."""
    split_sentences: bool = False
    """Whether each document is cut into its sentences."""
    tasks: list[str] = []
    """The tasks whose own text it is, pairs without a gold score among them."""
    splits: list[str] = []
    """The splits of those tasks; none given: all."""
    make: MakeSection | None = None
    how: str = ""
    """Where it comes from if it is neither published nor made by ``stsbench data make``, and what does instead."""
    note: str = ""


DECIDING = ("method", "base", "data", "student", "training", "selection", "params")
"""The parts of a recipe that decide what is trained; the others describe it."""


class BaseSection(StrictRecord, frozen=True, kw_only=True):
    """What training starts from: a checkpoint, or its configuration alone."""

    model: str = ""
    revision: str = "unpinned"
    recipe: str = ""
    """A recipe whose trained encoder of the same seed is the start, instead of ``model``."""
    sha256: dict[str, str] = {}
    from_scratch: bool = False
    layers: PositiveInt | None = None
    """Keep the first so many layers; default all."""
    fresh_language_head: bool = False
    """A checkpoint without a masked language model head is given a fresh one; else that is an error."""
    note: str = ""


class StudentSection(StrictRecord, frozen=True, kw_only=True):
    """How embeddings are made in training and in tests."""

    pooling: str = "mean"
    test_pooling: str = ""
    max_length: PositiveInt | None = None
    dropout: Beta | None = None
    head: Literal["fresh", "checkpoint"] = "fresh"


class CorpusSection(StrictRecord, frozen=True, kw_only=True):
    """What is learned from: a corpus by its logical name or file, and how much of it."""

    corpus: str
    where: str = ""
    """Take the rows of which this holds, before all else: ``label = entailment``, ``score >= 4``."""
    form: str = ""
    """Make labelled pairs rows of this form, one of those in ``data/corpora/load.py``: ``pairs``, ``triplets``, …"""
    rows: PositiveInt | None = None
    """Take this many rows, drawn by the seed; default all."""
    upsample: bool = False
    """Repeat the rows that are drawn until they are about as many as they were drawn from (ConSERT's figure 6)."""
    max_words: int | None = None
    """Leave out rows that have a text of more words than this, before ``rows`` are drawn."""
    sentences: bool = False
    """Take the distinct texts of all columns as sentences, instead of the rows."""


class TrainingSection(StrictRecord, frozen=True, kw_only=True):
    """Optimiser, schedule and batches. Rates are a step's; ``warmup`` is a share of the schedule's steps."""

    batch_size: PositiveInt
    learning_rate: PositiveFloat
    head_rate: PositiveFloat = 1.0
    """The rate of what the method adds to the student, and drops after training, as a multiple of ``learning_rate``."""
    epochs: Annotated[float, Meta(gt=0, le=1_000_000)] | None = None
    steps: PositiveInt | None = None
    schedule: str = "linear"
    """One of the schedules of ``training/loop/optimisers.py``."""
    schedule_steps: PositiveInt | None = None
    """The steps that ``schedule`` and ``warmup`` reckon with; default those that are taken."""
    warmup: Share = 0.0
    milestones: list[NonNegativeInt] = []
    """For ``piecewise``: the steps from which each of ``rates`` holds."""
    rates: list[PositiveFloat] = []
    optimiser: str = "adamw"
    """One of the optimisers there."""
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    epsilon: NonNegativeFloat = 1e-8
    weight_decay: NonNegativeFloat = 0.0
    clip: NonNegativeFloat = 1.0
    accumulate: PositiveInt = 1
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    chunk: PositiveInt | None = None
    """So many texts go through the model at a time: the loss and gradient of the whole batch in the memory of these."""
    checkpointing: bool = False
    """Keep of each layer its input alone, and compute it again for its gradient."""
    compile: bool = False
    """Compile the model with ``torch.compile``."""
    drop_last: bool = False


class SelectionSection(StrictRecord, frozen=True, kw_only=True):
    """Which weights are kept: validated every so many steps on a development split."""

    every: PositiveInt = 125
    task: str = "stsb"
    split: str = "validation"
    measure: str = "cosine"
    """What Spearman is of, one of the measures of ``recipes/plan.py``: ``best_of_four``, the best of cosine, dot product, Manhattan and Euclidean
    distance at each validation, is what sentence-transformers did while SBERT and IS-BERT were trained."""
    validation_pooling: str = ""
    """How embeddings are made for validation; default as in tests (ConSERT selects on the last layer, and tests on two)."""
    keep: Literal["best", "last"] = "best"
    at_start: bool = False
    at_epoch_end: bool = False
    at_end: bool = True
    """Validate after the last step too. What has no other validation has this one, and so has ``keep = "last"``."""
    restart_each_epoch: bool = False
    """Count ``every`` anew in each epoch (ConSERT)."""
    patience: NonNegativeInt = 0
    """Stop after this many validations without a gain; 0 never."""
    patience_counts: Literal["since_best", "declines"] = "since_best"
    """``declines``: every score below the one before counts, and none is forgiven (SG-OPT's code)."""


class RecipeCard(StrictRecord, frozen=True, kw_only=True):
    """A trained encoder: method, start, text and hyperparameters, with the source of each."""

    name: str
    method: str
    paper: str
    preset: str
    """Whose configuration it is: the paper's, the released code's, or our own, and where they differ."""
    supervision: Supervision
    backbone: str
    base: BaseSection
    data: CorpusSection
    training: TrainingSection
    student: StudentSection = StudentSection()
    selection: SelectionSection = SelectionSection()
    params: dict[str, Any] = {}
    seeds: list[Seed] = []
    """Those of the released command, or as many as the printed means are over."""
    label: str = ""
    """The method's name in tables; default its id."""
    note: str = ""
    reproducible: Literal["trainable", "objective"] = "trainable"
    """Whether the published settings and data can be had, see ``REPRODUCIBLE``."""
    published: list[str] = []
    """Keys of the published rows that it is to give, ``paper/table/row``."""

    def __post_init__(self) -> None:
        """Refuse a secret, which others would read beside what is trained; msgspec makes it an error of the card."""
        for name, value in self.params.items():
            if redact(value, name) != value:
                what = "holds a secret, which would be written beside what is trained"
                raise ValueError(
                    f"'{name}' {what}; let your code read it from an environment variable"
                )


class ValueRange(StrictRecord, frozen=True, kw_only=True, rename={"low": "from", "high": "to"}):
    """Numbers between two, both among them; whole numbers where both are."""

    low: float | int
    high: float | int
    step: PositiveFloat | None = None
    """Only so many steps from the first."""
    log: bool = False
    """Drawn evenly over the logarithm."""

    def __post_init__(self) -> None:
        """Refuse what contradicts itself; msgspec makes it an error of the card."""
        if not self.low < self.high:
            raise ValueError(
                f"from {self.low:g} to {self.high:g}: the first must be below the second"
            )
        if self.log and self.low <= 0:
            raise ValueError(f"from {self.low:g}: what is drawn over the logarithm is above 0")
        if self.log and self.step is not None:
            raise ValueError("step and log: give one of them")

    def points(self) -> list[float | int]:
        """The numbers of a range in steps."""
        step = self.step or 1
        count = int((self.high - self.low) / step + 1e-9) + 1
        return [self.number(self.low + place * step) for place in range(count)]

    def number(self, value: float) -> float | int:
        """A number of the range as names print it: whole, or of four digits."""
        if (
            isinstance(self.low, int)
            and isinstance(self.high, int)
            and (self.step is None or self.step % 1 == 0)
        ):
            return round(value)
        # What is drawn is cut at four digits, and so may lie a little outside.
        return min(max(float(f"{value:.4g}"), self.low), self.high)


class DecideSection(StrictRecord, frozen=True, kw_only=True):
    """By what score the settings are compared."""

    task: str = "stsb"
    split: str = "validation"
    protocol: str = ""
    """Default the task's first."""
    metric: str = ""
    """One of the scores of a result, as ``pearson.all``; default the protocol's own."""


class BudgetSection(StrictRecord, frozen=True, kw_only=True):
    """How much may be tried."""

    settings: PositiveInt | None = None
    """So many, where they are drawn; a grid is tried whole."""
    hours: PositiveFloat | None = None
    """Nothing is begun after; the same command resumes."""


class HalvingSection(StrictRecord, frozen=True, kw_only=True):
    """Asynchronous successive halving (arXiv 1810.05934) on the validations of the training: most are stopped early."""

    first_step: PositiveInt
    """No training is stopped before."""
    factor: Annotated[int, Meta(ge=2, le=100)] = 4
    """One of so many continues to so many times the steps."""


class SweepCard(StrictRecord, frozen=True, kw_only=True):
    """Recipes, the values that are tried of each of their keys, and what decides."""

    name: str
    recipes: Annotated[list[str], Meta(min_length=1)]
    values: dict[str, Annotated[list[Any], Meta(min_length=1)] | ValueRange]
    """By key, as ``--set`` names it: those to choose from, or a range."""
    set: dict[str, Any] = {}
    """What is replaced in all."""
    base: str = ""
    text: str = ""
    seeds: Annotated[list[Seed], Meta(min_length=1)] = field(default_factory=lambda: [0])
    """Those that every setting is trained for."""
    search: str = "grid"
    """One of the searches of ``studies/sweep.py``."""
    search_seed: Seed = 0
    decide: DecideSection = DecideSection()
    budget: BudgetSection = BudgetSection()
    halving: HalvingSection | None = None

    def __post_init__(self) -> None:
        """Refuse what contradicts itself; msgspec makes it an error of the card."""
        if both := sorted(self.values.keys() & self.set.keys()):
            raise ValueError(f"'{both[0]}' is in [values] and in [set]; leave out one of them")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds {self.seeds}: one stands there twice")


def toml(value: object) -> str:
    """A value as TOML writes it in one line; a table is written inline."""
    if isinstance(value, Mapping):
        return (
            f"{{{', '.join(f'{toml_key(str(key))} = {toml(one)}' for key, one in value.items())}}}"
        )
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    # A text in JSON is one in TOML, but for one sign.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def card_lines(facts: Mapping[str, object], notes: Mapping[str, str]) -> list[str]:
    """The lines of a table of facts, each with the note of its key above it as a comment."""
    lines: list[str] = []
    for key, value in facts.items():
        lines += [f"# {notes[key]}"] if key in notes else []
        lines.append(f"{toml_key(key)} = {toml(value)}")
    return lines


def toml_tables(table: Mapping[str, object], notes: Mapping[str, str] = {}) -> str:
    """A record as a file: plain keys first, then a table each; what is None, which TOML has no word for, or empty is left out.

    A table of tables has each of them below a heading of its own. ``notes`` stand above keys, as :func:`card_lines` has them.
    """
    kept = {key: value for key, value in table.items() if value not in (None, "", [], {})}
    tables = {key: value for key, value in kept.items() if isinstance(value, Mapping)}
    lines = card_lines({key: value for key, value in kept.items() if key not in tables}, notes)
    for key, value in tables.items():
        nested = all(isinstance(one, Mapping) for one in value.values())
        parts = (
            {f"{toml_key(key)}.{toml_key(name)}": one for name, one in value.items()}
            if nested
            else {key: value}
        )
        for heading, part in parts.items():
            inner = {name: one for name, one in part.items() if one is not None}
            lines += ["", f"[{heading}]", *card_lines(inner, notes)]
    return "\n".join(lines) + "\n"


def toml_key(key: str) -> str:
    """A key as TOML writes it."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else toml(key)


STARTED_FROM = " started from "
"""In the hash of a trained encoder: before it the recipe's, behind it that of the very files and text it was trained on."""


def task_digest(card: TaskCard) -> str:
    """The hash of how a task is scored."""
    return _digest(
        {"evaluator": card.evaluator, "options": card.options, "score_split": card.score_split}
    )


def encoder_digest(kind: str, params: Mapping[str, Any], overlap: str, base: str | None) -> str:
    """The hash of an encoder's card; ``base`` is that of its base's card, None where it has none."""
    return _digest({"kind": kind, "params": params, "overlap": overlap, "base": base})


def recipe_digest(card: RecipeCard, *, start: Any = None) -> str:  # noqa: ANN401 - any JSON value
    """The hash of a recipe; ``start`` is what it was begun from where that is not what the card names."""
    facts = {key: strip_defaults(getattr(card, key)) for key in DECIDING}
    return _digest(facts if start is None else {**facts, "start": start})


def trained_digest(card: RecipeCard, *, start: Any, files: Mapping[str, str], corpus: str) -> str:  # noqa: ANN401
    """The hash of what is trained by a recipe: seeds share it where base files and text are the same."""
    return f"{recipe_digest(card, start=start)}{STARTED_FROM}{_digest([files, corpus])}"


def card_digest_part(digest: str | None) -> str | None:
    """The card's or recipe's part of the hash that a result carries."""
    return digest.partition(STARTED_FROM)[0] if digest is not None else None


def strip_defaults(value: Any) -> Any:  # noqa: ANN401 - a card's table, or a value in it
    """A table without notes and without what is as usual: a key that cards come to have later changes no hash."""
    if isinstance(value, Mapping):
        return {key: strip_defaults(one) for key, one in value.items()}
    if not isinstance(value, msgspec.Struct):
        return list(map(strip_defaults, value)) if isinstance(value, list) else value
    facts = (
        (key, getattr(value, key.name))
        for key in msgspec.structs.fields(value)
        if key.name != "note"
    )
    return {key.name: strip_defaults(one) for key, one in facts if one != default_value(key)}


def default_value(field: msgspec.structs.FieldInfo) -> Any:  # noqa: ANN401 - any default
    """What a card's key is where the card leaves it out."""
    return (
        field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default
    )


def _digest(facts: Any) -> str:  # noqa: ANN401 - any JSON value
    text = json.dumps(msgspec.to_builtins(facts), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
