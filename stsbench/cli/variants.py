"""``stsbench run --variants``: which variants are meant, and their scores by the bytes of an embedding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stsbench.bench.tasks import protocol_as_asked
from stsbench.cards.catalogue import Catalogue
from stsbench.cards.names import split_names, variants
from stsbench.cli.printing import print_rows, say, say_words
from stsbench.compare.means import differences_from
from stsbench.compare.row_items import RowResults
from stsbench.encoders.fitted.variants import KEYS, variant_specs
from stsbench.encoders.known import variant_name
from stsbench.errors import StsbenchError, choose
from stsbench.files.whole import write_whole
from stsbench.numbers.quantise import FLOAT, TYPES
from stsbench.plots.lines import LinePoint, draw_lines
from stsbench.results.again import command_again, lacking_columns, lacking_said
from stsbench.results.comparable import protocol_key
from stsbench.results.record import Result

GRID = ("dimensions", "embeddings")
COLUMNS = ("embeddings", "dimensions", "bytes", "score", "difference", "95% interval")
NONE = "–"


class VariantRow(NamedTuple):
    """One variant: its results by task, and how its embeddings are kept; None where older results do not say."""

    name: str
    type: str
    dimensions: int | None
    bytes: int | None
    cells: Sequence[Sequence[Result]]

    @property
    def score(self) -> float:
        """The mean over tasks of the mean over seeds."""
        return sum(sum(one.score for one in seeds) / len(seeds) for seeds in self.cells) / len(self.cells)


class VariantTable(NamedTuple):
    """The variants of one encoder under one protocol, the largest embedding first; what each differs from that by."""

    encoder: str
    tasks: Sequence[str]
    protocol: str
    rows: Sequence[VariantRow]
    differences: Mapping[str, tuple[float, tuple[float, float]]]


def chosen_variants(
    names: Sequence[str], given: Sequence[str], params: Mapping[str, Any]
) -> tuple[list[str], dict[str, Any]]:
    """The encoders of a run with variants, and the parameters that all of them take.

    Args:
        names: the encoders.
        given: what ``--variants`` was given, ``key=value,value`` each.
        params: what ``--set`` was given.

    Raises:
        StsbenchError: a list is wrong, or a parameter is given twice.
    """
    grid: dict[str, list[Any]] = {}
    for one in given:
        key, equals, values = one.partition("=")
        parts = split_names(values)
        if not equals or not parts:
            raise StsbenchError(f"--variants '{one}': give key=value,value, such as dimensions=256,128,64")
        choose("key of --variants", key, dict.fromkeys(GRID))
        if key in grid:
            raise StsbenchError(f"--variants '{one}': {key} is given twice; give one list")
        grid[key] = [int(part) if part.isdecimal() else part for part in parts]
    if twice := params.keys() & grid.keys():
        raise StsbenchError(f"--set and --variants both give '{min(twice)}'; leave out one of them")
    for name in names:
        if again := list(variants(name))[-1][1].keys() & {*KEYS}:
            raise StsbenchError(f"'{name}' is a variant already ({min(again)}); --variants takes the encoder itself")
    own = {key: value for key, value in params.items() if key != "calibration"}
    specs = [spec for name in names for spec in variant_specs(name, grid, params.get("calibration", ""))]
    return specs, own


def print_variants(results: Sequence[Result], catalogue: Catalogue, plot: Path | None) -> None:
    """Print a table for each encoder and protocol, and draw it.

    Raises:
        StsbenchError: there are several tables, and one figure; or matplotlib is not installed.
    """
    tables = variant_tables(results, catalogue)
    for one in tables:
        _print(one)
    if lacking := lacking_columns(results):
        say_words(f"{lacking_said(lacking)}, which intervals need; run: {command_again(lacking)}")
    for note in dict.fromkeys(note for result in results for note in result.notes):
        say_words(note)
    if plot is not None:
        if len(tables) > 1:
            raise StsbenchError(f"--plot draws one encoder under one protocol, here are {len(tables)} tables")
        write_whole(plot, _figure(tables[0]).to_bytes(plot.suffix.removeprefix(".")))
        say(f"wrote {plot}")


def variant_tables(results: Sequence[Result], catalogue: Catalogue) -> list[VariantTable]:
    """The tables of a run's results; a task that not every variant has is in none of them."""
    groups: dict[tuple[str, str], dict[str, dict[str, list[Result]]]] = {}
    for result in results:
        stem, changes = list(variants(result.encoder))[-1]
        encoder = variant_name(stem, {key: value for key, value in changes.items() if key not in KEYS})
        held = groups.setdefault((encoder, protocol_key(result.protocol)), {})
        held.setdefault(result.encoder, {}).setdefault(result.task, []).append(result)
    return [
        _table(encoder, held, tasks, catalogue)
        for (encoder, _), held in groups.items()
        if (tasks := [task for task in next(iter(held.values())) if all(task in one for one in held.values())])
    ]


