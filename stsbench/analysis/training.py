"""The effects of training: ``shift`` and ``sweep``.

Encoders trained on the target's own text against those trained on other text (SG, domain shift);
scores over the replaced parameters of a recipe, from the cells of a results folder (as ConSERT's
figures 5 to 7).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from stsbench.analysis.context import (
    Analysis,
    AnalysisContext,
    EncoderAnalysis,
    EncoderFindings,
    EncoderOnTask,
    PlainRow,
    Tables,
)
from stsbench.analysis.robustness import score_change
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, UnknownName
from stsbench.core.grouping import group_by
from stsbench.core.names import split_all_params
from stsbench.data.splits import PairSplit
from stsbench.numbers.statistics import Float64Array, mean_and_deviation, spearman
from stsbench.plots.draw import DotPoint, LinePoint, draw_dots, draw_lines
from stsbench.plots.planes import HeatCell, draw_heat
from stsbench.results.record import Result

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart


class _ShiftMeasurement(NamedTuple):
    """The cosines of one encoder, with one of its seeds, and facts of its training."""

    name: str
    """The encoder's name without a seed."""
    training: PlainRow
    """The training text, and its overlap with the task."""
    cosines: Float64Array
    """The cosine of each pair, (n,)."""
    pairs: PairSplit


class DomainShift(EncoderAnalysis):
    """The first encoder's score, and the differences of the other encoders' scores from it.

    Runs of several seeds are one encoder.
    """

    about = (
        "what an encoder loses that was trained on other text than the first one (SG, domain shift)"
    )
    printed = ("encoders",)
    score_columns = {"encoders": ("score", "deviation", "change", "low", "high")}

    def measure(self, subject: EncoderOnTask) -> EncoderFindings:
        """Measure the cosines of one encoder, and read its training text, for the comparison."""
        run = subject.named_encoder.run
        training = {
            "text": run.card.data.corpus if run is not None else None,
            "overlap": subject.named_encoder.overlap_with(subject.task.name),
        }
        measurement = _ShiftMeasurement(
            subject.named_encoder.name, training, subject.cosines, subject.pairs()
        )
        return EncoderFindings(tables={}, measurement=measurement)

    def compare_encoders(self, measurements: Mapping[str, _ShiftMeasurement]) -> Tables:
        """Compute the differences from the first encoder, paired over the same items.

        Args:
            measurements: By encoder, the cosines of the same pairs; seeds of one recipe are
                separate encoders here, and become one in the table.

        Raises:
            DataError: There is only one encoder.
        """
        runs_by_name = group_by(measurements.values(), lambda measurement: measurement.name)
        if len(runs_by_name) < 2:
            raise DataError(
                "shift compares encoders: name that trained on the target's text, then others"
            )
        pairs = next(iter(measurements.values())).pairs
        cosines_by_name = {
            name: np.array([run.cosines for run in runs]) for name, runs in runs_by_name.items()
        }
        first = next(iter(cosines_by_name))
        rows = []
        for name, cosines in cosines_by_name.items():
            scores = mean_and_deviation([spearman(row, pairs.gold) for row in cosines])
            row = {
                "encoder": name,
                **runs_by_name[name][0].training,
                "seeds": len(cosines),
                "score": scores.mean,
                "deviation": scores.deviation,
                "change": None,
                "low": None,
                "high": None,
            }
            if name != first:
                change = score_change(cosines_by_name[first], cosines, pairs)
                row["change"] = change.difference
                row["low"], row["high"] = change.interval()
            rows.append(row)
        return {"encoders": rows}

    def draw(self, tables: Tables, title: str) -> Chart:
        """Draw the differences from the first encoder.

        Args:
            tables: ``encoders``, the first encoder in the first row.
            title: The title of the picture.
        """
        from stsbench.plots.labels import printable_name

        first, *further = tables["encoders"]
        dots = []
        for row in further:
            label = row["encoder"] + (f", trained on {row['text']}" if row["text"] else "")
            numbers = (100 * row[key] for key in ("change", "low", "high"))
            dots.append(DotPoint.difference(label, "", *numbers))
        training_text = f", trained on {first['text']}," if first["text"] else ""
        x_label = (
            f"score × 100 less that of {printable_name(first['encoder'])}{training_text}\n"
            "with its 95% interval; ○ it may be 0"
        )
        return draw_dots(dots, x_label=x_label, title=title, has_zero_line=True)


Replacements = tuple[tuple[str, Any], ...]
"""The replaced parameters of a recipe: their keys and values."""


