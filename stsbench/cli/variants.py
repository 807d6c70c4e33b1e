"""Variants of an encoder's embeddings: the specs that a run scores, and their table and figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from stsbench.bench.protocols import format_protocol
from stsbench.cli.option_values import parse_pairs
from stsbench.cli.printing import format_points, print_paragraph, print_text, write_or_print
from stsbench.cli.scores import print_missing_columns
from stsbench.cli.tables import print_rows
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import StsbenchError, look_up
from stsbench.core.names import split_all_params, split_names
from stsbench.encoders.fitted import VARIANT_KEYS, variant_specs
from stsbench.encoders.named import variant_name
from stsbench.numbers.similarity import EMBEDDING_TYPES, FLOAT_TYPE
from stsbench.plots.draw import LinePoint, draw_lines
from stsbench.results.record import Result, protocol_key
from stsbench.significance.means import compute_differences_from

VARIANT_COLUMNS = ("embeddings", "dimensions", "bytes", "score", "difference", "95% interval")
GRID_KEYS = ("dimensions", "embeddings")
SeedsByTask = dict[str, list[Result]]
"""The results of one variant on each task, one per seed."""


class ScoreChange(NamedTuple):
    """The difference of a variant's score from that of the largest embedding."""

    difference: float
    low: float
    high: float
    """The bounds of its paired 95% interval."""


class VariantRow(NamedTuple):
    """The score of one variant of an encoder, and how its embeddings are stored."""

    type: str
    dimensions: int | None
    """None if an older result does not have it."""
    bytes: int | None
    """The bytes of one embedding; None if the dimensions are unknown."""
    score: float
    """The mean over tasks of the mean over seeds."""
    change: ScoreChange | None
    """None for the largest embedding itself, and if per-item columns are missing."""


class ExpandedVariants(NamedTuple):
    """The encoders of a run with variants, and the parameters that all of them share."""

    specs: list[str]
    """The names of all variants."""
    params: dict[str, Any]
    """The parameters that are not part of the specs yet."""


def expand_variants(
    specs: Sequence[str], texts: Sequence[str], params: Mapping[str, Any]
) -> ExpandedVariants:
    """Return the variants of encoders: all combinations of the values of ``--variants``.

    A variant of an encoder has its embeddings shortened (``dimensions``) or of another number type
    (``embeddings``).

    Args:
        specs: The encoders, by id, path or name on the Hub.
        texts: The values of the option, each ``key=value,value``, such as ``dimensions=256,128``.
        params: The parameters of ``--set``. ``calibration``, the texts that the ranges of quantised
            embeddings are taken from, becomes part of the variants that need it.

    Returns:
        The names of all variants, and the parameters that all of them share.

    Raises:
        StsbenchError: A text cannot be read, a key is in both options or not in ``GRID_KEYS``
            (``dimensions`` and ``embeddings``), or an encoder is a variant already.
    """
    texts_by_key = parse_pairs(
        "--variants", texts, expected="key=value,value, such as dimensions=256,128,64"
    )
    # The values of each key to combine; those of digits only are numbers.
    grid: dict[str, list[Any]] = {}
    for key, text in texts_by_key.items():
        look_up("key of --variants", key, dict.fromkeys(GRID_KEYS))
        values = split_names(text)
        if not values:
            raise StsbenchError(f"--variants '{key}={text}': give values, such as 256,128")
        grid[key] = [int(value) if value.isdecimal() else value for value in values]
    if repeated_keys := params.keys() & grid.keys():
        raise StsbenchError(
            f"--set and --variants both give '{min(repeated_keys)}'; leave out one of them"
        )
    for spec in specs:
        # Parameters behind an encoder's name, as in minilm+dimensions=256.
        _, own_params = split_all_params(spec)
        # VARIANT_KEYS are "dimensions", "embeddings" and "calibration".
        if variant_keys := own_params.keys() & {*VARIANT_KEYS}:
            raise StsbenchError(
                f"'{spec}' is a variant already ({min(variant_keys)}); "
                "--variants takes the encoder itself"
            )
    calibration = params.get("calibration", "")
    variants = [variant for spec in specs for variant in variant_specs(spec, grid, calibration)]
    shared_params = {key: value for key, value in params.items() if key != "calibration"}
    return ExpandedVariants(variants, shared_params)


