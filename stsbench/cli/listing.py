"""``stsbench list``."""

from __future__ import annotations

from collections.abc import Callable

from stsbench.cards.catalogue import Catalogue
from stsbench.cli.options.catalogue import ListOptions
from stsbench.cli.printing import print_json, print_rows, say
from stsbench.errors import UnknownName, choose

TableRows = list[list[str]]


def list_command(options: ListOptions) -> None:
    """Print one line each of what is asked for."""
    kind = options.kind
    if not kind:
        say(f"'stsbench list KIND' lists {', '.join(LISTS)}")
        return
    columns, rows = choose("list", kind, LISTS)(Catalogue(options.cards))
    if options.language is not None:
        rows = _in_language(rows, columns.index("language"), options.language)
    if options.as_json:
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
    from stsbench.leaderboard.published.rows import sources
    from stsbench.leaderboard.published.specs import read_table_card, table_names

    cards, papers = {name: read_table_card(name) for name in table_names()}, sources().papers
    rows = [[name, f"{papers[c.paper].name} {c.table}" if c.paper else "ours", c.title] for name, c in cards.items()]
    return ["table", "source", "title"], rows


def _ablations(catalogue: Catalogue) -> tuple[list[str], TableRows]:
    from stsbench.leaderboard.published.rows import sources
    from stsbench.studies.ablations import ablation_names, load_ablation

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
