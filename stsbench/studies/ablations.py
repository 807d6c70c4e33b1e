"""Ablations of papers as cards: which recipe, with which values replaced, gives each row of a printed table or figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from stsbench.cards.catalogue import Catalogue, read_card
from stsbench.cards.strict import Record
from stsbench.errors import CardError, UnknownName, did_you_mean
from stsbench.leaderboard.published.rows import published_row
from stsbench.leaderboard.published.specs import TableCard, read_table_card, row_facts
from stsbench.studies.trials import Trial

FOLDER = "trainers/tables"
"""The kind of card, and where it lies: in the project and in folders of a user's own."""


class AblationRow(Record, frozen=True, kw_only=True):
    """One row: the recipe whose run is it, or an encoder that needs no training, or why it cannot be had."""

    row: str
    """The published row of the card's table; of a figure, what it is called."""
    published: str = ""
    """Of a figure: the key of the published row that prints its number, if any does."""
    recipe: str = ""
    """Default the card's own."""
    small: str = ""
    """What stands for recipe or encoder where all is to be had on a CPU in minutes."""
    set: dict[str, Any] = {}
    """What is replaced of the recipe, by key."""
    small_set: dict[str, Any] = {}
    """What is replaced of the small one beside that or otherwise; an empty text leaves out what ``set`` says."""
    encoder: str = ""
    why: str = ""
    """Why it cannot be had; a row that says ``small`` still has that."""
    small_why: str = ""
    """Why nothing small can show it."""


class AblationCard(Record, frozen=True, kw_only=True):
    """A table of the leaderboard's, or a figure with columns of its own, and what gives its rows."""

    rows: list[AblationRow]
    table: str = ""
    figure: TableCard | None = None
    recipe: str = ""
    small: str = ""
    small_set: dict[str, Any] = {}
    """What is replaced of every small recipe, before what its row says."""
    note: str = ""
    small_note: str = ""


class AblationLine(NamedTuple):
    """A row as it is to be had: by trials of a recipe, by an encoder, or not at all; ``why`` then says why."""

    label: str
    published: str
    group: str
    recipe: str = ""
    replaced: Mapping[str, Any] = {}
    encoder: str = ""
    why: str = ""


class Ablation(NamedTuple):
    """A card with the table that it is about, and its rows in that one's order."""

    name: str
    card: AblationCard
    table: TableCard
    lines: Sequence[AblationLine]
    is_small: bool


def ablation_names(catalogue: Catalogue) -> list[str]:
    """The names of all ablations, in order."""
    return list(catalogue.paths(FOLDER))


def load_ablation(name: str, catalogue: Catalogue, *, small: bool = False) -> Ablation:
    """Return an ablation with its rows.

    Args:
        name: a card's name.
        catalogue: cards of the project and of the user.
        small: rows by the small recipes, instead of the papers' own.

    Raises:
        UnknownName: there is none of this name, or a row names a recipe, encoder or published row that is none.
        CardError: the card is not as cards must be.
    """
    paths = catalogue.paths(FOLDER)
    if name not in paths:
        raise UnknownName("ablation", name, paths, hint="'stsbench list ablations' lists them")
    card = read_card(paths[name], AblationCard)
    try:
        if bool(card.table) == (card.figure is not None):
            raise CardError("give either 'table' or [figure]")
        lines = list(_of_figure(card, small=small) if card.figure else _of_table(card, small=small))
        for line in lines:
            _check(line, catalogue)
    except CardError as error:
        raise CardError(f"{paths[name]}: {error}") from error
    return Ablation(name, card, card.figure or read_table_card(card.table), lines, small)


def _of_figure(card: AblationCard, *, small: bool) -> Iterator[AblationLine]:
    for row in card.rows:
        yield _line(card, row, AblationLine(row.row, row.published, ""), small=small)


def _of_table(card: AblationCard, *, small: bool) -> Iterator[AblationLine]:
    """The rows of the leaderboard's table, each as the card's row of this name says."""
    table = read_table_card(card.table)
    rows = {row.row: row for row in card.rows}
    printed = [(facts, group.title or group.section) for group in table.groups for facts in row_facts(group)]
    names = [facts.row for facts, _ in printed]
    for name in rows:
        if name not in names:
            raise CardError(f"row '{name}' is none of table '{card.table}'{did_you_mean(name, names)}")
    for facts, group in printed:
        if facts.row not in rows:
            raise CardError(f"no row for '{facts.row}' of table '{card.table}'; give one, or say 'why' there is none")
        empty = AblationLine(facts.label or facts.row, f"{table.paper}/{table.table}/{facts.row}", group)
        yield _line(card, rows[facts.row], empty, small=small)


def _line(card: AblationCard, row: AblationRow, empty: AblationLine, *, small: bool) -> AblationLine:
    if sum(map(bool, (row.recipe, row.encoder, row.why))) > 1:
        raise CardError(f"row '{row.row}': give one of 'recipe', 'encoder' and 'why'")
    why = row.small_why or ("" if row.small else row.why) if small else row.why
    if why:
        return empty._replace(why=why)
    if row.encoder:
        if small and not row.small:
            return empty._replace(why="an encoder of the paper's own, which the small recipes have no other for")
        return empty._replace(encoder=row.small if small else row.encoder)
    recipe = (row.small or card.small) if small else (row.recipe or card.recipe)
    if not recipe:
        raise CardError(f"row '{row.row}': names no {'small ' if small else ''}recipe, and neither does the card")
    if not small:
        return empty._replace(recipe=recipe, replaced=row.set)
    replaced = {**row.set, **card.small_set, **row.small_set}
    return empty._replace(recipe=recipe, replaced={key: value for key, value in replaced.items() if value != ""})


def _check(line: AblationLine, catalogue: Catalogue) -> None:
    """Raise UnknownName for what a line names and nobody knows."""
    if line.published:
        published_row(line.published)
    if line.recipe:
        catalogue.recipe(line.recipe)
    if line.encoder:
        catalogue.encoder(line.encoder.partition("+")[0])


def trials_of(
    ablation: Ablation,
    line: AblationLine,
    catalogue: Catalogue,
    *,
    base: str = "",
    seeds: Sequence[int] = (),
    also: Mapping[str, Any] | None = None,
) -> list[Trial]:
    """The trials that give a line, one a seed; none where it is not trained.

    Args:
        ablation: whose line it is.
        line: the line.
        catalogue: where its recipe is.
        base: what they start from, instead of what the recipe names.
        seeds: default the recipe's own, of a small one the first, else 0.
        also: values that are replaced in every line, whatever the line says.
    """
    if not line.recipe:
        return []
    own = catalogue.recipe(line.recipe).seeds or [0]
    replaced = {**line.replaced, **(also or {})}
    chosen = seeds or (own[:1] if ablation.is_small else own)
    return [Trial(recipe=line.recipe, replaced=replaced, seed=seed, base=base) for seed in chosen]