@dataclass(frozen=True)
class SweepCells(Analysis):
    """Scores of ``recipe+key=value`` over one key, with mean and deviation over seeds.

    ``by`` is the key to draw, by default the only one. Nothing is embedded.
    """

    about = (
        "score over a setting of a recipe, from the results of recipe+key=value; "
        "mean and deviation over seeds"
    )
    printed = ("points", "grid")
    score_columns = dict.fromkeys(printed, ("score", "deviation"))
    reads_results = True

    by: str = ""

    def tables(self, context: AnalysisContext) -> Tables:
        """Collect the scores of each recipe.

        Returns:
            ``points``, the scores by one key; and ``grid``, the scores by two keys or by the two
            values of one key.

        Raises:
            DataError: There are no results of a recipe with replaced parameters.
        """
        points: list[PlainRow] = []
        grid: list[PlainRow] = []
        results = context.results()
        for name in context.plan.encoders:
            scores_by_replacements = _group_scores(results, name)
            has_replaced_values = any(
                len(replacements) > 0 for replacements in scores_by_replacements
            )
            if not has_replaced_values:
                raise DataError(
                    f"there are no results of '{name}' with values replaced for "
                    f"{context.planned_task.name}, as {name}+temperature=0.1",
                    hint="training with `params` and scoring make them",
                )
            recipe_points, recipe_grid = _tabulate(
                name, scores_by_replacements, context.plan.catalogue
            )
            points += recipe_points
            grid += recipe_grid
        return {"points": sorted(points, key=_sort_key), "grid": grid}

    def draw(self, tables: Tables, title: str) -> Chart:
        """Draw a line over a number, dots over words, or a heat map over two keys or values.

        Args:
            tables: ``points`` and ``grid``, as :meth:`tables` returns them.
            title: The title of the picture.

        Raises:
            UnknownName: ``by`` is no key of the results.
            DataError: The results have several keys, and ``by`` is empty.
        """
        keys = list(
            dict.fromkeys(row["key"] for name in ("points", "grid") for row in tables[name])
        )
        if self.by and self.by not in keys:
            raise UnknownName("key of the sweep", self.by, keys)
        if len(keys) > 1 and not self.by:
            raise DataError(
                f"the results vary {' and '.join(keys)}", hint=f"draw one: `params=by={keys[0]}`"
            )
        by = self.by or keys[0]
        grid = [row for row in tables["grid"] if row["key"] == by]
        if grid:
            return _draw_grid(grid, by, title)
        points = [row for row in tables["points"] if row["key"] == by]
        if all(_is_number(row["value"]) for row in points):
            return _draw_line(points, by, title)
        dots = [
            DotPoint(
                group=f"{by} = {row['value']}",
                series=row["recipe"],
                value=100 * row["score"],
                interval=_deviation_bounds(row),
            )
            for row in points
        ]
        return draw_dots(dots, x_label=MEAN_SCORE_LABEL, title=title)


def _group_scores(results: Sequence[Result], name: str) -> dict[Replacements, list[float]]:
    """Return the scores of a recipe, one per seed, by the replaced parameters.

    Results of other recipes are left out.

    Args:
        results: Results of one task, of any encoders.
        name: The recipe.
    """
    scores_by_replacements: dict[Replacements, list[float]] = {}
    for result in results:
        # The last way to split the name has all replaced parameters apart from the recipe.
        recipe, params = split_all_params(result.encoder)
        if recipe == name:
            replacements = tuple(sorted(params.items(), key=str))
            scores_by_replacements.setdefault(replacements, []).append(result.score)
    return scores_by_replacements


def _tabulate(
    name: str, scores_by_replacements: Mapping[Replacements, list[float]], catalogue: Catalogue
) -> tuple[list[PlainRow], list[PlainRow]]:
    """Return the points and the grid of one recipe; scores are means over seeds, not times 100.

    Args:
        name: The recipe.
        scores_by_replacements: Its scores, one per seed, by the parameters that were replaced.
        catalogue: Has the recipe's card, for the values of parameters that were not replaced.

    Returns:
        Points, the scores by the value of one key; and the grid, the scores by two keys or by the
        two values of one key.
    """
    shared, scores_by_varied = _factor_out_shared(scores_by_replacements)
    recipe = "+".join([name, *(f"{key}={value}" for key, value in shared)])
    keys = dict.fromkeys(key for replacements in scores_by_varied for key, _ in replacements)
    recipe_values = {}
    for key in keys:
        value = recipe_value(name, key, catalogue)
        if value is not None:
            recipe_values[key] = value
    points: list[PlainRow] = []
    grid: list[PlainRow] = []
    for replacements, scores in scores_by_varied.items():
        mean, deviation = mean_and_deviation(scores)
        numbers = {"seeds": len(scores), "score": mean, "deviation": deviation}
        # The values of keys by which these scores are points.
        values: dict[str, Any] = {}
        if not replacements:
            # The recipe itself is a point of every key, by its own value of it.
            values = recipe_values
        elif len(replacements) == 1:
            values = dict(replacements)
        for key in keys:
            if key in values and not isinstance(values[key], list | tuple):
                points.append({"recipe": recipe, "key": key, "value": values[key], **numbers})
        if position := _grid_position(replacements):
            grid.append({"recipe": recipe, **position, **numbers})
    return points, grid


