"""``stsbench show``: what is known of a name, whatever it is the name of."""

from __future__ import annotations

import inspect
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from stsbench.cli import options as opt
from stsbench.cli.option_values import TypedOptions, resolve_spec
from stsbench.cli.printing import print_facts, print_json, print_text, write_or_print
from stsbench.core import settings
from stsbench.core.cards import REPRODUCIBLE, EncoderCard, RecipeCard, SelectionSection
from stsbench.core.errors import DataError, StsbenchError, UnknownName, look_up, suggest
from stsbench.core.names import redact_name, split_all_params, split_names
from stsbench.core.secrets import redact
from stsbench.encoders.runs import (
    RUN_FILE,
    TrainedRun,
    UnfinishedRun,
    list_trained_variants,
    read_trained_runs,
    read_unfinished_runs,
)
from stsbench.plots.draw import Curve, CurvePoint, draw_curves
from stsbench.plots.labels import figure_width
from stsbench.training.methods.registry import METHODS, METHODS_BY_TRAINER

if TYPE_CHECKING:
    from stsbench.core.catalogue import Catalogue

CardFields = dict[str, Any]
"""What is printed about a name, by the words that are printed before each value."""


def show_command(
    context: opt.Context,
    name: opt.AnyName,
    *,
    curve: opt.CurvePlot = None,
    width: opt.FigureWidth = None,
    _config: opt.DefaultsFile = None,
    cards: opt.CardFolders,
    as_json: opt.AsJson = False,
) -> None:
    """Describe a task, an encoder, a recipe or another name.

    "stsbench show schema" prints the JSON Schema of a result file.

    Example: stsbench show sup-simcse-bert-base
    """
    # All cards: TOML files that describe tasks, encoders and recipes, the user's among them.
    catalogue = opt.make_catalogue(cards)
    typed = TypedOptions.from_context(context)
    typed.forbid_beside("--curve", "--json")
    typed.forbid_without("--curve", "--width")
    if curve is not None:
        with figure_width(width):
            _draw_curves(name, curve)
        return
    path = Path(name)
    if path.suffix == ".toml" and path.parent.name in ("tasks", "baselines", "trainers"):
        # The file of a card, in a folder of cards.
        catalogue, name = opt.make_catalogue([*cards, path.parents[1]]), path.stem
    card_id = name
    # Each card of this name: its kind ("task", "encoder", ...) and its fields.
    matches = _find_cards(card_id, catalogue)
    if name == "schema" and not matches:
        from stsbench.results.record import result_schema

        print_json(result_schema())
        return
    if not matches:
        # The name may be a title, for which all cards are read.
        card_id = _resolve_name(name, catalogue)
        matches = _find_cards(card_id, catalogue) if card_id != name else []
    if not matches:
        raise _unknown_name(name, catalogue)
    if as_json:
        (kind, fields), *further_matches = matches
        report = {"card": kind, "id": card_id, **fields}
        if further_matches:
            report["also"] = [further_kind for further_kind, _ in further_matches]
        print_json(report)
        return
    for index, (kind, fields) in enumerate(matches):
        print_text(f"{card_id}: {kind}\n" if index == 0 else f"\n{card_id}: {kind}\n")
        rows = [(key, _format_value(value)) for key, value in _flatten(fields)]
        print_facts([[key, text] for key, text in rows if text])


def _resolve_name(name: str, catalogue: Catalogue) -> str:
    """Return the id of the card that a title, or a task's name in the benchmark MTEB, stands for.

    The label of an encoder's row in a paper's table counts as a title. Any other name is returned
    as it is. All cards are read for their titles, so the caller tries the name as an id first.

    Args:
        name: The name as the user wrote it.
        catalogue: The cards of tasks and encoders.

    Raises:
        StsbenchError: The name stands for several tasks.
    """
    from stsbench.data.task_names import find_task_or_suite_ids

    ids = find_task_or_suite_ids(name, catalogue)
    if len(ids) > 1:
        raise StsbenchError(f"'{name}' is {len(ids)} tasks; choose one: {', '.join(ids)}")
    return ids[0] if ids else resolve_spec(name, catalogue)


