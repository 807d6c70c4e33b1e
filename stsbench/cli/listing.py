"""``stsbench list`` and ``stsbench show``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from stsbench.cards.catalogue import Catalogue
from stsbench.cards.facts import EncoderCard, Suite, TaskCard
from stsbench.cards.names import variants
from stsbench.cards.recipe import RecipeCard
from stsbench.cli.needs import how_exact, to_run, to_train
from stsbench.cli.options.catalogue import ListOptions, ShowOptions
from stsbench.cli.printing import console, print_json, say, table
from stsbench.encoders.trained import TrainedRun, trained_runs
from stsbench.encoders.unfinished import unfinished_runs
from stsbench.errors import UnknownName, choose
from stsbench.training.methods import METHODS, METHODS_BY_TRAINER

TableRows = list[list[str]]


def list_command(options: ListOptions) -> None:
    """Print one line a task, encoder, recipe, suite or corpus."""
    kind = options.kind
    columns, rows = choose("list", kind, LISTS)(Catalogue(options.cards))
    if options.as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif rows:
        console().print(table(columns, rows, right=[i for i, c in enumerate(columns) if c == "n"], whole=[0]))
    else:
        say(f"no {kind} here; pass --cards DIR with cards of your own")


def _tasks(catalogue: Catalogue) -> tuple[list[str], TableRows]:
    rows = []
    for name in catalogue.paths("tasks"):
        card = catalogue.task(name)
        sources = [word for word in ("package", "local", "hub") if getattr(card, word) is not None]
        scored = card.splits[card.score_split].n
        rows.append([name, card.name, card.evaluator, ",".join(card.languages), str(scored or ""), ", ".join(sources)])
    return ["task", "name", "evaluator", "language", "n", "sources"], rows


def _encoders(catalogue: Catalogue) -> tuple[list[str], TableRows]:
    cards = {name: catalogue.encoder(name) for name in catalogue.paths("baselines")}
    rows = [[name, c.name, c.backbone, c.supervision] for name, c in cards.items()]
    return ["encoder", "name", "backbone", "supervision"], rows


def _recipes(catalogue: Catalogue) -> tuple[list[str], TableRows]:
    cards = {name: catalogue.recipe(name) for name in catalogue.paths("trainers")}
    rows = [[name, c.method, c.backbone, c.data.corpus] for name, c in cards.items()]
    return ["recipe", "method", "backbone", "corpus"], rows


def _suites(catalogue: Catalogue) -> tuple[list[str], TableRows]:
    return ["suite", "name", "tasks"], [[k, s.name, ", ".join(s.tasks)] for k, s in catalogue.suites().items()]


def _corpora(catalogue: Catalogue) -> tuple[list[str], TableRows]:
    rows = []
    for name, card in catalogue.corpora().items():
        columns = ["text", "document_id"] if card.split_sentences else list(card.columns)
        sources = "tasks" if card.tasks else "local, hub" if card.repo else "local"
        rows.append([name, ", ".join(columns), str(card.rows), sources])
    return ["corpus", "columns", "n", "sources"], rows


LISTS: dict[str, Callable[[Catalogue], tuple[list[str], TableRows]]] = {
    "tasks": _tasks,
    "encoders": _encoders,
    "recipes": _recipes,
    "suites": _suites,
    "corpora": _corpora,
}


def show_command(options: ShowOptions) -> None:
    """Print the facts of one task, suite, encoder, recipe or corpus; of an encoder also the recipe that trains it."""
    name, catalogue = options.name, Catalogue(options.cards)
    try:
        kind, record = _find(name, catalogue)
    except UnknownName:
        # All cards are read for their titles, which other names need not wait for.
        from stsbench.cli.names import Names

        if (meant := Names(catalogue).one_to_load(name)) == name:
            raise
        name, (kind, record) = meant, _find(meant, catalogue)
    facts = _facts(name, record)
    if isinstance(record, EncoderCard):
        facts |= {"to run it": to_run(record, catalogue), "how exact": how_exact(record)}
        if name in catalogue.paths("trainers"):
            recipe = catalogue.recipe(name)
            facts |= {"to train it": to_train(name, recipe, catalogue), "recipe": _facts(name, recipe)}
            facts |= _runs(name)
    if kind == "recipe":
        runs = trained_runs(name)
        # A name that says which values were replaced is of a run: these are its values.
        facts = dict(msgspec.to_builtins(runs[0].card)) if runs and "+" in name else facts
        facts |= _runs(name)
    if isinstance(record, RecipeCard):
        stem = name.partition("+")[0]
        facts |= {"to run it": to_train(stem, record, catalogue), "how exact": how_exact(record)}
    if options.as_json:
        print_json({"card": kind, "id": name, **facts})
        return
    say(f"{name}: {kind}\n")
    rows = [[key, _text(value)] for key, value in _flat(facts) if value not in ("", None, [], {})]
    console().print(table(["", ""], rows, whole=[0]))


def _facts(name: str, record: msgspec.Struct) -> dict[str, Any]:
    """A card as plain values; of a recipe whose method trains itself, the values that this one takes."""
    if isinstance(record, RecipeCard) and record.method in METHODS_BY_TRAINER["rounds"]:
        # Loads torch: of other cards nobody waits for it.
        from stsbench.recipes.rounds_trainer import values_taken

        return values_taken(name, record, METHODS.load(record.method))
    facts: dict[str, Any] = msgspec.to_builtins(record)
    return facts


def _runs(name: str) -> dict[str, Any]:
    """The runs of a recipe: those that are done, and those that are not, with what finishes them."""
    unfinished = [{"folder": str(run.folder), "to finish it": run.command} for run in unfinished_runs(name)]
    found = {"trained": [_trained(run) for run in trained_runs(name)]}
    return {**found, "not finished": unfinished} if unfinished else found


def _trained(run: TrainedRun) -> dict[str, Any]:
    """What a finished run is: its folder, the score it was chosen by, and which tests it has seen."""
    chosen = run.record.chosen
    seen: dict[str, list[str]] = {}
    for task, overlap in run.record.overlap.items():
        if overlap in ("text", "gold"):
            seen.setdefault(f"{overlap} of", []).append(task)
    score = f"{100 * chosen.score:.2f}" if chosen else None
    return {"folder": str(run.folder), "score": score, **seen}


def _find(name: str, catalogue: Catalogue) -> tuple[str, TaskCard | Suite | EncoderCard | msgspec.Struct]:
    suites, corpora = catalogue.suites(), catalogue.corpora()
    if name in catalogue.paths("tasks"):
        return "task", catalogue.task(name)
    if name in suites:
        return "suite", suites[name]
    if name in catalogue.paths("baselines"):
        return "encoder", catalogue.encoder(name)
    stem, changes = list(variants(name))[-1]
    if changes and stem in catalogue.paths("baselines") and stem not in catalogue.paths("trainers"):
        card = catalogue.encoder(stem)
        changed = msgspec.structs.replace(card, params={**card.params, **changes}, published=[])
        return "encoder", msgspec.structs.replace(changed, name=f"{card.name}{name.removeprefix(stem)}")
    # Of a recipe trained with values replaced, the name says which.
    if (recipe := name.partition("+")[0]) in catalogue.paths("trainers"):
        return "recipe", catalogue.recipe(recipe)
    if name in corpora:
        return "corpus", corpora[name]
    known = [*catalogue.paths("tasks"), *suites, *catalogue.paths("baselines"), *catalogue.paths("trainers"), *corpora]
    raise UnknownName("name", name, known, hint="'stsbench list tasks|suites|encoders|recipes|corpora' shows them")


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
