"""``stsbench list``: what there is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from stsbench.cli import options as opt
from stsbench.cli.printing import print_json, print_records, print_text
from stsbench.core.errors import StsbenchError, UnknownName, look_up

if TYPE_CHECKING:
    from stsbench.core.catalogue import Catalogue


def list_command(
    *,
    kind: opt.Kind = "",
    language: opt.Language = None,
    _config: opt.Config = None,
    cards: opt.OwnCards,
    as_json: opt.AsJson = False,
) -> None:
    """List tasks, encoders, recipes, tables and more.

    Example: stsbench list encoders
    """
    catalogue = opt.read_cards(cards)
    if language is not None and kind != "tasks":
        raise StsbenchError("--language chooses tasks; give: stsbench list tasks --language CODE")
    if not kind:
        print_text(f"'stsbench list KIND' lists {', '.join(LISTS)}")
        return
    rows = list(look_up("list", kind, LISTS)(catalogue))
    if language is not None:
        known = sorted({code for row in rows for code in row["language"].split(",")})
        rows = [row for row in rows if language in row["language"].split(",")]
        if not rows:
            raise UnknownName("language", language, known, hint=f"tasks are in {', '.join(known)}")
    if as_json:
        print_json(rows)
    elif rows:
        print_records(rows, right=["n"])
    else:
        print_text(f"no {kind} here; pass --cards DIR with cards of your own")


Listed = Iterator[dict[str, str]]


def _tasks(catalogue: Catalogue) -> Listed:
    for name in catalogue.paths("tasks"):
        card = catalogue.task(name)
        n, sources = (
            card.splits[card.score_split].n,
            [one for one in ("package", "local", "hub") if getattr(card, one)],
        )
        facts = {
            "task": name,
            "name": card.name,
            "evaluator": card.evaluator,
            "language": ",".join(card.languages),
        }
        yield facts | {"n": str(n or ""), "sources": ", ".join(sources)}


def _encoders(catalogue: Catalogue) -> Listed:
    for name, card in ((name, catalogue.encoder(name)) for name in catalogue.paths("baselines")):
        yield {
            "encoder": name,
            "name": card.name,
            "backbone": card.backbone,
            "supervision": card.supervision,
        }


def _recipes(catalogue: Catalogue) -> Listed:
    for name, card in ((name, catalogue.recipe(name)) for name in catalogue.paths("trainers")):
        yield {
            "recipe": name,
            "method": card.method,
            "backbone": card.backbone,
            "corpus": card.data.corpus,
        }


def _corpora(catalogue: Catalogue) -> Listed:
    for name, card in catalogue.corpora().items():
        columns = ["text", "document_id"] if card.split_sentences else list(card.columns)
        sources = "tasks" if card.tasks else "local, hub" if card.repo else "local"
        yield {
            "corpus": name,
            "columns": ", ".join(columns),
            "n": str(card.rows),
            "sources": sources,
        }


def _tables(catalogue: Catalogue) -> Listed:
    from stsbench.boards.published.rows import read_table_card, sources, table_names

    for name, card in ((name, read_table_card(name)) for name in table_names()):
        source = f"{sources().papers[card.paper].name} {card.table}" if card.paper else "ours"
        yield {"table": name, "source": source, "title": card.title}


def _ablations(catalogue: Catalogue) -> Listed:
    from stsbench.boards.published.rows import sources
    from stsbench.studies.reproduction import FOLDER, load_ablation

    for name, made in ((name, load_ablation(name, catalogue)) for name in catalogue.paths(FOLDER)):
        source = f"{sources().papers[made.table.paper].name} {made.table.table}"
        had = f"{sum(not line.why for line in made.lines)} of {len(made.lines)}"
        yield {"ablation": name, "source": source, "title": made.table.title, "rows to be had": had}


def _protocols(catalogue: Catalogue) -> Listed:
    from stsbench.evaluators.registry import all_protocols

    yield from (
        {"protocol": name, "evaluators": ", ".join(of)} for name, of in all_protocols().items()
    )


LISTS: Mapping[str, Callable[[Catalogue], Iterable[dict[str, str]]]] = {
    "tasks": _tasks,
    "encoders": _encoders,
    "recipes": _recipes,
    "suites": lambda known: [
        {"suite": name, "name": suite.name, "tasks": ", ".join(suite.tasks)}
        for name, suite in known.suites().items()
    ],
    "corpora": _corpora,
    "tables": _tables,
    "ablations": _ablations,
    "protocols": _protocols,
}