def print_variants(results: Sequence[Result], catalogue: Catalogue, plot: Path | None) -> None:
    """Print a table of the variants of each encoder by each protocol, then the results' notes.

    A variant of an encoder has shorter embeddings, or embeddings of another number type. A table
    has a row per variant, with the mean over the tasks that all variants have results on. If
    results lack the per-item columns that intervals are computed from, the command that makes them
    is printed.

    Args:
        results: The results of all variants.
        catalogue: The cards.
        plot: The figure to write, of scores by the bytes of an embedding; None to draw nothing.

    Raises:
        StsbenchError: A figure is requested, but there are several tables, or none.
    """
    # The arguments of _draw_variants for each table. Only one table can be drawn.
    drawings = []
    # By variant and task, the results of all seeds.
    for (encoder, _), seeds_by_variant in _group_by_variant(results).items():
        first_variant = next(iter(seeds_by_variant.values()))
        # Only the tasks that all variants have.
        tasks = [
            task
            for task in first_variant
            if all(task in seeds_by_task for seeds_by_task in seeds_by_variant.values())
        ]
        if not tasks:
            continue
        rows = _make_rows(
            {
                variant: [seeds_by_task[task] for task in tasks]
                for variant, seeds_by_task in seeds_by_variant.items()
            }
        )
        # All results of the group have the same protocol.
        protocol = first_variant[tasks[0]][0].protocol
        label = f"protocol {format_protocol(tasks[0], protocol, catalogue)}"
        if protocol.get("similarity"):
            label += f", similarity {protocol['similarity']}"
        score_label = tasks[0] if len(tasks) == 1 else f"mean of {len(tasks)} tasks"
        print_text(f"{encoder}: {score_label}, {label}\n")
        _print_variant_rows(rows, tasks)
        drawings.append((rows, f"score × 100, {score_label}", f"{encoder}, {label}"))
    print_missing_columns(results, need="intervals need")
    print_paragraph(*dict.fromkeys(note for result in results for note in result.notes))
    if plot is not None:
        if len(drawings) > 1:
            raise StsbenchError(
                f"--plot draws one encoder under one protocol, here are {len(drawings)} tables"
            )
        if not drawings:
            raise StsbenchError("--plot has nothing to draw: no task is scored for all variants")
        write_or_print(_draw_variants(*drawings[0]), plot)


def _group_by_variant(
    results: Sequence[Result],
) -> dict[tuple[str, str], dict[str, SeedsByTask]]:
    """Group results by encoder and protocol, then by variant of the encoder, then by task.

    A variant's name is the encoder's with parameters for the size or type of its embeddings, as in
    ``minilm+dimensions=256``.

    Args:
        results: The results of all variants.

    Returns:
        Three dicts within each other. The keys of the first are pairs: the encoder's name without
        these parameters, and the protocol as text. Those of the second are the full names of the
        variants, those of the third the tasks. The values are lists of results, one per seed.
    """
    groups: dict[tuple[str, str], dict[str, SeedsByTask]] = {}
    for result in results:
        stem, params = split_all_params(result.encoder)
        # VARIANT_KEYS are "dimensions", "embeddings" and "calibration".
        own_params = {key: value for key, value in params.items() if key not in VARIANT_KEYS}
        group_key = variant_name(stem, own_params), protocol_key(result.protocol)
        seeds_by_variant = groups.setdefault(group_key, {})
        seeds_by_task = seeds_by_variant.setdefault(result.encoder, {})
        seeds_by_task.setdefault(result.task, []).append(result)
    return groups