def _table(
    encoder: str, held: Mapping[str, Mapping[str, list[Result]]], tasks: Sequence[str], catalogue: Catalogue
) -> VariantTable:
    rows = [_row(name, [mine[task] for task in tasks]) for name, mine in held.items()]
    # The first of equals stays first: the encoder's own floats come before what is as large.
    largest = max(rows, key=lambda row: row.bytes or 0)
    cells: RowResults[str] = {row.name: row.cells for row in [largest, *(row for row in rows if row is not largest)]}
    found = differences_from(largest.name, cells)
    protocol = protocol_as_asked(tasks[0], rows[0].cells[0][0].protocol, catalogue)
    similarity = rows[0].cells[0][0].protocol.get("similarity")
    said = f"protocol {protocol}" + (f", similarity {similarity}" if similarity else "")
    differences = {name: (one.difference, one.interval()) for name, one in found.items()}
    return VariantTable(encoder, tasks, said, sorted(rows, key=_order), differences)


def _row(name: str, cells: Sequence[Sequence[Result]]) -> VariantRow:
    kept = str(list(variants(name))[-1][1].get("embeddings", FLOAT))
    d = cells[0][0].run.get("dimensions")
    return VariantRow(name, kept, d, None if d is None else TYPES[kept].bytes(d), cells)


def _order(row: VariantRow) -> tuple[int, int]:
    return list(TYPES).index(row.type), -(row.dimensions or 0)


def _print(found: VariantTable) -> None:
    what = found.tasks[0] if len(found.tasks) == 1 else f"mean of {len(found.tasks)} tasks"
    say(f"{found.encoder}: {what}, {found.protocol}\n")
    rows = [_cells(row, found) for row in found.rows]
    shown = [at for at in range(len(COLUMNS)) if at < 4 or found.differences]
    right = range(1, len(shown))
    print_rows([COLUMNS[at] for at in shown], [[row[at] for at in shown] for row in rows], right=right)
    say("")
    if len(found.tasks) > 1:
        say_words(f"tasks: {', '.join(found.tasks)}")
    if found.differences:
        say_words("Scores are times 100. difference: from the largest embedding, with its paired 95% interval.")


def _cells(row: VariantRow, found: VariantTable) -> list[str]:
    size = [NONE if one is None else f"{one}" for one in (row.dimensions, row.bytes)]
    difference, interval = found.differences.get(row.name, (None, (0.0, 0.0)))
    told = ["", ""] if difference is None else [f"{100 * difference:+.2f}", _ends(interval)]
    return [row.type, *size, f"{100 * row.score:.2f}", *told]


def _ends(interval: tuple[float, float]) -> str:
    low, high = interval
    return f"{100 * low:+.2f} to {100 * high:+.2f}"


def _figure(found: VariantTable) -> Any:  # noqa: ANN401 - matplotlib is not imported for it
    points = []
    for row in found.rows:
        if row.bytes is not None:
            own = found.differences.get(row.name)
            # Of the difference, around the score: whether two scores differ is what is asked.
            ends = (
                None
                if own is None
                else (100 * (row.score - own[0] + own[1][0]), 100 * (row.score - own[0] + own[1][1]))
            )
            points.append(LinePoint(row.type, row.bytes, 100 * row.score, ends))
    what = found.tasks[0] if len(found.tasks) == 1 else f"mean of {len(found.tasks)} tasks"
    return draw_lines(
        points,
        sizes="bytes of an embedding; — 95% interval of the difference from the largest",
        values=f"score × 100, {what}",
        title=f"{found.encoder}, {found.protocol}",
        scale="log2",
    )
