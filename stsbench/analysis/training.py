"""What training changes: ``shift`` and ``sweep``.

Encoders trained on the target's own text against those trained on other text (SG, domain shift); scores over what was replaced of a
recipe, from the cells of a results folder (as ConSERT's figures 5 to 7).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
from stsbench.analysis.mistakes import score_change
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, UnknownName
from stsbench.core.names import split_params
from stsbench.numbers.statistics import mean_and_deviation, spearman
from stsbench.plots.draw import DotPoint, HeatCell, LinePoint, draw_dots, draw_heat, draw_lines

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart


class DomainShift(EncoderAnalysis):
    """The first encoder's score, and what each other one's differs by; runs of several seeds are one encoder."""

    about = (
        "what an encoder loses that was trained on other text than the first one (SG, domain shift)"
    )
    printed = ("encoders",)

    def measure(self, subject: EncoderOnTask) -> EncoderFindings:
        """Keep the cosines of one encoder, and what it was trained on."""
        run = subject.known.run
        trained = {
            "text": run.card.data.corpus if run is not None else None,
            "overlap": subject.known.overlap_with(subject.task.name),
        }
        return EncoderFindings({}, (subject.known.name, trained, subject.cosines, subject.pairs()))

    def compare_encoders(self, kept: Mapping[str, Any]) -> Tables:
        """The differences from the first encoder, paired over the same items."""
        groups: dict[str, list[Any]] = {}
        for name, *rest in kept.values():
            groups.setdefault(name, []).append(rest)
        if len(groups) < 2:
            raise DataError(
                "shift compares encoders: name that trained on the target's text, then others"
            )
        split = next(iter(kept.values()))[3]
        cosines = {name: np.array([one[1] for one in mine]) for name, mine in groups.items()}
        first = next(iter(cosines))
        rows = []
        for name, mine in cosines.items():
            scores = mean_and_deviation([spearman(row, split.gold) for row in mine])
            change = score_change(cosines[first], mine, split) if name != first else None
            row = {"encoder": name, **groups[name][0][0], "seeds": len(mine), "score": scores.mean}
            numbers = (None,) * 3 if change is None else (change.difference, *change.interval())
            ends = dict(zip(("change", "low", "high"), numbers, strict=True))
            rows.append({**row, "deviation": scores.deviation, **ends})
        return {"encoders": rows}

    def draw(self, tables: Tables, title: str) -> Chart:
        """The differences from the first encoder."""
        from stsbench.plots.labels import drawn_name

        first, *others = tables["encoders"]
        dots = []
        for row in others:
            label = row["encoder"] + (f", trained on {row['text']}" if row["text"] else "")
            dots.append(
                DotPoint.difference(
                    label, "", *(100 * row[key] for key in ("change", "low", "high"))
                )
            )
        text = f", trained on {first['text']}," if first["text"] else ""
        what = f"score × 100 less that of {drawn_name(first['encoder'])}{text}\nwith its 95% interval; ○ it may be 0"
        return draw_dots(dots, x_label=what, title=title, has_zero_line=True)


Replaced = tuple[tuple[str, Any], ...]
"""What was replaced of a recipe, by key."""


@dataclass(frozen=True)
class SweepCells(Analysis):
    """Scores of ``recipe+key=value`` over one key, by default the only one; mean and deviation over seeds; nothing is embedded."""

    about = "score over a setting of a recipe, from the results of recipe+key=value; mean and deviation over seeds"
    printed = ("points", "grid")
    reads_results = True

    by: str = ""

    def tables(self, bed: AnalysisContext) -> Tables:
        """Gather the scores: points by one key, and a grid by two keys or by the two values of one key."""
        points: list[PlainRow] = []
        grid: list[PlainRow] = []
        results = bed.results()
        for name in bed.plan.encoders:
            cells: dict[Replaced, list[float]] = {}
            for result in results:
                stem, replaced = list(split_params(result.encoder))[-1]
                if stem == name:
                    cells.setdefault(tuple(sorted(replaced.items(), key=str)), []).append(
                        result.score
                    )
            if not any(cells):
                raise DataError(
                    f"there are no results of '{name}' with values replaced for {bed.planned.name}, as {name}+temperature=0.1; "
                    "'stsbench train --set' and 'stsbench run' make them"
                )
            shared, cells = _shared(cells)
            recipe = "+".join([name, *(f"{key}={value}" for key, value in shared)])
            keys = dict.fromkeys(key for changes in cells for key, _ in changes)
            own = {
                key: value
                for key in keys
                if (value := recipe_value(name, key, bed.plan.catalogue)) is not None
            }
            for changes, scores in cells.items():
                mean, deviation = mean_and_deviation(scores)
                facts = {"seeds": len(scores), "score": mean, "deviation": deviation}
                for key in keys:
                    # The recipe itself has its own value; else nothing but this key is replaced, by one value.
                    is_alone = [one for one, _ in changes] == [key] if changes else key in own
                    value = changes[0][1] if changes else own.get(key)
                    if is_alone and not isinstance(value, list | tuple):
                        points.append({"recipe": recipe, "key": key, "value": value, **facts})
                if place := _place(changes):
                    grid.append({"recipe": recipe, **place, **facts})
        return {"points": sorted(points, key=_order), "grid": grid}

    def draw(self, tables: Tables, title: str) -> Chart:
        """A line over a number, dots over words, a heat map over two."""
        keys = list(
            dict.fromkeys(row["key"] for name in ("points", "grid") for row in tables[name])
        )
        if self.by and self.by not in keys:
            raise UnknownName("key of the sweep", self.by, keys)
        if len(keys) > 1 and not self.by:
            raise DataError(f"the results vary {' and '.join(keys)}; draw one: --set by={keys[0]}")
        by = self.by or keys[0]
        grid = [row for row in tables["grid"] if row["key"] == by]
        points = [row for row in tables["points"] if row["key"] == by]
        if grid:
            first, _, second = by.partition(" x ")
            cells = [
                HeatCell(row["row"], row["column"], 100 * row["score"], row["recipe"])
                for row in grid
            ]
            values = "score × 100, mean over seeds"
            return draw_heat(
                cells, row_label=first, column_label=second or by, value_label=values, title=title
            )
        if all(_is_number(row["value"]) for row in points):
            sizes = [row["value"] for row in points]
            wide = min(sizes) > 0 and max(sizes) > 20 * min(sizes)
            line = [
                LinePoint(row["recipe"], row["value"], 100 * row["score"], _ends(row))
                for row in points
            ]
            return draw_lines(
                line, x_label=by, y_label=WHAT, title=title, x_scale="log10" if wide else "linear"
            )
        dots = [
            DotPoint(f"{by} = {row['value']}", row["recipe"], 100 * row["score"], _ends(row))
            for row in points
        ]
        return draw_dots(dots, x_label=WHAT, title=title)


def _shared(cells: Mapping[Replaced, list[float]]) -> tuple[Replaced, dict[Replaced, list[float]]]:
    """What all cells have replaced alike, as a sweep's ``[set]``; and the cells by what is replaced beside it."""
    first, *others = cells
    shared = tuple(one for one in first if others and all(one in other for other in others))
    return shared, {
        tuple(one for one in changes if one not in shared): scores
        for changes, scores in cells.items()
    }