def _factor_out_shared(
    scores_by_replacements: Mapping[Replacements, list[float]],
) -> tuple[Replacements, dict[Replacements, list[float]]]:
    """Separate the replacements that all variants of a recipe share from those that vary.

    The section ``[set]`` of a sweep's card, for example, replaces the same in all its trainings.

    Args:
        scores_by_replacements: The scores of a recipe, one per seed, by the pairs of a key and its
            value that replace the recipe's; at least one variant.

    Returns:
        The shared pairs, none if there is a single variant; and the scores by the remaining pairs.
    """
    first, *others = scores_by_replacements
    shared: Replacements = ()
    # What a single variant replaces is what was varied, so nothing of it is shared.
    if others:
        shared = tuple(
            replacement
            for replacement in first
            if all(replacement in replacements for replacements in others)
        )
    scores_by_remaining = {}
    for replacements, scores in scores_by_replacements.items():
        remaining = tuple(replacement for replacement in replacements if replacement not in shared)
        scores_by_remaining[remaining] = scores
    return shared, scores_by_remaining


def recipe_value(name: str, key: str, catalogue: Catalogue) -> Any:  # noqa: ANN401
    """Return the value of a recipe's own card for a key that users replace.

    Args:
        name: The recipe.
        key: The key, with or without its section, for example ``training.batch_size``.
        catalogue: Has the recipe's card.

    Returns:
        The value; None if the card has none, or there is no card.
    """
    if name not in catalogue.paths("trainers"):
        return None
    card: Mapping[str, Any] = msgspec.to_builtins(catalogue.recipe(name))
    key_section, _, field = key.rpartition(".")
    # A key without a section is that of the first section which has it.
    sections = ["params", "training", "student", "data", "selection"]
    if key_section:
        sections = [key_section]
    for section in sections:
        if field in card.get(section, {}):
            return card[section][field]
    return None


def _sort_key(row: PlainRow) -> tuple[Any, ...]:
    """Return the key that sorts points by recipe, key and value, numbers before texts."""
    value = row["value"]
    sortable = value if _is_number(value) else str(value)
    return row["recipe"], row["key"], not _is_number(value), sortable


def _grid_position(replacements: Replacements) -> PlainRow | None:
    """Return the key, the row and the column of a cell in the grid; None if it is in none.

    The row and the column are the values of two keys, or the two values of one key, for example of
    a pair of augmentations.

    Args:
        replacements: The replaced parameters of the cell, apart from those of all cells.
    """
    if len(replacements) == 2:
        (row_key, row), (column_key, column) = replacements
        return {"key": f"{row_key} x {column_key}", "row": str(row), "column": str(column)}
    if len(replacements) != 1:
        return None
    ((key, values),) = replacements
    if isinstance(values, list | tuple) and len(values) == 2:
        return {"key": key, "row": str(values[0]), "column": str(values[1])}
    return None


def _is_number(value: object) -> bool:
    """Return whether a value is a number, not true or false, which Python counts as numbers."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _draw_grid(rows: Sequence[PlainRow], by: str, title: str) -> Chart:
    """Draw the scores of two keys, or of the two values of one key, as a grid.

    Args:
        rows: The rows of the table ``grid`` with this key.
        by: The key: ``row key x column key``, or one key.
        title: The title of the picture.
    """
    row_key, _, column_key = by.partition(" x ")
    cells = [
        HeatCell(row["row"], column=row["column"], value=100 * row["score"], panel=row["recipe"])
        for row in rows
    ]
    return draw_heat(
        cells,
        row_label=row_key,
        column_label=column_key or by,
        value_label="score × 100, mean over seeds",
        title=title,
    )


def _draw_line(points: Sequence[PlainRow], by: str, title: str) -> Chart:
    """Draw the mean scores over the values of one key, all of them numbers.

    The scale is logarithmic if all are positive and the largest is over 20 times the smallest.

    Args:
        points: The rows of the table ``points`` with this key.
        by: The key.
        title: The title of the picture.
    """
    values = [point["value"] for point in points]
    is_wide = min(values) > 0 and max(values) > 20 * min(values)
    line_points = [
        LinePoint(
            series=point["recipe"],
            size=point["value"],
            value=100 * point["score"],
            interval=_deviation_bounds(point),
        )
        for point in points
    ]
    return draw_lines(
        line_points,
        x_label=by,
        y_label=MEAN_SCORE_LABEL,
        title=title,
        x_scale="log10" if is_wide else "linear",
    )


def _deviation_bounds(row: PlainRow) -> tuple[float, float] | None:
    """Return the score in points less and plus its deviation; None for a single seed."""
    if row["deviation"] is None:
        return None
    return 100 * (row["score"] - row["deviation"]), 100 * (row["score"] + row["deviation"])


MEAN_SCORE_LABEL = "score × 100, mean and deviation over seeds"
