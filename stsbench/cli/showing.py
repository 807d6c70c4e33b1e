"""``stsbench list`` and ``stsbench show``: what there is, and what is known of a name, whatever it is the name of."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from typer import Context

from stsbench.cli import options as opt
from stsbench.cli.printing import print_facts, print_json, say
from stsbench.cli.screen import print_rows
from stsbench.core import settings
from stsbench.core.cards import REPRODUCIBLE, EncoderCard, RecipeCard, SelectionFacts
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, StsbenchError, UnknownName, choose, did_you_mean
from stsbench.core.files import write_whole
from stsbench.core.names import split_names, variants
from stsbench.encoders.runs import (
    RUN_FILE,
    STARTED,
    RunPoint,
    TrainedRun,
    UnfinishedRun,
    trained_runs,
    trained_variants,
    unfinished_runs,
)
from stsbench.plots.lines import Curve, CurvePoint, draw_curves
from stsbench.training.methods import METHODS, METHODS_BY_TRAINER

CardFacts = dict[str, Any]


def show_command(
    context: Context,
    name: opt.AnyName,
    *,
    curve: opt.CurvePlot = None,
    config: opt.Config = None,
    cards: opt.Cards,
    as_json: opt.AsJson = False,
) -> None:
    """Show what is known of one name.

    Example: stsbench show sup-simcse-bert-base
    """
    opt.Given.of(context).apart("--curve", "--json")
    opt.check_figure("--curve", curve)
    if curve is not None:
        _draw(name, curve)
        return
    catalogue, meant = Catalogue(cards), name
    found = _find(name, catalogue)
    if not found:
        # All cards are read for their titles, which other names need not wait for.
        from stsbench.api.names import Names

        meant = Names(catalogue).one_to_load(name)
        found = _find(meant, catalogue) if meant != name else []
    if not found:
        raise _unknown(name, catalogue)
    if as_json:
        (kind, facts), *others = found
        also = {"also": [other for other, _ in others]} if others else {}
        print_json({"card": kind, "id": meant, **facts, **also})
        return
    for place, (kind, facts) in enumerate(found):
        say(f"{meant}: {kind}\n" if place == 0 else f"\n{meant}: {kind}\n")
        print_facts([[key, _text(value)] for key, value in _flat(facts) if value not in ("", None, [], {})])


def _find(name: str, catalogue: Catalogue) -> list[tuple[str, CardFacts]]:
    """All that a name is of: a suite and a protocol may have the same."""
    found = [(kind, facts_of(name, catalogue)) for kind, facts_of in KINDS.items()]
    known = {kind: facts for kind, facts in found if facts is not None}
    # What a recipe has trained is shown with it, and with the encoder that it makes.
    hidden = {"encoder": ("recipe", "run"), "recipe": ("run",)}
    left_out = {other for kind in known for other in hidden.get(kind, ())}
    return [(kind, facts) for kind, facts in known.items() if kind not in left_out]


def _unknown(name: str, catalogue: Catalogue) -> UnknownName:
    from stsbench.boards.published.specs import table_names
    from stsbench.evaluators import protocols_of_all

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
    from stsbench.boards.published.specs import read_table_card, table_names

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


CHECKPOINTS = ("transformer", "sentence_transformer")
FOLDERS = ("infersent", "skip_thoughts", "quick_thoughts", "fastsent")

PROGRAMS = ("use", "openai")


def to_run(card: EncoderCard, catalogue: Catalogue) -> str:
    """What must be there to run an encoder, and whether it is."""
    params = card.params
    if card.reproducible == "quoted":
        return "weights that nobody has published"
    if "base" in params:
        return _texts_and_base(card, catalogue)
    if "package" in params:
        there = settings.package_folder(str(params["package"])) is not None
        return f"the Python package {params['package']}, which is {'' if there else 'not '}installed"
    if card.kind in PROGRAMS:
        return _program(card.kind, params)
    if "model" in params:
        revision = str(params.get("revision", "unpinned"))
        return f"the checkpoint {params['model']} ({revision[:12]}) from the Hub, or --set model=FOLDER"
    if card.kind in CHECKPOINTS:
        return "a checkpoint that is on no Hub: --set model=FOLDER"
    if card.kind in FOLDERS:
        return "a folder made by 'stsbench convert' or by a recipe: --set model=FOLDER"
    return _vector_file(str(params.get("file", ""))) if card.kind == "words" else "nothing but its own code"


def _program(kind: str, params: Mapping[str, Any]) -> str:
    """What must run an encoder that is not run by us."""
    if kind == "openai":
        key = f", and its key in {params['key_variable']}" if params.get("key_variable") else ""
        return f"the server at {params.get('url') or '--set url=ADDRESS'}{key}"
    there = find_spec("tensorflow") is not None
    return f"TensorFlow, which is {'' if there else 'not '}installed, and {params['model']} or --set model=FOLDER"


def _vector_file(file: str) -> str:
    folder = settings.vectors_folder()
    there = folder is not None and (folder / file).is_file()
    return f"the file {file}, which is {'' if there else 'not '}in STSBENCH_VECTORS"


def _texts_and_base(card: EncoderCard, catalogue: Catalogue) -> str:
    base = str(card.params["base"])
    known = base in catalogue.paths("baselines")
    of_base = f": {to_run(catalogue.encoder(base), catalogue)}" if known else ""
    return f"{_texts(str(card.params.get('fit', 'target')))}; the encoder {base}{of_base}"


def to_train(name: str, card: RecipeCard, catalogue: Catalogue) -> str:
    """What must be there to train a recipe, whose name may say which values are replaced."""
    return f"'stsbench train {shlex.quote(name)}', {_start(card)}, on {_training_text(card.data.corpus, catalogue)}"


def _start(card: RecipeCard) -> str:
    base = card.base
    if base.recipe:
        return f"from what the recipe {base.recipe} has left for the same seed"
    if base.model:
        return f"from the checkpoint {base.model} ({base.revision[:12]}) of the Hub or --base FOLDER"
    return f"from --base FOLDER ({base.note})" if base.note and base.note != SCRATCH else SCRATCH


SCRATCH = "trained from scratch"
"""What a recipe notes of its base where it has none."""


def _training_text(name: str, catalogue: Catalogue) -> str:
    corpora = catalogue.corpora()
    if name not in corpora:
        return f"the file {name}"
    corpus = corpora[name]
    if corpus.tasks:
        return f"{name}, text of the evaluation data"
    home = f"the file {corpus.file or corpus.path} in STSBENCH_CORPORA"
    return f"{name}: {home}{f', or {corpus.repo} of the Hub' if corpus.repo else ''}, or --text FILE"


def how_exact(card: EncoderCard | RecipeCard) -> str:
    """How near its scores can come to the published ones."""
    if isinstance(card, RecipeCard) and not card.published:
        return "no published scores are its own"
    return REPRODUCIBLE[card.reproducible]


def _texts(fit: str) -> str:
    if fit.partition(".")[0].partition("+")[0] == "target":
        return "each task's own sentences"
    return f"the sentences of {fit}"


TableRows = list[list[str]]


def list_command(
    *,
    kind: opt.Kind = "",
    language: opt.Language = None,
    config: opt.Config = None,
    cards: opt.Cards,
    as_json: opt.AsJson = False,
) -> None:
    """List tasks, encoders, recipes, tables and more.

    Example: stsbench list encoders
    """
    if language is not None and kind != "tasks":
        raise StsbenchError("--language chooses tasks; give: stsbench list tasks --language CODE")
    if not kind:
        say(f"'stsbench list KIND' lists {', '.join(LISTS)}")
        return
    columns, rows = choose("list", kind, LISTS)(Catalogue(cards))
    if language is not None:
        rows = _in_language(rows, columns.index("language"), language)
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif rows:
        print_rows(columns, rows, right=[i for i, c in enumerate(columns) if c == "n"])
    else:
        say(f"no {kind} here; pass --cards DIR with cards of your own")


def _in_language(rows: TableRows, column: int, language: str) -> TableRows:
    """The rows of tasks in a language; raises UnknownName where there are none."""
    found = [row for row in rows if language in row[column].split(",")]
    if not found:
        known = sorted({code for row in rows for code in row[column].split(",")})
        raise UnknownName("language", language, known, hint=f"tasks are in {', '.join(known)}")
    return found


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


def _tables(catalogue: Catalogue) -> tuple[list[str], TableRows]:
    from stsbench.boards.published import sources
    from stsbench.boards.published.specs import read_table_card, table_names

    cards, papers = {name: read_table_card(name) for name in table_names()}, sources().papers
    rows = [[name, f"{papers[c.paper].name} {c.table}" if c.paper else "ours", c.title] for name, c in cards.items()]
    return ["table", "source", "title"], rows


def _ablations(catalogue: Catalogue) -> tuple[list[str], TableRows]:
    from stsbench.boards.published import sources
    from stsbench.studies.reproduction import ablation_names, load_ablation

    rows, papers = [], sources().papers
    for name in ablation_names(catalogue):
        made = load_ablation(name, catalogue)
        had = sum(not line.why for line in made.lines)
        source = f"{papers[made.table.paper].name} {made.table.table}"
        rows.append([name, source, made.table.title, f"{had} of {len(made.lines)}"])
    return ["ablation", "source", "title", "rows to be had"], rows


def _protocols(catalogue: Catalogue) -> tuple[list[str], TableRows]:
    from stsbench.evaluators import protocols_of_all

    return ["protocol", "evaluators"], [[name, ", ".join(fields)] for name, fields in protocols_of_all().items()]


LISTS: dict[str, Callable[[Catalogue], tuple[list[str], TableRows]]] = {
    "tasks": _tasks,
    "encoders": _encoders,
    "recipes": _recipes,
    "suites": _suites,
    "corpora": _corpora,
    "tables": _tables,
    "ablations": _ablations,
    "protocols": _protocols,
}