def _make_rows(results_by_variant: Mapping[str, Sequence[Sequence[Result]]]) -> list[VariantRow]:
    """Return the rows of a table of variants, by number type and from many dimensions to few.

    A variant of an encoder has shorter embeddings, or embeddings of another number type. ``change``
    of a row is its score less that of the largest embedding, and the bounds of the difference's 95%
    interval. ``change`` is None for the largest embedding, and for all rows whose results lack the
    per-item columns that intervals are computed from.

    Args:
        results_by_variant: For each variant a list per task, of results with one per seed. The
            tasks are the same for all variants.
    """
    rows: dict[str, VariantRow] = {}
    for variant, results_by_task in results_by_variant.items():
        _, params = split_all_params(variant)
        embedding_type = str(params.get("embeddings", FLOAT_TYPE))
        n_dimensions = results_by_task[0][0].run.get("dimensions")
        n_bytes = None
        if n_dimensions is not None:
            n_bytes = EMBEDDING_TYPES[embedding_type].bytes(n_dimensions)
        task_means = [fmean(result.score for result in seeds) for seeds in results_by_task]
        rows[variant] = VariantRow(
            embedding_type, n_dimensions, n_bytes, score=fmean(task_means), change=None
        )
    # The name of the variant with the most bytes; of several equally large ones the first.
    largest = max(rows, key=lambda variant: rows[variant].bytes or 0)
    # compute_differences_from needs the variant to compare with as the first. It returns nothing
    # for that one, and for variants without per-item columns.
    largest_first = {largest: results_by_variant[largest], **results_by_variant}
    for variant, difference in compute_differences_from(largest, largest_first).items():
        low, high = difference.interval()
        change = ScoreChange(difference.difference, low, high)
        rows[variant] = rows[variant]._replace(change=change)
    type_order = list(EMBEDDING_TYPES)
    return sorted(
        rows.values(), key=lambda row: (type_order.index(row.type), -(row.dimensions or 0))
    )


def _print_variant_rows(variants: Sequence[VariantRow], tasks: Sequence[str]) -> None:
    """Print a row per embedding type and size, with its difference from the largest embedding.

    The columns of differences are omitted if no row has one. Below the table stand the names of the
    tasks, if there are several, and an explanation of the differences, if there are any.

    Args:
        variants: The variants. ``change`` of each is the difference of its score and the bounds of
            its 95% interval, before they are multiplied by 100; None for the largest embedding,
            and without the per-item columns that intervals are computed from.
        tasks: The names of the tasks over which the scores are means.
    """
    rows = []
    for variant in variants:
        difference = interval = ""
        if variant.change is not None:
            difference, low, high = (f"{100 * number:+.2f}" for number in variant.change)
            interval = f"{low} to {high}"
        rows.append(
            [
                variant.type,
                f"{variant.dimensions or '–'}",
                f"{variant.bytes or '–'}",
                format_points(variant.score),
                difference,
                interval,
            ]
        )
    number_columns = range(1, len(VARIANT_COLUMNS))
    print_rows(VARIANT_COLUMNS, rows, number_columns=number_columns, omit_empty=True)
    print_text("")
    if len(tasks) > 1:
        print_paragraph(f"tasks: {', '.join(tasks)}")
    if any(variant.change for variant in variants):
        print_paragraph(
            "Scores are times 100. difference: from the largest embedding, with its paired 95% "
            "interval."
        )


def _draw_variants(variants: Sequence[VariantRow], score_label: str, title: str) -> Any:  # noqa: ANN401 - matplotlib's
    """Return a figure of scores by the bytes of an embedding, with a line per embedding type.

    A variant's interval is that of its difference from the largest embedding, added to the score of
    the largest embedding: so the figure shows whether the two scores differ.

    Args:
        variants: The scores; variants of unknown size are omitted.
        score_label: The label of the axis of scores.
        title: The title of the figure.
    """
    points = []
    for variant in variants:
        if variant.bytes is None:
            continue
        interval = None
        # change is None for the largest embedding, and without columns to compute intervals from.
        if change := variant.change:
            # The score of the largest embedding.
            largest_score = variant.score - change.difference
            interval = 100 * (largest_score + change.low), 100 * (largest_score + change.high)
        points.append(
            LinePoint(
                series=variant.type,
                size=variant.bytes,
                value=100 * variant.score,
                interval=interval,
            )
        )
    x_label = "bytes of an embedding; — 95% interval of the difference from the largest"
    return draw_lines(points, x_label=x_label, y_label=score_label, title=title, x_scale="log2")
