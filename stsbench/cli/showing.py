"""``stsbench show``: what is known of a name, whatever it is the name of."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from stsbench.cards.catalogue import Catalogue
from stsbench.cards.facts import EncoderCard
from stsbench.cards.names import split_names, variants
from stsbench.cards.recipe import RecipeCard
from stsbench.cli.needs import how_exact, to_run, to_train
from stsbench.cli.options.catalogue import ShowOptions
from stsbench.cli.printing import console, print_json, say, table
from stsbench.encoders.trained import RUN_FILE, TrainedRun, trained_runs
from stsbench.encoders.unfinished import unfinished_runs
from stsbench.errors import DataError, UnknownName
from stsbench.evaluators import EVALUATORS
from stsbench.files.whole import write_whole
from stsbench.leaderboard.published.specs import read_table_card, table_names
from stsbench.plots.curves import Curve, CurvePoint, draw_curves
from stsbench.training.methods import METHODS, METHODS_BY_TRAINER

Facts = dict[str, Any]


def show_command(options: ShowOptions) -> None:
    """Print the facts of one name; or draw the curves of runs."""
    if options.curve is not None:
        _draw(options.name, options.curve)
        return
    name, catalogue = options.name, Catalogue(options.cards)
    found = _find(name, catalogue)
    if found is None:
        # All cards are read for their titles, which other names need not wait for.
        from stsbench.cli.names import Names

        meant = Names(catalogue).one_to_load(name)
        found = _find(meant, catalogue) if meant != name else None
        if found is None:
            raise _unknown(name, catalogue)
        name = meant
    kind, facts = found
    if options.as_json:
        print_json({"card": kind, "id": name, **facts})
        return
    say(f"{name}: {kind}\n")
    rows = [[key, _text(value)] for key, value in _flat(facts) if value not in ("", None, [], {})]
    console().print(table(["", ""], rows, whole=[0]))


def _find(name: str, catalogue: Catalogue) -> tuple[str, Facts] | None:
    found = ((kind, facts_of(name, catalogue)) for kind, facts_of in KINDS.items())
    return next(((kind, facts) for kind, facts in found if facts is not None), None)


def _unknown(name: str, catalogue: Catalogue) -> UnknownName:
    cards = (one for kind in ("tasks", "baselines", "trainers") for one in catalogue.paths(kind))
    known = [*cards, *catalogue.suites(), *catalogue.corpora(), *table_names(), *_protocols()]
    return UnknownName(
        "name", name, known, hint="'stsbench list tasks|suites|encoders|recipes|corpora|tables' shows them"
    )


def _task(name: str, catalogue: Catalogue) -> Facts | None:
    return msgspec.to_builtins(catalogue.task(name)) if name in catalogue.paths("tasks") else None


def _suite(name: str, catalogue: Catalogue) -> Facts | None:
    suites = catalogue.suites()
    return msgspec.to_builtins(suites[name]) if name in suites else None


def _corpus(name: str, catalogue: Catalogue) -> Facts | None:
    corpora = catalogue.corpora()
    return msgspec.to_builtins(corpora[name]) if name in corpora else None


def _encoder(name: str, catalogue: Catalogue) -> Facts | None:
    card = _encoder_card(name, catalogue)
    if card is None:
        return None
    facts = msgspec.to_builtins(card) | {"to run it": to_run(card, catalogue), "how exact": how_exact(card)}
    if name in catalogue.paths("trainers"):
        recipe = catalogue.recipe(name)
        facts |= {"to train it": to_train(name, recipe, catalogue), "recipe": _values(name, recipe), **_runs(name)}
    return facts


def _encoder_card(name: str, catalogue: Catalogue) -> EncoderCard | None:
    """A card, or one with the values replaced that the name says were."""
    if name in catalogue.paths("baselines"):
        return catalogue.encoder(name)
    stem, changes = list(variants(name))[-1]
    if not changes or stem not in catalogue.paths("baselines") or stem in catalogue.paths("trainers"):
        return None
    card = catalogue.encoder(stem)
    changed = msgspec.structs.replace(card, params={**card.params, **changes}, published=[])
    return msgspec.structs.replace(changed, name=f"{card.name}{name.removeprefix(stem)}")


def _recipe(name: str, catalogue: Catalogue) -> Facts | None:
    # Of a recipe trained with values replaced, the name says which.
    stem = name.partition("+")[0]
    if stem not in catalogue.paths("trainers"):
        return None
    recipe, runs = catalogue.recipe(stem), trained_runs(name)
    # A name that says which values were replaced is of a run: these are its values.
    facts = dict(msgspec.to_builtins(runs[0].card)) if runs and "+" in name else _values(name, recipe)
    return facts | _runs(name) | {"to run it": to_train(stem, recipe, catalogue), "how exact": how_exact(recipe)}


def _values(name: str, recipe: RecipeCard) -> Facts:
    """A recipe as plain values; where its method trains itself, the values that this one takes."""
    if recipe.method in METHODS_BY_TRAINER["rounds"]:
        # Loads torch: of other cards nobody waits for it.
        from stsbench.recipes.rounds_trainer import values_taken

        return values_taken(name, recipe, METHODS.load(recipe.method))
    facts: Facts = msgspec.to_builtins(recipe)
    return facts


def _run(name: str, catalogue: Catalogue) -> Facts | None:
    """Runs that have a name or a folder of their own."""
    runs = _trained_runs(name)
    if not runs and not unfinished_runs(name):
        return None
    values = dict(msgspec.to_builtins(runs[0].card)) if runs else {}
    return values | ({"trained": [_trained(run) for run in runs]} if _is_run_folder(name) else _runs(name))


def _trained_runs(name: str) -> Sequence[TrainedRun]:
    return [TrainedRun.read(Path(name))] if _is_run_folder(name) else trained_runs(name)


def _is_run_folder(name: str) -> bool:
    try:
        return (Path(name) / RUN_FILE).is_file()
    except OSError:
        # Too long for a file's name.
        return False


def _table(name: str, catalogue: Catalogue) -> Facts | None:
    if name not in table_names() and not (name.endswith(".toml") and Path(name).is_file()):
        return None
    card = read_table_card(name)
    rows = [row if isinstance(row, str) else row.row for group in card.groups for row in group.rows]
    facts: Facts = {
        "title": card.title, "paper": card.paper, "number": card.table, "protocol": card.protocol,
        "suite": card.suite, "columns": [one if isinstance(one, str) else one.task or one.average_of for one in card.columns],
        "rows": rows, "note": card.note, "to print it": f"stsbench leaderboard --table {name}",
    }  # fmt: skip
    return facts


def _protocol(name: str, catalogue: Catalogue) -> Facts | None:
    return _protocols().get(name)


def _protocols() -> dict[str, Facts]:
    """The fields of each protocol, by the evaluator that knows it."""
    found: dict[str, Facts] = {}
    for evaluator in EVALUATORS.names():
        for name, protocol in EVALUATORS.load(evaluator).PROTOCOLS.items():
            found.setdefault(name, {})[evaluator] = dataclasses.asdict(protocol)
    return found


KINDS: Mapping[str, Callable[[str, Catalogue], Facts | None]] = {
    "task": _task,
    "suite": _suite,
    "encoder": _encoder,
    "recipe": _recipe,
    "corpus": _corpus,
    "table": _table,
    "run": _run,
    "protocol": _protocol,
}
"""What a name may be of, in the order in which they are looked for; each gives its facts, or None where it has no such name."""


def _draw(names: str, path: Path) -> None:
    """Draw the curves of runs, several in one chart."""
    runs = [run for name in split_names(names) for run in _trained_runs(name)]
    if not runs:
        raise DataError(f"there are no finished runs of '{names}'; 'stsbench train' makes them")
    several = len({run.recipe for run in runs}) > 1
    curves = [
        Curve(
            name=f"{run.recipe} seed {run.seed}" if several else f"seed {run.seed}",
            points=[
                CurvePoint(point.step or 0, point.score and 100 * point.score, point.loss) for point in run.record.curve
            ],
            kept=run.record.chosen and run.record.chosen.step,
        )
        for run in runs
    ]
    chosen_by = runs[0].card.selection
    chart = draw_curves(curves, score=f"{chosen_by.task} {chosen_by.split}")
    write_whole(path, chart.to_bytes(path.suffix.removeprefix(".")))
    say(f"wrote {path}")


def _runs(name: str) -> Facts:
    """The runs of a recipe: those that are done, and those that are not, with what finishes them."""
    unfinished = [{"folder": str(run.folder), "to finish it": run.command} for run in unfinished_runs(name)]
    found = {"trained": [_trained(run) for run in trained_runs(name)]}
    return {**found, "not finished": unfinished} if unfinished else found


def _trained(run: TrainedRun) -> Facts:
    """What a finished run is: its folder, the score it was chosen by, and which tests it has seen."""
    chosen = run.record.chosen
    seen: dict[str, list[str]] = {}
    for task, overlap in run.record.overlap.items():
        if overlap in ("text", "gold"):
            seen.setdefault(f"{overlap} of", []).append(task)
    score = f"{100 * chosen.score:.2f}" if chosen else None
    return {"folder": str(run.folder), "score": score, **seen}


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
    if isinstance(value, list):
        return "\n".join(map(_text, value)) if value and isinstance(value[0], dict) else ", ".join(map(_text, value))
    return str(value)