def _find_cards(name: str, catalogue: Catalogue) -> list[tuple[str, CardFields]]:
    """Return the kind and the fields of each card, run, table or protocol with a name.

    Several kinds may have the same name. A recipe or run is left out beside an encoder of its name,
    and a run beside a recipe.

    Args:
        name: The name.
        catalogue: The cards.

    Returns:
        Pairs of a kind, such as "task" or "encoder", and what is printed about it by name of field.
    """
    # Tables and protocols are slow to read, and need not be read for the name of a card: of a task,
    # an encoder ("baselines") or a recipe ("trainers").
    is_card = any(name in catalogue.paths(kind) for kind in ("tasks", "baselines", "trainers"))
    fields_by_kind: dict[str, CardFields] = {}
    # A reader returns the fields, or None if its kind has no such name.
    for kind, read_fields in CARD_READERS.items():
        if is_card and kind in ("table", "protocol"):
            continue
        fields = read_fields(name, catalogue)
        if fields is not None:
            fields_by_kind[kind] = fields
    # An encoder's fields include those of its recipe and runs, a recipe's those of its runs.
    included_by_kind = {"encoder": ("recipe", "run"), "recipe": ("run",)}
    for kind in list(fields_by_kind):
        for included_kind in included_by_kind.get(kind, ()):
            fields_by_kind.pop(included_kind, None)
    return list(fields_by_kind.items())


def _unknown_name(name: str, catalogue: Catalogue) -> UnknownName:
    """Return the error to raise for a name that no card, suite, corpus, table or protocol has.

    Its message suggests the nearest of all names.
    """
    from stsbench.data.task_names import known_names

    # The ids of encoders and of recipes; known_names are the names of tasks and suites.
    cards = [card for kind in ("baselines", "trainers") for card in catalogue.paths(kind)]
    names = [
        *known_names(catalogue),
        *cards,
        *catalogue.corpora(),
        *opt.list_names("tables"),
        *_protocols(),
    ]
    hint = (
        "'stsbench list' shows them: tasks, encoders, recipes, suites, corpora, tables, protocols; "
        "cards of your own need --cards DIR"
    )
    return UnknownName("name", name, names, hint=hint)


def _encoder_fields(name: str, catalogue: Catalogue) -> CardFields | None:
    """Return what is shown of an encoder, and of the recipe and runs that it may have.

    Args:
        name: The id of the encoder's card, which may have parameters behind it that replace those
            of the card, as in ``minilm+pooling=max``.
        catalogue: The cards.

    Returns:
        Values by the text that is printed before each; None if no card of an encoder has the name.
    """
    # The cards of encoders and of recipes that train encoders, by id.
    baselines, trainers = catalogue.paths("baselines"), catalogue.paths("trainers")
    # The id of a card may look as if it had parameters.
    stem, params = (name, {}) if name in baselines else split_all_params(name)
    if stem not in baselines:
        return None
    if params and stem in trainers:
        # What follows the name of a recipe are values of the recipe, not of the encoder.
        return None
    card = catalogue.encoder(stem)
    if params or catalogue.is_own("baselines", stem):
        # An unknown parameter is an error. Imports torch; the project's own cards are right.
        _check_keys({**card.params, **params}, card.kind)
    if params:
        # No published score is of the encoder with other parameters. Secrets in parameters are not
        # printed.
        card = msgspec.structs.replace(
            card,
            params={**card.params, **params},
            published=[],
            name=redact_name(f"{card.name}{name.removeprefix(stem)}"),
        )
    fields: CardFields = {
        **msgspec.to_builtins(card),
        "params": redact(card.params),
        "to run it": describe_requirements(card, catalogue),
        "how exact": describe_exactness(card),
    }
    if name in trainers:
        recipe = catalogue.recipe(name)
        fields |= {
            "to train it": describe_training(name, recipe, catalogue),
            "recipe": recipe_values(name, recipe),
            **_run_fields(name),
        }
    return fields


def _check_keys(params: Mapping[str, Any], kind: str) -> None:
    """Raise UnknownName if a parameter of an encoder is unknown.

    Args:
        params: The parameters of its card, and those behind its name.
        kind: The kind of encoder. A user's own, whose code is not to be run here, is not checked.
    """
    from stsbench.encoders.fitted import VARIANT_KEYS
    from stsbench.encoders.kinds import ENCODERS, KINDS

    if kind in KINDS:
        signature = inspect.signature(ENCODERS.load(kind))
        known_keys = dict.fromkeys([*signature.parameters, *VARIANT_KEYS])
        for key in params:
            look_up("key of [params]", key, known_keys)


