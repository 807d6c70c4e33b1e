"""``stsbench show``: what is known of a name, whatever it is the name of."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stsbench.cards.catalogue import Catalogue
from stsbench.cards.facts import EncoderCard
from stsbench.cards.names import split_names, variants
from stsbench.cards.recipe import RecipeCard, SelectionFacts
from stsbench.cli.needs import how_exact, to_run, to_train
from stsbench.cli.options.catalogue import ShowOptions
from stsbench.cli.printing import print_facts, print_json, say
from stsbench.encoders.trained import RUN_FILE, RunPoint, TrainedRun, trained_runs, trained_variants
from stsbench.encoders.unfinished import STARTED, UnfinishedRun, unfinished_runs
from stsbench.errors import DataError, UnknownName, did_you_mean
from stsbench.files.whole import write_whole
from stsbench.plots.curves import Curve, CurvePoint, draw_curves
from stsbench.training.methods import METHODS, METHODS_BY_TRAINER

CardFacts = dict[str, Any]


def show_command(options: ShowOptions) -> None:
    """Print the facts of one name; or draw the curves of runs."""
    if options.curve is not None:
        _draw(options.name, options.curve)
        return
    name, catalogue = options.name, Catalogue(options.cards)
    found = _find(name, catalogue)
    if not found:
        # All cards are read for their titles, which other names need not wait for.
        from stsbench.cli.names import Names

        name = Names(catalogue).one_to_load(name)
        found = _find(name, catalogue) if name != options.name else []
    if not found:
        raise _unknown(options.name, catalogue)
    if options.as_json:
        (kind, facts), *others = found
        also = {"also": [other for other, _ in others]} if others else {}
        print_json({"card": kind, "id": name, **facts, **also})
        return
    for place, (kind, facts) in enumerate(found):
        say(f"{name}: {kind}\n" if place == 0 else f"\n{name}: {kind}\n")
        rows = [[key, _text(value)] for key, value in _flat(facts) if value not in ("", None, [], {})]
        print_facts(rows)


def _find(name: str, catalogue: Catalogue) -> list[tuple[str, CardFacts]]:
    """All that a name is of: a suite and a protocol may have the same."""
    found = [(kind, facts_of(name, catalogue)) for kind, facts_of in KINDS.items()]
    known = {kind: facts for kind, facts in found if facts is not None}
    # What a recipe has trained is shown with it, and with the encoder that it makes.
    hidden = {"encoder": ("recipe", "run"), "recipe": ("run",)}
    left_out = {other for kind in known for other in hidden.get(kind, ())}
    return [(kind, facts) for kind, facts in known.items() if kind not in left_out]


def _unknown(name: str, catalogue: Catalogue) -> UnknownName:
    from stsbench.evaluators import protocols_of_all
    from stsbench.leaderboard.published.specs import table_names

    cards = (one for kind in ("tasks", "baselines", "trainers") for one in catalogue.paths(kind))
    known = [*cards, *catalogue.suites(), *catalogue.corpora(), *table_names(), *protocols_of_all()]
    return UnknownName(
        "name",
        name,
        known,
        hint="'stsbench list' shows them: tasks, encoders, recipes, suites, corpora, tables, protocols",
    )


def _task(name: str, catalogue: Catalogue) -> CardFacts | None:
    return msgspec.to_builtins(catalogue.task(name)) if name in catalogue.paths("tasks") else None


def _suite(name: str, catalogue: Catalogue) -> CardFacts | None:
    suites = catalogue.suites()
    return msgspec.to_builtins(suites[name]) if name in suites else None


def _corpus(name: str, catalogue: Catalogue) -> CardFacts | None:
    corpora = catalogue.corpora()
    return msgspec.to_builtins(corpora[name]) if name in corpora else None


def _encoder(name: str, catalogue: Catalogue) -> CardFacts | None:
    card = _encoder_card(name, catalogue)
    if card is None:
        return None
    facts: CardFacts = msgspec.to_builtins(card) | {"to run it": to_run(card, catalogue), "how exact": how_exact(card)}
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


def _recipe(name: str, catalogue: Catalogue) -> CardFacts | None:
    # Of a recipe trained with values replaced, the name says which.
    stem = name.partition("+")[0]
    if stem not in catalogue.paths("trainers"):
        return None
    recipe, runs = catalogue.recipe(stem), trained_runs(name)
    # A name that says which values were replaced is of a run: these are its values.
    facts = dict(msgspec.to_builtins(runs[0].card)) if runs and "+" in name else _values(name, recipe)
    return facts | _runs(name) | {"to run it": to_train(name, recipe, catalogue), "how exact": how_exact(recipe)}


def _values(name: str, recipe: RecipeCard) -> CardFacts:
    """A recipe as plain values; where its method trains itself, the values that this one takes."""
    if recipe.method in METHODS_BY_TRAINER["rounds"]:
        # Loads torch: of other cards nobody waits for it.
        from stsbench.recipes.rounds_trainer import values_taken

        return values_taken(name, recipe, METHODS.load(recipe.method))
    facts: CardFacts = msgspec.to_builtins(recipe)
    return facts


def _run(name: str, catalogue: Catalogue) -> CardFacts | None:
    """Runs that have a name or a folder of their own."""
    runs = _trained_runs(name)
    if not runs and not _unfinished_runs(name):
        return None
    values = dict(msgspec.to_builtins(runs[0].card)) if runs else {}
    return values | ({"trained": [_trained(run) for run in runs]} if _is_run_folder(name) else _runs(name))


def _trained_runs(name: str) -> Sequence[TrainedRun]:
    return [TrainedRun.read(Path(name))] if _is_run_folder(name) else trained_runs(name)


def _is_run_folder(name: str, file: str = RUN_FILE) -> bool:
    try:
        return (Path(name) / file).is_file()
    except OSError:
        # Too long for a file's name.
        return False


def _table(name: str, catalogue: Catalogue) -> CardFacts | None:
    if _is_card(name, catalogue):
        return None
    from stsbench.leaderboard.published.specs import read_table_card, table_names

    if name not in table_names() and not (name.endswith(".toml") and Path(name).is_file()):
        return None
    card = read_table_card(name)
    rows = [row if isinstance(row, str) else row.row for group in card.groups for row in group.rows]
    facts: CardFacts = {
        "title": card.title, "paper": card.paper, "number": card.table, "protocol": card.protocol,
        "suite": card.suite, "columns": [one if isinstance(one, str) else one.task or one.average_of for one in card.columns],
        "rows": rows, "note": card.note, "to print it": f"stsbench leaderboard --table {name}",
    }  # fmt: skip
    return facts


def _protocol(name: str, catalogue: Catalogue) -> CardFacts | None:
    if _is_card(name, catalogue):
        return None
    from stsbench.evaluators import protocols_of_all

    return protocols_of_all().get(name)


def _is_card(name: str, catalogue: Catalogue) -> bool:
    """Whether a name is of a card: nobody who asks for one waits for what is slow to read."""
    return any(name in catalogue.paths(kind) for kind in ("tasks", "baselines", "trainers"))


KINDS: Mapping[str, Callable[[str, Catalogue], CardFacts | None]] = {
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


class _Drawn(NamedTuple):
    """A run of which a curve is drawn: of an unfinished one, as far as it has come."""

    recipe: str
    seed: int
    points: Sequence[RunPoint]
    selection: SelectionFacts
    kept: float | None = None


def _draw(names: str, path: Path) -> None:
    """Draw the curves of runs, several in one chart."""
    runs = [run for name in split_names(names) for run in _with_curves(name)]
    measures = list(dict.fromkeys(f"{run.selection.task} {run.selection.split}" for run in runs))
    if len(measures) > 1:
        raise DataError(
            f"these runs were validated on {' and '.join(measures)}, which one axis cannot show; draw them apart"
        )
    several = len({run.recipe for run in runs}) > 1
    curves = [
        Curve(
            name=f"{run.recipe} seed {run.seed}" if several else f"seed {run.seed}",
            points=[CurvePoint(one.step or 0, one.score and 100 * one.score, one.loss) for one in run.points],
            kept=run.kept,
        )
        for run in runs
    ]
    chart = draw_curves(curves, score=measures[0])
    write_whole(path, chart.to_bytes(path.suffix.removeprefix(".")))
    say(f"wrote {path}")


def _with_curves(name: str) -> list[_Drawn]:
    """The runs of a name, finished or not; raises DataError where there are none."""
    done = [
        _Drawn(
            run.recipe,
            run.seed,
            run.record.curve,
            run.card.selection,
            run.record.chosen.step if run.record.chosen else None,
        )
        for run in _trained_runs(name)
    ]
    under_way = [_Drawn(run.recipe, run.start.seed, run.curve, run.selection) for run in _unfinished_runs(name)]
    if not done and not under_way:
        others = trained_variants(re.split("[+@]", name, maxsplit=1)[0])
        near = did_you_mean(name, others) or (f"; there is {', '.join(others)}" if others else "")
        raise DataError(f"there are no runs of '{name}'{near}; 'stsbench train' makes them")
    return done + under_way


def _unfinished_runs(name: str) -> Sequence[UnfinishedRun]:
    """Those of a recipe, or the one in a folder that is named by its path."""
    found = UnfinishedRun.read(Path(name)) if _is_run_folder(name, STARTED) else None
    return [found] if found else unfinished_runs(name)


def _runs(name: str) -> CardFacts:
    """The runs of a recipe: those that are done, and those that are not, with what finishes them."""
    unfinished = [{"folder": str(run.folder), "to finish it": run.command} for run in _unfinished_runs(name)]
    found = {"trained": [_trained(run) for run in trained_runs(name)]}
    return {**found, "not finished": unfinished} if unfinished else found


def _trained(run: TrainedRun) -> CardFacts:
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
    if isinstance(value, list | tuple):
        return "\n".join(map(_text, value)) if value and isinstance(value[0], dict) else ", ".join(map(_text, value))
    return str(value)
