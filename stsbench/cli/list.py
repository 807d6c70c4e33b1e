"""``stsbench list``: all tasks, encoders, recipes or other things of one kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from stsbench.cli import options as opt
from stsbench.cli.printing import print_json, print_text
from stsbench.cli.tables import print_records
from stsbench.core.errors import StsbenchError, UnknownName, look_up

if TYPE_CHECKING:
    from stsbench.core.catalogue import Catalogue


MAX_LISTED_LANGUAGES = 3
"""The most codes of languages that a printed list has in a cell; JSON has all."""


def list_command(
    *,
    kind: opt.KindName = "",
    language: opt.Language = None,
    _config: opt.DefaultsFile = None,
    cards: opt.CardFolders,
    as_json: opt.AsJson = False,
) -> None:
    """List tasks, encoders, recipes, tables and more.

    Example: stsbench list encoders --language de
    """
    # All cards: TOML files that describe tasks, encoders and recipes, the user's among them.
    catalogue = opt.make_catalogue(cards)
    if language is not None and kind not in ("tasks", "encoders"):
        raise StsbenchError(
            "--language chooses tasks or encoders; give: stsbench list tasks --language CODE"
        )
    if not kind:
        if as_json:
            print_json([*LISTS])
        else:
            print_text(f"'stsbench list KIND' lists {', '.join(LISTS)}")
        return
    # LISTS: by kind a function of the catalogue that yields records, dicts of text by column.
    list_records = look_up("list", kind, LISTS)
    rows = list(list_records(catalogue))
    if language is not None:
        codes = sorted({code for row in rows for code in row["language"].split(",") if code})
        rows = [row for row in rows if language in row["language"].split(",")]
        if not rows:
            raise UnknownName("language", language, codes, hint=f"{kind} are in {', '.join(codes)}")
    if as_json:
        print_json(rows)
    elif rows:
        print_records(list(map(_shorten_record, rows)), number_keys=["n", "size"])
    else:
        print_text(f"no {kind} here; pass --cards DIR with cards of your own")


def _shorten_record(record: Mapping[str, str]) -> dict[str, str]:
    """Return a row of a list that fits 80 columns.

    It has the number of languages in place of more than three codes, and leaves out how an encoder
    was supervised.

    Args:
        record: The text of each column by its head.
    """
    shortened = {key: text for key, text in record.items() if key != "supervision"}
    languages = record.get("language", "").split(",")
    if len(languages) > MAX_LISTED_LANGUAGES:
        shortened["language"] = f"{len(languages)} languages"
    return shortened


Records = Iterator[dict[str, str]]
"""The rows of a list: the text of each column by its head."""


def _list_tasks(catalogue: Catalogue) -> Records:
    """Yield a record per task; ``n`` is the number of items that are scored, empty if unknown."""
    # paths: by the id of each task the file of its card.
    for name in catalogue.paths("tasks"):
        card = catalogue.task(name)
        # The sources of its data are keys of a card: stsbench itself, the user's files, the Hub.
        sources = [source for source in ("package", "local", "hub") if getattr(card, source)]
        yield {
            "task": name,
            "name": card.name,
            "evaluator": card.evaluator,
            "language": ",".join(card.languages),
            "n": str(card.splits[card.score_split].n or ""),
            "sources": ", ".join(sources),
        }


def _list_encoders(catalogue: Catalogue) -> Records:
    """Yield a record per encoder; ``size`` is its number of parameters, such as 22M.

    The size is empty if it is unknown.

    ``backbone`` is the model that it is built on.
    """
    from stsbench.boards.published.encoder_facts import count_parameters, format_parameters

    # paths: by the id of each encoder the file of its card.
    for name in catalogue.paths("baselines"):
        card = catalogue.encoder(name)
        n_parameters = count_parameters(catalogue, card, card.backbone)
        yield {
            "encoder": name,
            "name": card.name,
            "backbone": card.backbone,
            "size": format_parameters(n_parameters) if n_parameters else "",
            "language": ",".join(card.languages),
            "supervision": card.supervision,
        }


def _list_recipes(catalogue: Catalogue) -> Records:
    """Yield a record per recipe: its training method, the model it starts from, and its text."""
    # paths: by the id of each recipe the file of its card.
    for name in catalogue.paths("trainers"):
        card = catalogue.recipe(name)
        yield {
            "recipe": name,
            "method": card.method,
            "backbone": card.backbone,
            "corpus": card.data.corpus,
        }


def _list_suites(catalogue: Catalogue) -> Records:
    """Yield a record per suite, with its tasks."""
    for name, suite in catalogue.suites().items():
        yield {"suite": name, "name": suite.name, "tasks": ", ".join(suite.tasks)}


def _list_corpora(catalogue: Catalogue) -> Records:
    """Yield a record per corpus: its columns, its number of rows, and where its rows come from."""
    for name, card in catalogue.corpora().items():
        columns = list(card.columns)
        if card.split_sentences:
            # The text's documents are split into rows of one sentence.
            columns = ["text", "document_id"]
        if card.tasks:
            # Its rows are the sentences or pairs of these tasks.
            sources = "tasks"
        elif card.repo:
            # A file of the user's, or fetched from this repository on the Hub.
            sources = "local, hub"
        else:
            sources = "local"
        yield {
            "corpus": name,
            "columns": ", ".join(columns),
            "n": str(card.rows),
            "sources": sources,
        }


def _list_tables(catalogue: Catalogue) -> Records:
    """Yield a record per table of scores, with its paper and number, or "ours" without a paper.

    Args:
        catalogue: Not used: tables are not in it. All functions of lists have this parameter.
    """
    from stsbench.boards.published.rows import list_tables, read_sources, read_table_card

    # read_sources().papers: by the key of each paper its facts.
    for name in list_tables():
        card = read_table_card(name)
        source = f"{read_sources().papers[card.paper].name} {card.table}" if card.paper else "ours"
        yield {"table": name, "source": source, "title": card.title}


def _list_ablations(catalogue: Catalogue) -> Records:
    """Yield a record per ablation: a paper's table whose rows ``stsbench reproduce`` trains.

    It says how many of these rows can be reproduced.
    """
    from stsbench.boards.published.rows import read_sources
    from stsbench.studies.reproduction import ABLATIONS_FOLDER, load_ablation

    for name in catalogue.paths(ABLATIONS_FOLDER):
        ablation = load_ablation(name, catalogue)
        # lines: one per row of the table; the reason is empty if the row can be reproduced.
        n_reproducible = sum(not row.irreproducible_reason for row in ablation.lines)
        yield {
            "ablation": name,
            "source": f"{read_sources().papers[ablation.table.paper].name} {ablation.table.table}",
            "title": ablation.table.title,
            "rows to be had": f"{n_reproducible} of {len(ablation.lines)}",
        }


def _list_protocols(catalogue: Catalogue) -> Records:
    """Yield a record per protocol, with the evaluators that have it; the catalogue has none."""
    from stsbench.evaluators.registry import all_protocols

    for name, evaluators in all_protocols().items():
        yield {"protocol": name, "evaluators": ", ".join(evaluators)}


LISTS: Mapping[str, Callable[[Catalogue], Iterable[dict[str, str]]]] = {
    "tasks": _list_tasks,
    "encoders": _list_encoders,
    "recipes": _list_recipes,
    "suites": _list_suites,
    "corpora": _list_corpora,
    "tables": _list_tables,
    "ablations": _list_ablations,
    "protocols": _list_protocols,
}
