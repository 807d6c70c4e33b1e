"""``stsbench show``: what is known of a name, whatever it is the name of."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from stsbench.cli import options as opt
from stsbench.cli.printing import emit, print_facts, print_json, print_text
from stsbench.core import settings
from stsbench.core.cards import REPRODUCIBLE, EncoderCard, RecipeCard, SelectionSection
from stsbench.core.errors import DataError, UnknownName, suggest
from stsbench.core.names import redact_name, split_names, split_params
from stsbench.core.secrets import redact
from stsbench.encoders.runs import (
    RUN_FILE,
    TrainedRun,
    UnfinishedRun,
    trained_runs,
    trained_variants,
    unfinished_runs,
)
from stsbench.plots.draw import Curve, CurvePoint, draw_curves
from stsbench.training.methods.registry import METHODS, METHODS_BY_TRAINER

if TYPE_CHECKING:
    from stsbench.core.catalogue import Catalogue

CardFacts = dict[str, Any]


def show_command(
    context: opt.Context,
    name: opt.AnyName,
    *,
    curve: opt.CurvePlot = None,
    _config: opt.Config = None,
    cards: opt.OwnCards,
    as_json: opt.AsJson = False,
) -> None:
    """Show what is known of one name.

    Example: stsbench show sup-simcse-bert-base
    """
    catalogue = opt.read_cards(cards)
    opt.TypedOptions.from_context(context).forbid_beside("--curve", "--json")
    if curve is not None:
        _draw(name, curve)
        return
    meant, found = name, _find(name, catalogue)
    if not found:
        # All cards are read for their titles, which other names need not wait for.
        meant = opt.resolve_spec(name, catalogue)
        found = _find(meant, catalogue) if meant != name else []
    if not found:
        raise _unknown(name, catalogue)
    if as_json:
        (kind, facts), *others = found
        also = {"also": [other for other, _ in others]} if others else {}
        print_json({"card": kind, "id": meant, **facts, **also})
        return
    for place, (kind, facts) in enumerate(found):
        print_text(f"{meant}: {kind}\n" if place == 0 else f"\n{meant}: {kind}\n")
        print_facts(
            [[key, _text(value)] for key, value in _flat(facts) if value not in ("", None, [], {})]
        )


def _find(name: str, catalogue: Catalogue) -> list[tuple[str, CardFacts]]:
    # Whoever asks for a card waits for nothing that is slow to read.
    is_card = any(name in catalogue.paths(kind) for kind in ("tasks", "baselines", "trainers"))
    asked = {
        kind: of for kind, of in KINDS.items() if not (is_card and kind in ("table", "protocol"))
    }
    known = {
        kind: facts for kind, of in asked.items() if (facts := of(name, catalogue)) is not None
    }
    # What a recipe has trained is shown with it, and with the encoder that it makes.
    hidden = {"encoder": ("recipe", "run"), "recipe": ("run",)}
    left_out = {other for kind in known for other in hidden.get(kind, ())}
    return [(kind, facts) for kind, facts in known.items() if kind not in left_out]


def _unknown(name: str, catalogue: Catalogue) -> UnknownName:
    cards = (one for kind in ("tasks", "baselines", "trainers") for one in catalogue.paths(kind))
    known = [
        *cards,
        *catalogue.suites(),
        *catalogue.corpora(),
        *opt.list_names("tables"),
        *_protocols(),
    ]
    hint = (
        "'stsbench list' shows them: tasks, encoders, recipes, suites, corpora, tables, protocols"
    )
    return UnknownName("name", name, known, hint=hint)


def _encoder(name: str, catalogue: Catalogue) -> CardFacts | None:
    baselines, trainers = catalogue.paths("baselines"), catalogue.paths("trainers")
    stem, changes = (name, {}) if name in baselines else list(split_params(name))[-1]
    if stem not in baselines or (changes and stem in trainers):
        return None
    card = catalogue.encoder(stem)
    if changes:
        title = redact_name(f"{card.name}{name.removeprefix(stem)}")
        card = msgspec.structs.replace(
            card, params={**card.params, **changes}, published=[], name=title
        )
    facts: CardFacts = msgspec.to_builtins(card) | {"params": redact(card.params)}
    facts |= {"to run it": describe_requirements(card, catalogue), "how exact": how_exact(card)}
    if name in trainers:
        recipe = catalogue.recipe(name)
        facts |= {
            "to train it": to_train(name, recipe, catalogue),
            "recipe": _values(name, recipe),
            **_runs(name),
        }
    return facts


def _recipe(name: str, catalogue: Catalogue) -> CardFacts | None:
    # Of a recipe trained with values replaced, the name says which.
    stem = name.partition("+")[0]
    if stem not in catalogue.paths("trainers"):
        return None
    recipe, runs = catalogue.recipe(stem), trained_runs(name)
    # A name that says which values were replaced is of a run: these are its values.
    facts = (
        dict(msgspec.to_builtins(runs[0].card)) if runs and "+" in name else _values(name, recipe)
    )
    return (
        facts
        | _runs(name)
        | {"to run it": to_train(name, recipe, catalogue), "how exact": how_exact(recipe)}
    )


def _values(name: str, recipe: RecipeCard) -> CardFacts:
    if recipe.method in METHODS_BY_TRAINER["rounds"]:
        # Loads torch: of other cards nobody waits for it.
        from stsbench.recipes.trainers import values_taken

        return values_taken(name, recipe, METHODS.load(recipe.method))
    facts: CardFacts = msgspec.to_builtins(recipe)
    return facts


def _run(name: str, catalogue: Catalogue) -> CardFacts | None:
    """Runs that have a name or a folder of their own."""
    runs = _trained_runs(name)
    if not runs and not _unfinished_runs(name):
        return None
    values = dict(msgspec.to_builtins(runs[0].card)) if runs else {}
    return values | _runs(name)


def _trained_runs(name: str) -> Sequence[TrainedRun]:
    # No folder has a name that is too long for one, which Path would raise.
    is_folder = os.path.isfile(Path(name, RUN_FILE))  # noqa: PTH113
    return [TrainedRun.read(Path(name))] if is_folder else trained_runs(name)


def _unfinished_runs(name: str) -> Sequence[UnfinishedRun]:
    found = UnfinishedRun.read(Path(name)) if os.path.isdir(name) else None  # noqa: PTH112
    return [found] if found else unfinished_runs(name)


def _runs(name: str) -> CardFacts:
    unfinished = [
        {"folder": str(run.folder), "to finish it": run.command} for run in _unfinished_runs(name)
    ]
    found = {"trained": [_trained(run) for run in _trained_runs(name)]}
    return {**found, "not finished": unfinished} if unfinished else found


def _trained(run: TrainedRun) -> CardFacts:
    """What a finished run is: its folder, the score it was chosen by, and which tests it has seen."""
    chosen, seen = run.chosen, dict[str, list[str]]()
    for task, overlap in run.overlap.items():
        if overlap in ("text", "gold"):
            seen.setdefault(f"{overlap} of", []).append(task)
    return {
        "folder": str(run.folder),
        "score": f"{100 * chosen.score:.2f}" if chosen else None,
        **seen,
    }


def _table(name: str, catalogue: Catalogue) -> CardFacts | None:
    from stsbench.boards.published.rows import read_table_card, table_names

    if name not in table_names() and not (name.endswith(".toml") and Path(name).is_file()):
        return None
    card = read_table_card(name)
    return {
        "title": card.title, "paper": card.paper, "number": card.table, "protocol": card.protocol,
        "suite": card.suite, "columns": [one if isinstance(one, str) else one.task or one.average_of for one in card.columns],
        "rows": [row if isinstance(row, str) else row.row for group in card.groups for row in group.rows],
        "note": card.note, "to print it": f"stsbench leaderboard --table {name}",
    }  # fmt: skip


def _protocols() -> Mapping[str, CardFacts]:
    from stsbench.evaluators.registry import all_protocols

    return all_protocols()


KINDS: Mapping[str, Callable[[str, Catalogue], CardFacts | None]] = {
    "task": lambda name, known: (
        msgspec.to_builtins(known.task(name)) if name in known.paths("tasks") else None
    ),
    "suite": lambda name, known: msgspec.to_builtins(known.suites().get(name)),
    "encoder": _encoder,
    "recipe": _recipe,
    "corpus": lambda name, known: msgspec.to_builtins(known.corpora().get(name)),
    "table": _table,
    "run": _run,
    "protocol": lambda name, known: _protocols().get(name),
}
"""What a name may be of, in the order in which they are looked for; each gives its facts, or None where it has no such name."""


def _draw(names: str, path: Path) -> None:
    found: list[tuple[str, int, Any, SelectionSection, float | None]] = []
    for name in split_names(names):
        done, under_way = _trained_runs(name), _unfinished_runs(name)
        if not done and not under_way:
            others = trained_variants(re.split("[+@]", name, maxsplit=1)[0])
            near = suggest(name, others) or (f"; there is {', '.join(others)}" if others else "")
            raise DataError(f"there are no runs of '{name}'{near}; 'stsbench train' makes them")
        for run in done:
            kept = run.chosen.step if run.chosen else None
            found.append((run.recipe, run.seed, run.curve, run.card.selection, kept))
        found += [(one.recipe, one.start.seed, one.curve, one.selection, None) for one in under_way]
    measures = list(
        dict.fromkeys(f"{selection.task} {selection.split}" for *_, selection, _ in found)
    )
    if len(measures) > 1:
        what = f"these runs were validated on {' and '.join(measures)}"
        raise DataError(f"{what}, which one axis cannot show; draw them apart")
    several = len({recipe for recipe, *_ in found}) > 1
    curves = [
        Curve(
            name=f"{recipe} seed {seed}" if several else f"seed {seed}",
            points=[
                CurvePoint(one.step or 0, one.score and 100 * one.score, one.loss) for one in points
            ],
            kept_step=kept,
        )
        for recipe, seed, points, _, kept in found
    ]
    emit(draw_curves(curves, score_label=measures[0]), path)


def _flat(facts: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for key, value in facts.items():
        if isinstance(value, dict) and any(isinstance(v, dict | list) for v in value.values()):
            rows += _flat(value, f"{prefix}{key}.")
        else:
            rows.append((prefix + key, value))
    return rows


def _text(value: Any) -> str:  # noqa: ANN401 - any TOML value
    if isinstance(value, dict):
        return ", ".join(f"{k} {_text(v)}" for k, v in value.items() if v not in ("", None))
    if isinstance(value, list | tuple):
        return (
            "\n".join(map(_text, value))
            if value and isinstance(value[0], dict)
            else ", ".join(map(_text, value))
        )
    return str(value)


SCRATCH = "trained from scratch"
"""What a recipe notes of its base where it has none."""


def describe_requirements(card: EncoderCard, catalogue: Catalogue) -> str:
    """What must be there to run an encoder, and whether it is."""
    params, model = card.params, card.params.get("model")
    if card.reproducible == "quoted":
        return "weights that nobody has published"
    if base := str(params.get("base", "")):
        fit = str(params.get("fit", "target"))
        own = fit.partition(".")[0].partition("+")[0] == "target"
        known = base in catalogue.paths("baselines")
        of_base = f": {describe_requirements(catalogue.encoder(base), catalogue)}" if known else ""
        texts = "each task's own sentences" if own else f"the sentences of {fit}"
        return f"{texts}; the encoder {base}{of_base}"
    if "package" in params:
        package = str(params["package"])
        return (
            f"the Python package {package}, {_which_is(settings.package_folder(package))} installed"
        )
    if card.kind == "openai":
        key = f", and its key in {params['key_variable']}" if params.get("key_variable") else ""
        return f"the server at {params.get('url') or '--set url=ADDRESS'}{key}"
    if card.kind == "use":
        return f"TensorFlow, {_which_is(find_spec('tensorflow'))} installed, and {model} or --set model=FOLDER"
    if model is not None:
        revision = str(params.get("revision", "unpinned"))
        return f"the checkpoint {model} ({revision[:12]}) from the Hub, or --set model=FOLDER"
    if card.kind in ("transformer", "sentence_transformer"):
        return "a checkpoint that is on no Hub: --set model=FOLDER"
    if card.kind in ("infersent", "skip_thoughts", "quick_thoughts", "fastsent"):
        return "a folder made by 'stsbench convert' or by a recipe: --set model=FOLDER"
    if card.kind == "words":
        file, folder = str(params.get("file", "")), settings.vectors_folder()
        return f"the file {file}, {_which_is(folder and (folder / file).is_file())} in STSBENCH_VECTORS"
    return "nothing but its own code"


def _which_is(there: object) -> str:
    return "which is" if there else "which is not"


def to_train(name: str, card: RecipeCard, catalogue: Catalogue) -> str:
    """What must be there to train a recipe, whose name may say which values are replaced."""
    base, corpus, corpora = card.base, card.data.corpus, catalogue.corpora()
    if base.recipe:
        start = f"from what the recipe {base.recipe} has left for the same seed"
    elif base.model:
        start = (
            f"from the checkpoint {base.model} ({base.revision[:12]}) of the Hub or --base FOLDER"
        )
    else:
        start = (
            f"from --base FOLDER ({base.note})" if base.note and base.note != SCRATCH else SCRATCH
        )
    text = f"the file {corpus}"
    if corpus in corpora:
        of = corpora[corpus]
        hub = f", or {of.repo} of the Hub" if of.repo else ""
        home = f": the file {of.file or of.path} in STSBENCH_CORPORA{hub}, or --text FILE"
        text = f"{corpus}, text of the evaluation data" if of.tasks else f"{corpus}{home}"
    return f"'stsbench train {shlex.quote(name)}', {start}, on {text}"


def how_exact(card: EncoderCard | RecipeCard) -> str:
    """How near its scores can come to the published ones."""
    if isinstance(card, RecipeCard) and not card.published:
        return "no published scores are its own"
    return REPRODUCIBLE[card.reproducible]