def recipe_value(name: str, key: str, catalogue: Catalogue) -> Any:  # noqa: ANN401 - any value of a recipe
    """What a recipe's own card says for a key of ``--set``; None where it says nothing, or there is no card."""
    if name not in catalogue.paths("trainers"):
        return None
    card: Mapping[str, Any] = msgspec.to_builtins(catalogue.recipe(name))
    part, _, last = key.rpartition(".")
    places = [part] if part else ["params", "training", "student", "data", "selection"]
    return next((card[place][last] for place in places if last in card.get(place, {})), None)


def _order(row: PlainRow) -> tuple[Any, ...]:
    value = row["value"]
    return (
        row["recipe"],
        row["key"],
        not _is_number(value),
        value if _is_number(value) else str(value),
    )


def _place(changes: Replaced) -> PlainRow | None:
    """The row and the column of a cell: of two keys, or of a key with two values, as a pair of augmentations."""
    if len(changes) == 2:
        (first, row), (second, column) = changes
        return {"key": f"{first} x {second}", "row": str(row), "column": str(column)}
    values = changes[0][1] if len(changes) == 1 else ()
    if isinstance(values, list | tuple) and len(values) == 2:
        return {"key": changes[0][0], "row": str(values[0]), "column": str(values[1])}
    return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _ends(row: PlainRow) -> tuple[float, float] | None:
    if row["deviation"] is None:
        return None
    return 100 * (row["score"] - row["deviation"]), 100 * (row["score"] + row["deviation"])


WHAT = "score × 100, mean and deviation over seeds"