def _recipe_fields(name: str, catalogue: Catalogue) -> CardFields | None:
    """Return what is shown of a recipe for training, and of its runs.

    Args:
        name: The id of the recipe. If it was trained with replaced values, these follow behind a
            plus, as in ``simcse+temperature=0.1``.
        catalogue: The cards.

    Returns:
        By the text that is printed before each: the recipe's values, its runs, the command that
        trains it, how near it comes to published scores; None if there is no recipe of the name.
    """
    stem = name.partition("+")[0]
    if stem not in catalogue.paths("trainers"):
        return None
    from stsbench.recipes.train_plan import read_recipe

    # With the values behind the plus in place of the card's own.
    recipe = read_recipe(name, catalogue).card
    # The finished runs of this very name, by seed; they hold the values that were used.
    runs = read_trained_runs(name)
    if runs and "+" in name:
        values = dict(msgspec.to_builtins(runs[0].card))
    else:
        values = recipe_values(name, recipe)
    return {
        **values,
        **_run_fields(name),
        "to run it": describe_training(name, recipe, catalogue),
        "how exact": describe_exactness(recipe),
    }


def recipe_values(name: str, recipe: RecipeCard) -> CardFields:
    """Return the values of a recipe, as nested dicts of texts, numbers and lists.

    For a method that trains in several rounds they include the method's own defaults, which the
    card need not list.

    Args:
        name: The name of the recipe.
        recipe: The recipe's card.
    """
    if recipe.method in METHODS_BY_TRAINER["rounds"]:
        # Imports torch, for which other cards need not wait.
        from stsbench.recipes.trainers import effective_values

        return effective_values(name, recipe, METHODS.load(recipe.method))
    values: CardFields = msgspec.to_builtins(recipe)
    return values


def _own_run_fields(name: str, catalogue: Catalogue) -> CardFields | None:
    """Return the fields of runs by their own name or folder; None if there are no such runs."""
    runs = _find_trained_runs(name)
    if not runs and not _find_unfinished_runs(name):
        return None
    values = dict(msgspec.to_builtins(runs[0].card)) if runs else {}
    return values | _run_fields(name)


def _find_trained_runs(name: str) -> Sequence[TrainedRun]:
    # Unlike Path.is_file, os.path.isfile raises nothing for a name too long to be a path.
    if os.path.isfile(Path(name, RUN_FILE)):  # noqa: PTH113
        return [TrainedRun.read(Path(name))]
    return read_trained_runs(name)


def _find_unfinished_runs(name: str) -> Sequence[UnfinishedRun]:
    run = UnfinishedRun.read(Path(name)) if os.path.isdir(name) else None  # noqa: PTH112
    return [run] if run else read_unfinished_runs(name)


def _run_fields(name: str) -> CardFields:
    """Return what is shown of training runs.

    Args:
        name: The name of a recipe or of runs, or the folder of one run.

    Returns:
        ``trained`` holds the fields of each finished run. ``not finished``, if there are any, holds
        the folder of each unfinished run and the command that resumes it.
    """
    fields: CardFields = {"trained": [_trained_fields(run) for run in _find_trained_runs(name)]}
    unfinished = [
        {"folder": str(run.folder), "to finish it": run.command}
        for run in _find_unfinished_runs(name)
    ]
    if unfinished:
        fields["not finished"] = unfinished
    return fields


def _trained_fields(run: TrainedRun) -> CardFields:
    """Return what is shown of a finished training run.

    Args:
        run: The run. ``overlap`` says for each test what the training text holds of it: "text" for
            its sentences, "gold" for their gold scores too. ``chosen`` is the validation whose
            weights were kept.

    Returns:
        ``folder``; ``score``, the development score times 100 of the kept weights, None if no
        development score has selected them; and the tests that the text holds, under ``text of``
        and ``gold of``.
    """
    tasks_by_label: dict[str, list[str]] = {}
    for task, overlap in run.overlap.items():
        if overlap in ("text", "gold"):
            tasks_by_label.setdefault(f"{overlap} of", []).append(task)
    return {
        "folder": str(run.folder),
        "score": f"{100 * run.chosen.score:.2f}" if run.chosen else None,
        **tasks_by_label,
    }


