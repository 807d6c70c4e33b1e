"""What a comparison found, in sentences and in the cells of a table; points are scores times 100."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stsbench.compare.comparison import Comparison, Difference
from stsbench.results.comparable import protocol_key

COLUMNS = ["task", "A", "B", "B - A", "95% interval", "p", "Williams", "Holm"]


def sentences(comparison: Comparison) -> list[str]:
    """For each pair of encoders, which differences are significant."""
    corrected = _corrected(comparison)
    return [
        f"{_sentences(first, second, differences)}. {corrected}.{_one_run(differences)}"
        for first, second, differences in comparison.pairs()
    ]


def task_labels(differences: Sequence[Difference]) -> Mapping[tuple[str, str], str]:
    """What each task and split is called in tables and figures: the split is named where a task was scored on several."""
    splits: dict[str, set[str]] = {}
    for d in differences:
        splits.setdefault(d.task, set()).add(d.split)
    return {(task, one): f"{task} ({one})" if len(all_) > 1 else task for task, all_ in splits.items() for one in all_}


def _sentences(first: str, second: str, differences: Sequence[Difference]) -> str:
    tasks, labels = [d for d in differences if not d.is_average], task_labels(differences)
    tested = [d for d in tasks if d.p is not None]
    real, chance = [d for d in tested if d.real], [d for d in tested if not d.real]
    parts = []
    for winner, loser, sign in ((second, first, 1), (first, second, -1)):
        won = [d for d in real if sign * d.difference > 0]
        if won:
            listed = ", ".join(f"{labels[d.task, d.split]} ({_signed(100 * d.difference * sign, 2)})" for d in won)
            count = f"{len(won)} of {_count(len(tasks), 'task')}: " if len(tasks) > 1 else ""
            parts.append(f"{winner} is better than {loser} on {count}{listed}")
    if chance:
        parts.append(_chance(first, second, chance, len(real)))
    untested = [labels[d.task, d.split] for d in tasks if d.p is None]
    if untested:
        parts.append(f"No paired test is known for {', '.join(untested)}")
    parts += [_mean(d) for d in differences if d.is_average and d.p is not None]
    return ". ".join(parts)


def _corrected(comparison: Comparison) -> str:
    """The level, and over which tests Holm's correction was taken."""
    tested = [d for d in comparison.differences if d.p is not None]
    tasks, means = ([d for d in tested if d.is_average is average] for average in (False, True))
    over = []
    if tasks:
        pairs = _count(len({(d.first, d.second) for d in tasks}), "pair")
        each = _count(len({(d.task, d.split, protocol_key(d.protocol)) for d in tasks}), "task")
        over.append(f"{_count(len(tasks), 'test')} ({pairs} of encoders, {each})")
    if means:
        over.append(f"{_count(len(means), 'test')} of means")
    level = f"Level {comparison.level:g}"
    return f"{level}; Holm's correction over {' and, by itself, over '.join(over)}" if over else level


def _one_run(differences: Sequence[Difference]) -> str:
    once = list(dict.fromkeys(name for d in differences for name in d.one_run))
    if not once:
        return ""
    return f" {' and '.join(once)}: one training seed, so this says nothing of the recipe."


def _chance(first: str, second: str, chance: Sequence[Difference], real: int) -> str:
    if real:
        return f"No significant difference on the other {_count(len(chance), 'task')}"
    where = chance[0].task if len(chance) == 1 else f"any of {len(chance)} tasks"
    smallest = min(d.p_corrected if d.p_corrected is not None else d.p for d in chance if d.p is not None)
    at = "p" if len(chance) == 1 else "lowest p"
    return f"No significant difference between {first} and {second} on {where} ({at} {p_is(smallest)})"


def _mean(mean: Difference) -> str:
    better = mean.second if mean.difference > 0 else mean.first
    size, p = f"{100 * abs(mean.difference):.2f} points", p_is(mean.p if mean.p_corrected is None else mean.p_corrected)
    if mean.real:
        return f"{better} is better by {size} in the {mean.task} tasks (p {p})"
    return f"No significant difference in the {mean.task} tasks: {size} (p {p})"


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count != 1 else ''}"


def notes_below(comparison: Comparison) -> list[str]:
    """What the columns mean, and what was left out."""
    independent = comparison.dependence == "none"
    return [
        *comparison.notes,
        f"Scores are times 100; differences are of unrounded scores. Items {'are taken as independent' if independent else 'that share a sentence are not independent'}.",
        "p: Student's t; of one task and one seed a side, whose items share no sentence, a paired permutation test (McNemar's of right or wrong).",
        "Holm: p corrected for all comparisons above; docs/statistics.md says more.",
    ]


def columns(differences: Sequence[Difference]) -> tuple[list[str], list[list[str]]]:
    """The heads and rows of a table, one row a difference; a column in which nothing is known is left out."""
    rows = _rows(differences)
    known = [at for at in range(len(COLUMNS)) if any(row[at] != "–" for row in rows)]
    return [COLUMNS[at] for at in known], [[row[at] for at in known] for row in rows]


def _rows(differences: Sequence[Difference]) -> list[list[str]]:
    labels = task_labels(differences)
    return [
        [
            labels[d.task, d.split],
            *(_score(d, side) for side in (0, 1)),
            _signed(100 * d.difference, 2),
            " to ".join(map(_end, d.interval)) if d.interval else "–",
            *(p_text(p) for p in (d.p, d.p_williams, d.p_corrected)),
        ]
        for d in differences
    ]


def _end(value: float) -> str:
    """An end of an interval in points; large ones are not known to two decimals."""
    return _signed(100 * value, 1 if abs(value) >= 0.1 else 2)


def _signed(points: float, decimals: int) -> str:
    """A number with its sign; what prints as zero has none."""
    text = f"{points:+.{decimals}f}"
    return text if float(text) else text[1:]


def _score(difference: Difference, side: int) -> str:
    spread = f"±{100 * difference.deviations[side]:.2f}" if difference.deviations else ""
    return f"{100 * difference.scores[side]:.2f}{spread}"


def p_is(p: float | None) -> str:
    """A p-value in a sentence: ``= .051`` or ``< .001``."""
    text = p_text(p)
    return f"< {text[1:]}" if text.startswith("<") else f"= {text}"


def p_text(p: float | None) -> str:
    """A p-value in a table: three decimals, or that it is below them."""
    return "–" if p is None else "<.001" if p < 0.001 else f"{p:.3f}".removeprefix("0")
