"""Variants of an encoder's embeddings: the specs that a run scores, and their table and figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from stsbench.bench.protocols import format_protocol
from stsbench.cli import options as opt
from stsbench.cli.printing import (
    emit,
    format_points,
    print_paragraph,
    print_rows,
    print_text,
)
from stsbench.cli.scores import print_missing_columns
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import StsbenchError, look_up
from stsbench.core.names import split_names, split_params
from stsbench.encoders.fitted import VARIANT_KEYS, variant_specs
from stsbench.encoders.named import variant_name
from stsbench.numbers.similarity import EMBEDDING_TYPES, FLOAT_TYPE
from stsbench.plots.draw import LinePoint, draw_lines
from stsbench.results.record import Result, protocol_key
from stsbench.significance.means import compute_differences_from

GRID = ("dimensions", "embeddings")
VARIANT_COLUMNS = ("embeddings", "dimensions", "bytes", "score", "difference", "95% interval")


class VariantRow(NamedTuple):
    """One variant of an encoder: its score, and how its embeddings are kept; None where older results do not say."""

    type: str
    dimensions: int | None
    bytes: int | None
    score: float
    """The mean over tasks of the mean over seeds."""
    change: tuple[float, float, float] | None
    """The difference from the largest embedding, and the ends of its paired interval."""


def chosen_variants(
    names: Sequence[str], given: Sequence[str], params: Mapping[str, Any]
) -> tuple[list[str], dict[str, Any]]:
    """The encoders of a run with variants (``key=value,value`` each), and the parameters that all of them take."""
    lists = opt.parse_pairs("--variants", given, "key=value,value, such as dimensions=256,128,64")
    for key in lists:
        look_up("key of --variants", key, dict.fromkeys(GRID))
    grid: dict[str, list[Any]] = {
        key: [int(part) if part.isdecimal() else part for part in split_names(values)]
        for key, values in lists.items()
    }
    if twice := params.keys() & grid.keys():
        raise StsbenchError(f"--set and --variants both give '{min(twice)}'; leave out one of them")
    for name in names:
        if again := list(split_params(name))[-1][1].keys() & {*VARIANT_KEYS}:
            raise StsbenchError(
                f"'{name}' is a variant already ({min(again)}); --variants takes the encoder itself"
            )
    own = {key: value for key, value in params.items() if key != "calibration"}
    specs = [
        spec for name in names for spec in variant_specs(name, grid, params.get("calibration", ""))
    ]
    return specs, own


def print_variants(results: Sequence[Result], catalogue: Catalogue, plot: Path | None) -> None:
    """Print a table for each encoder and protocol, and draw it where there is one."""
    groups: dict[tuple[str, str], dict[str, dict[str, list[Result]]]] = {}
    for result in results:
        stem, changes = list(split_params(result.encoder))[-1]
        encoder = variant_name(
            stem, {key: value for key, value in changes.items() if key not in VARIANT_KEYS}
        )
        held = groups.setdefault((encoder, protocol_key(result.protocol)), {})
        held.setdefault(result.encoder, {}).setdefault(result.task, []).append(result)
    figures = []
    for (encoder, _), held in groups.items():
        # A task that not every variant has is in no table.
        if not (
            tasks := [
                task
                for task in next(iter(held.values()))
                if all(task in one for one in held.values())
            ]
        ):
            continue
        rows = _variants({name: [mine[task] for task in tasks] for name, mine in held.items()})
        protocol = next(iter(held.values()))[tasks[0]][0].protocol
        similarity = f", similarity {protocol['similarity']}" if protocol.get("similarity") else ""
        how = f"protocol {format_protocol(tasks[0], protocol, catalogue)}{similarity}"
        what = tasks[0] if len(tasks) == 1 else f"mean of {len(tasks)} tasks"
        print_text(f"{encoder}: {what}, {how}\n")
        _print_variants(rows, tasks)
        figures.append(partial(_variants_figure, rows, f"score × 100, {what}", f"{encoder}, {how}"))
    print_missing_columns(results, "intervals need")
    print_paragraph(*dict.fromkeys(note for result in results for note in result.notes))
    if plot is not None:
        if len(figures) > 1:
            raise StsbenchError(
                f"--plot draws one encoder under one protocol, here are {len(figures)} tables"
            )
        emit(figures[0](), plot)


def _variants(cells: Mapping[str, Sequence[Sequence[Result]]]) -> list[VariantRow]:
    types = {
        name: str(list(split_params(name))[-1][1].get("embeddings", FLOAT_TYPE)) for name in cells
    }
    sizes = {name: mine[0][0].run.get("dimensions") for name, mine in cells.items()}
    kept = {
        name: None if d is None else EMBEDDING_TYPES[types[name]].bytes(d)
        for name, d in sizes.items()
    }
    # The first of equals stays first: the encoder's own floats come before what is as large.
    largest = max(cells, key=lambda name: kept[name] or 0)
    found = compute_differences_from(largest, {largest: cells[largest], **cells})
    changes = {name: (one.difference, *one.interval()) for name, one in found.items()}
    scores = {
        name: fmean(fmean(one.score for one in seeds) for seeds in mine)
        for name, mine in cells.items()
    }
    rows = [
        VariantRow(types[name], sizes[name], kept[name], scores[name], changes.get(name))
        for name in cells
    ]
    return sorted(
        rows, key=lambda row: (list(EMBEDDING_TYPES).index(row.type), -(row.dimensions or 0))
    )


def _print_variants(variants: Sequence[VariantRow], tasks: Sequence[str]) -> None:
    rows = []
    for one in variants:
        size = ["–" if number is None else f"{number}" for number in (one.dimensions, one.bytes)]
        difference, low, high = (
            (f"{100 * number:+.2f}" for number in one.change) if one.change else ("", "", "")
        )
        rows.append(
            [one.type, *size, format_points(one.score), difference, low and f"{low} to {high}"]
        )
    print_rows(VARIANT_COLUMNS, rows, right=range(1, 6), sparse=True)
    print_text("")
    if len(tasks) > 1:
        print_paragraph(f"tasks: {', '.join(tasks)}")
    if any(one.change for one in variants):
        print_paragraph(
            "Scores are times 100. difference: from the largest embedding, with its paired 95% interval."
        )


def _variants_figure(variants: Sequence[VariantRow], values: str, title: str) -> Any:  # noqa: ANN401 - matplotlib's
    drawn = []
    for one in variants:
        if one.bytes is not None:
            change, low, high = one.change or (0.0, 0.0, 0.0)
            # Of the difference, around the score: whether two scores differ is what is asked.
            ends = (
                (100 * (one.score - change + low), 100 * (one.score - change + high))
                if one.change
                else None
            )
            drawn.append(LinePoint(one.type, one.bytes, 100 * one.score, ends))
    sizes = "bytes of an embedding; — 95% interval of the difference from the largest"
    return draw_lines(drawn, x_label=sizes, y_label=values, title=title, x_scale="log2")