def _table_fields(name: str, catalogue: Catalogue) -> CardFields | None:
    """Return what is shown of a table of scores; None if there is no such table.

    Args:
        name: The name of a paper's table or of one of stsbench's own, or a TOML file.
        catalogue: Not used: tables are not in it. All functions of kinds have this parameter.
    """
    from stsbench.boards.published.rows import list_tables, read_table_card

    is_file = name.endswith(".toml") and Path(name).is_file()
    if name not in list_tables() and not is_file:
        return None
    card = read_table_card(name)
    # A column is the name of a task, or a record that names a task or the table whose average it
    # is. A row is its label, or a record with the label as ``row``.
    columns = [
        column if isinstance(column, str) else column.task or column.average_of
        for column in card.columns
    ]
    all_rows = [row for group in card.groups for row in group.rows]
    row_labels = [row if isinstance(row, str) else row.row for row in all_rows]
    return {
        "title": card.title,
        "paper": card.paper,
        "number": card.table,
        "protocol": card.protocol,
        "suite": card.suite,
        "columns": columns,
        "rows": row_labels,
        "note": card.note,
        "to print it": f"stsbench leaderboard --table {shlex.quote(name)}",
    }


def _protocols() -> Mapping[str, CardFields]:
    from stsbench.evaluators.registry import all_protocols

    return all_protocols()


def _task_fields(name: str, catalogue: Catalogue) -> CardFields | None:
    """Return what is shown of a task: the fields of its card, and its name in the benchmark MTEB.

    None if there is no task of the name.
    """
    from stsbench.data.mteb.facts import DEFAULT_SUBSET, find_matched_task

    if name not in catalogue.paths("tasks"):
        return None
    fields: CardFields = msgspec.to_builtins(catalogue.task(name))
    if matched_task := find_matched_task(name, catalogue):
        # A task without subsets in MTEB has the subset "default", which is not printed.
        subset = matched_task.mteb_subset.replace(DEFAULT_SUBSET, "")
        fields["in MTEB"] = f"{matched_task.mteb_task} {subset}".strip()
    return fields


CARD_READERS: Mapping[str, Callable[[str, Catalogue], CardFields | None]] = {
    "task": _task_fields,
    "suite": lambda name, catalogue: msgspec.to_builtins(catalogue.suites().get(name)),
    "encoder": _encoder_fields,
    "recipe": _recipe_fields,
    "corpus": lambda name, catalogue: msgspec.to_builtins(catalogue.corpora().get(name)),
    "table": _table_fields,
    "run": _own_run_fields,
    "protocol": lambda name, catalogue: _protocols().get(name),
}
"""The kinds that a name may have, in the order in which they are printed.

Each function returns the fields, or None if its kind has no such name.
"""


class _TrainingCurve(NamedTuple):
    """The curve of one run, finished or not."""

    recipe: str
    seed: int
    points: Sequence[Any]
    selection: SelectionSection
    kept_step: float | None
    """The step whose weights were kept; None while the run is unfinished."""


def _draw_curves(names: str, path: Path) -> None:
    """Draw the training curves of runs into a file: development score and loss by step.

    Args:
        names: A comma list of the names or folders of runs.
        path: The file to write, whose ending decides the format.

    Raises:
        DataError: There are no runs of a name, or they were validated on different splits.
    """
    training_curves = [
        curve for name in split_names(names) or [names] for curve in _read_curves(name)
    ]
    splits = [f"{curve.selection.task} {curve.selection.split}" for curve in training_curves]
    score_labels = list(dict.fromkeys(splits))
    if len(score_labels) > 1:
        raise DataError(
            f"these runs were validated on {' and '.join(score_labels)}, "
            "which one axis cannot show; draw them apart"
        )
    has_several_recipes = len({curve.recipe for curve in training_curves}) > 1
    drawn_curves = []
    for curve in training_curves:
        label = f"seed {curve.seed}"
        if has_several_recipes:
            label = f"{curve.recipe} {label}"
        points = [
            CurvePoint(
                step=point.step or 0,
                score=None if point.score is None else 100 * point.score,
                loss=point.loss,
            )
            for point in curve.points
        ]
        drawn_curves.append(Curve(name=label, points=points, kept_step=curve.kept_step))
    write_or_print(draw_curves(drawn_curves, score_label=score_labels[0]), path)


