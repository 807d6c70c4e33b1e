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
        """Measure the cosines of the task's pairs by one encoder, and read its training text.

        Args:
            subject: The encoder, with the task; one seed of a recipe is one encoder.

        Returns:
            No tables. The measurement, for comparisons, is the encoder's name without a seed, the
            name of its training text, how that overlaps with the task (``none``, ``unknown``,
            ``text`` or, with gold scores, ``gold``), the cosine of each pair, and the pairs.
        """
        # The record of its training; None for an encoder that was not trained here.
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
        """Compute how much the score of each encoder differs from that of the first one.

        Scores are means over the seeds of an encoder. Differences are paired over the same pairs of
        sentences.

        Args:
            measurements: Name with seed -> the cosine of each pair and facts of the training. The
                seeds of a recipe have the same ``name`` and become one row of the table.

        Returns:
            The table ``encoders``: Spearman's correlation of each with its deviation over seeds
            (None for one seed), and the ``change`` from the first encoder with the bounds of its
            95% interval; None in the row of the first one.

        Raises:
            DataError: There is only one encoder.
        """
        # Each list has one measurement a seed.
        measurements_by_name = group_by(measurements.values(), lambda measurement: measurement.name)
        if len(measurements_by_name) < 2:
            raise DataError(
                "shift compares encoders: name that trained on the target's text, then others"
            )
        # All encoders have the same pairs.
        pairs = next(iter(measurements.values())).pairs
        # (seeds, n) each.
        cosines_by_name = {
            name: np.array([measurement.cosines for measurement in seed_measurements])
            for name, seed_measurements in measurements_by_name.items()
        }
        first_name = next(iter(cosines_by_name))
        rows = []
        for name, cosines in cosines_by_name.items():
            scores = mean_and_deviation(
                [spearman(seed_cosines, pairs.gold) for seed_cosines in cosines]
            )
            row = {
                "encoder": name,
                **measurements_by_name[name][0].training,
                "seeds": len(cosines),
                "score": scores.mean,
                "deviation": scores.deviation,
                "change": None,
                "low": None,
                "high": None,
            }
            if name != first_name:
                change = score_change(cosines_by_name[first_name], cosines, pairs)
                row["change"] = change.difference
                row["low"], row["high"] = change.interval()
            rows.append(row)
        return {"encoders": rows}

    def draw(self, tables: Tables, title: str) -> Chart:
        """Draw how much the score of each encoder differs from that of the first one.

        Args:
            tables: ``encoders`` has a row for each encoder, that of the first one first: its
                training ``text`` or None, the difference ``change``, and the bounds of its 95%
                interval.
            title: The title of the picture.
        """
        from stsbench.plots.labels import printable_name

        first_row, *further_rows = tables["encoders"]
        dots = []
        for row in further_rows:
            label = row["encoder"] + (f", trained on {row['text']}" if row["text"] else "")
            change_and_bounds = (100 * row[key] for key in ("change", "low", "high"))
            # One dot a label, so that dots need no names of series; a ring if the interval contains
            # 0.
            dots.append(DotPoint.difference(label, "", *change_and_bounds))
        training_text = f", trained on {first_row['text']}," if first_row["text"] else ""
        x_label = (
            f"score × 100 less that of {printable_name(first_row['encoder'])}{training_text}\n"
            "with its 95% interval; ○ it may be 0"
        )
        return draw_dots(dots, x_label=x_label, title=title, has_zero_line=True)


Replacements = tuple[tuple[str, Any], ...]
"""The replaced parameters of a recipe: their keys and values."""


@dataclass(frozen=True)
class SweepCells(Analysis):
    """Scores of ``recipe+parameter=value`` over one key, with mean and deviation over seeds.

    ``by`` is the key to draw, by default the only one. Nothing is embedded.
    """

    about = (
        "score over a setting of a recipe, from the results of recipe+parameter=value; "
        "mean and deviation over seeds"
    )
    printed = ("points", "grid")
    score_columns = dict.fromkeys(printed, ("score", "deviation"))
    reads_results = True

    by: str = ""

    def tables(self, context: AnalysisContext) -> Tables:
        """Collect the scores of each recipe whose parameters were replaced, as in ``recipe+lr=1``.

        Args:
            context: Has the names of the recipes, and the results of a folder.

        Returns:
            Rows of mean scores over seeds. ``points``: by the value of one replaced parameter,
            sorted by recipe, parameter and value. ``grid``: by the values of two replaced
            parameters, or by both values of one whose value is a pair.

        Raises:
            DataError: There are no results of a recipe with replaced parameters, or only results
                of one setting.
        """
        points: list[PlainRow] = []
        grid: list[PlainRow] = []
        results = context.results()
        for name in context.plan.encoders:
            # Replacements, (parameter, value) pairs -> the scores of all seeds.
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
            if not recipe_points and not recipe_grid:
                raise DataError(
                    f"the results of '{name}' for {context.planned_task.name} are of one setting; "
                    "there is nothing to compare it with",
                    hint="train and score another one first",
                )
            points += recipe_points
            grid += recipe_grid
        return {"points": sorted(points, key=_sort_key), "grid": grid}

    def draw(self, tables: Tables, title: str) -> Chart:
        """Draw the scores over the values of one replaced parameter, the key.

        ``self.by`` is the key; if it is empty, the results must have a single one.

        * Two keys (``a x b``), or a key with values that are pairs, are drawn as a heat map.
        * A key whose values are numbers is drawn as a line.
        * Any other key is drawn as dots.

        Args:
            tables: ``points`` has a row for each recipe, key and value, ``grid`` for each recipe,
                key and two values; each with the mean and the deviation of the score over seeds.
            title: The title of the picture.

        Raises:
            UnknownName: ``by`` is no key of the results.
            DataError: The results have several keys, and ``by`` is empty.
        """
        all_rows = [*tables["points"], *tables["grid"]]
        keys = list(dict.fromkeys(row["key"] for row in all_rows))
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
                # The score less and plus its deviation; None for a single seed.
                interval=_deviation_bounds(row),
            )
            for row in points
        ]
        return draw_dots(dots, x_label=MEAN_SCORE_LABEL, title=title)


def _group_scores(results: Sequence[Result], name: str) -> dict[Replacements, list[float]]:
    """Collect the scores of one recipe, with any of its parameters replaced.

    Results of other recipes are left out.

    Args:
        results: Results of one task, of any encoders.
        name: The recipe.

    Returns:
        Replacements, sorted (parameter, value) pairs -> the scores, one per seed. The recipe itself
        has no replacements, ``()``.
    """
    scores_by_replacements: dict[Replacements, list[float]] = {}
    for result in results:
        # The name of an encoder in results has no seed in it.
        # "recipe+a=1+b=2" is split into the recipe and {"a": 1, "b": 2}.
        recipe, params = split_all_params(result.encoder)
        if recipe == name:
            # Lists, such as a pair of augmentations, become tuples, which can be keys of a dict.
            replacements = tuple(
                sorted(((key, _to_tuple(value)) for key, value in params.items()), key=str)
            )
            scores_by_replacements.setdefault(replacements, []).append(result.score)
    return scores_by_replacements


def _to_tuple(value: object) -> object:
    """Return a list, and all lists in it, as tuples; any other value as it is."""
    return tuple(map(_to_tuple, value)) if isinstance(value, list) else value


def _tabulate(
    name: str, scores_by_replacements: Mapping[Replacements, list[float]], catalogue: Catalogue
) -> tuple[list[PlainRow], list[PlainRow]]:
    """Put the scores of one recipe into rows for a line (points) and for a heat map (grid).

    Args:
        name: The recipe.
        scores_by_replacements: Replacements, (key, value) pairs of parameters -> the scores, one
            per seed.
        catalogue: Has the recipe's card, for the values of parameters that were not replaced.

    Returns:
        Two lists of rows with the mean score over seeds, not times 100, and its deviation, None for
        one seed: the points, by the value of one key; and the grid, by the values of two keys or by
        both values of a key whose value is a pair.
    """
    # Replacements that all variants share belong to the name of the recipe; the others vary.
    shared, scores_by_varied = _factor_out_shared(scores_by_replacements)
    recipe = "+".join([name, *(f"{key}={value}" for key, value in shared)])
    keys = dict.fromkeys(key for replacements in scores_by_varied for key, _ in replacements)
    # The values of the recipe's own card.
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
            # A key with several values has no place on a line.
            if key in values and not isinstance(values[key], list | tuple):
                points.append({"recipe": recipe, "key": key, "value": values[key], **numbers})
        # The key, row and column in the heat map; None for scores that have no place in it.
        position = _grid_position(replacements)
        if position is not None:
            grid.append({"recipe": recipe, **position, **numbers})
    return points, grid


def _factor_out_shared(
    scores_by_replacements: Mapping[Replacements, list[float]],
) -> tuple[Replacements, dict[Replacements, list[float]]]:
    """Separate the replacements that all variants of a recipe share from those that vary.

    The section ``[set]`` of a sweep's card, for example, replaces the same in all its trainings.

    Args:
        scores_by_replacements: For each variant of a recipe: the (key, value) pairs that replace
            the recipe's own values -> its scores, one per seed. At least one variant.

    Returns:
        The pairs that all variants share, none if there is a single variant; and for each variant
        the remaining pairs -> its scores.
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
    all_sections = ["params", "training", "student", "data", "selection"]
    sections = [key_section] if key_section else all_sections
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
    """Return where the scores with these replaced parameters are in a heat map.

    * With two parameters, the row is the value of the first one and the column that of the second;
      the ``key`` names both, as ``a x b``.
    * With one parameter of two values, as a pair of augmentations, these are the row and the
      column.
    * Else the scores are in no heat map: None.

    Args:
        replacements: (parameter, value) pairs, without those that all variants of the recipe share.

    Returns:
        ``key``, ``row`` and ``column`` -> their texts; or None.
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
    """Draw the scores by two replaced parameters, or by two values of one, as a heat map.

    Args:
        rows: The ``recipe``, its mean ``score`` over seeds, and the two values, ``row`` and
            ``column``.
        by: The names of the parameters, ``row name x column name``, or that of the only one.
        title: The title of the picture.
    """
    row_key, _, column_key = by.partition(" x ")
    cells = [
        HeatCell(
            row=row["row"],
            column=row["column"],
            value=100 * row["score"],
            panel=row["recipe"],
        )
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
    """Draw the mean scores over the values of one replaced parameter, all of them numbers.

    The horizontal axis is logarithmic if all values are positive and the largest is over 20 times
    the smallest.

    Args:
        points: The ``recipe``, the ``value`` of the parameter, and the mean ``score`` over seeds
            with its ``deviation``.
        by: The name of the parameter.
        title: The title of the picture.
    """
    values = [point["value"] for point in points]
    is_wide = min(values) > 0 and max(values) > 20 * min(values)
    line_points = [
        LinePoint(
            series=point["recipe"],
            size=point["value"],
            value=100 * point["score"],
            # The score less and plus its deviation, times 100; None for a single seed.
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