def _read_curves(name: str) -> list[_TrainingCurve]:
    """Return the training curves of all runs with a name, finished or not.

    Args:
        name: The name of a recipe or of runs, or the folder of one run.

    Raises:
        DataError: There are no such runs; the message suggests the nearest names.
    """
    trained, unfinished = _find_trained_runs(name), _find_unfinished_runs(name)
    if not trained and not unfinished:
        # The names of the recipe's finished runs with replaced values; a seed stands behind @.
        variants = list_trained_variants(re.split("[+@]", name, maxsplit=1)[0])
        hint = suggest(name, variants)
        if not hint and variants:
            hint = f"; there is {', '.join(variants)}"
        raise DataError(f"there are no runs of '{name}'{hint}; 'stsbench train' makes them")
    curves = [
        _TrainingCurve(
            run.recipe,
            run.seed,
            points=run.curve,
            selection=run.card.selection,
            kept_step=run.chosen.step if run.chosen else None,
        )
        for run in trained
    ]
    curves += [
        _TrainingCurve(
            run.recipe, run.start.seed, points=run.curve, selection=run.selection, kept_step=None
        )
        for run in unfinished
    ]
    return curves


def _flatten(fields: CardFields, prefix: str = "") -> list[tuple[str, Any]]:
    """Return the keys and values to print, one per line.

    A dict that holds dicts or lists becomes several lines, whose keys begin with its own key and a
    dot: ``{"data": {"columns": [...]}}`` gives ``data.columns``. Any other dict is one value.

    Args:
        fields: The values by key; a value may be a dict.
        prefix: What precedes each key.
    """
    rows: list[tuple[str, Any]] = []
    for key, value in fields.items():
        is_nested = isinstance(value, dict) and any(
            isinstance(inner_value, dict | list) for inner_value in value.values()
        )
        if is_nested:
            rows += _flatten(value, f"{prefix}{key}.")
        else:
            rows.append((prefix + key, value))
    return rows


def _format_value(value: Any) -> str:  # noqa: ANN401 - any TOML value
    """Return a value of a card as text.

    * A dict becomes ``key value, key value``, without empty values.
    * A list of dicts has one dict per line; any other list has commas.
    * None and what is empty become an empty text.
    """
    if isinstance(value, dict):
        texts = [(key, _format_value(inner_value)) for key, inner_value in value.items()]
        return ", ".join(f"{key} {text}" for key, text in texts if text)
    if isinstance(value, list | tuple):
        separator = "\n" if value and isinstance(value[0], dict) else ", "
        return separator.join(map(_format_value, value))
    return "" if value is None else str(value)


SCRATCH = "trained from scratch"
"""The note of a recipe without a base model."""


def describe_requirements(card: EncoderCard, catalogue: Catalogue) -> str:
    """Return as text what must be available to run an encoder, and for files whether it is.

    The cases are tried in order, and the first that fits counts: weights that nobody has published,
    an encoder fitted on texts, a Python package, a server, a checkpoint, a folder, a file of word
    vectors, or nothing.

    Args:
        card: The encoder's card: its kind, and its parameters (``params``) by name.
        catalogue: The cards of other encoders.
    """
    params, model = card.params, card.params.get("model")
    # "quoted": the card has only scores that a paper prints.
    if card.reproducible == "quoted":
        return "weights that nobody has published"
    if base := str(params.get("base", "")):
        return _describe_fitted(base, str(params.get("fit", "target")), catalogue)
    if "package" in params:
        package = str(params["package"])
        is_installed = settings.package_folder(package) is not None
        return f"the Python package {package}, {_which_is(is_installed)} installed"
    if card.kind == "openai":
        key = f", and its key in {params['key_variable']}" if params.get("key_variable") else ""
        return f"the server at {params.get('url') or '--set url=ADDRESS'}{key}"
    if card.kind == "use":
        is_installed = find_spec("tensorflow") is not None
        return f"TensorFlow, {_which_is(is_installed)} installed, and {model} or --set model=FOLDER"
    if model is not None:
        is_here = os.path.isdir(str(model))  # noqa: PTH112 - see _find_trained_runs
        if is_here or os.path.isabs(str(model)):  # noqa: PTH117
            return f"the folder {model}, {_which_is(is_here)} here, or --set model=FOLDER"
        revision = str(params.get("revision", "unpinned"))
        return f"the checkpoint {model} ({revision[:12]}) from the Hub, or --set model=FOLDER"
    if card.kind in ("transformer", "sentence_transformer"):
        return "a checkpoint that is on no Hub: --set model=FOLDER"
    if card.kind in ("infersent", "skip_thoughts", "quick_thoughts", "fastsent"):
        return "a folder made by 'stsbench convert' or by a recipe: --set model=FOLDER"
    if card.kind == "words":
        file, folder = str(params.get("file", "")), settings.vectors_folder()
        if os.path.isfile(file):  # noqa: PTH113 - see _find_trained_runs
            return f"the file {file}, which is here"
        is_available = folder is not None and (folder / file).is_file()
        return f"the file {file}, {_which_is(is_available)} in STSBENCH_VECTORS"
    return "nothing but its own code"


def _describe_fitted(base: str, fit: str, catalogue: Catalogue) -> str:
    """Return as text what is needed to run an encoder whose transform is fitted on texts.

    Args:
        base: The encoder whose embeddings are transformed, for example by whitening.
        fit: The texts: "target" for those of each task, or the name of a task or corpus; "target"
            may have a split behind a dot, and further texts behind a plus.
        catalogue: The cards.
    """
    first_source = fit.partition(".")[0].partition("+")[0]
    is_target = first_source == "target"
    texts = "each task's own sentences" if is_target else f"the sentences of {fit}"
    text = f"{texts}; the encoder {base}"
    if base in catalogue.paths("baselines"):
        text += f": {describe_requirements(catalogue.encoder(base), catalogue)}"
    return text


def _which_is(is_available: bool) -> str:
    return "which is" if is_available else "which is not"


def describe_training(name: str, card: RecipeCard, catalogue: Catalogue) -> str:
    """Return as text the command that trains a recipe, what it starts from, and its training text.

    Args:
        name: The recipe, with the values that are replaced.
        card: The recipe's card. ``base`` says what the training starts from: what another recipe
            has trained (``recipe``), a checkpoint of the Hub (``model``), a checkpoint of the
            user's (``note`` describes it), or nothing (``SCRATCH``: "trained from scratch").
        catalogue: The cards of corpora.
    """
    base, corpus = card.base, card.data.corpus
    if base.recipe:
        start = f"from what the recipe {base.recipe} has left for the same seed"
    elif base.model:
        revision = base.revision[:12]
        start = f"from the checkpoint {base.model} ({revision}) of the Hub or --base FOLDER"
    elif base.note and base.note != SCRATCH:
        start = f"from --base FOLDER ({base.note})"
    else:
        start = SCRATCH
    words = ["stsbench", "train", name]
    if catalogue.is_own("trainers", name.partition("+")[0]):
        for folder in catalogue.folders:
            words += ["--cards", str(folder)]
    text = _describe_corpus(corpus, catalogue)
    return f"'{shlex.join(words)}', {start}, on {text}"


def _describe_corpus(corpus: str, catalogue: Catalogue) -> str:
    """Return as text where the text of a corpus comes from.

    Args:
        corpus: The name of a corpus with a card, or a file.
        catalogue: The cards of corpora.
    """
    corpora = catalogue.corpora()
    if corpus not in corpora:
        return f"the file {corpus}"
    card = corpora[corpus]
    if card.tasks:
        return f"{corpus}, text of the evaluation data"
    hub = f", or {card.repo} of the Hub" if card.repo else ""
    # The file's path in a folder of corpora, or else that in the Hub's repository.
    file = card.file or card.path
    return f"{corpus}: the file {file} in STSBENCH_CORPORA{hub}, or --text FILE"


def describe_exactness(card: EncoderCard | RecipeCard) -> str:
    """Return how near scores can come to the published ones."""
    if isinstance(card, RecipeCard) and not card.published:
        return "no published scores are its own"
    return REPRODUCIBLE[card.reproducible]
