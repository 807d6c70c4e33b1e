"""Comparisons as text: sentences on each pair of encoders, notes, and the cells of tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from stsbench.core.wording import format_count
from stsbench.results.signature import Fields, format_each_protocol, protocol_part
from stsbench.significance.comparison_record import Comparison, Difference
from stsbench.significance.differences import MAX_CORRELATION_DIFFERENCE
from stsbench.significance.margins import MarginVerdict
from stsbench.significance.paired import PERMUTATIONS

USUAL_LEVEL = 0.05
MAX_DECIMALS = 6
TRAINING_FIELDS = {"kfold", "base_seed"}
"""Fields of protocols by which a classifier, a regressor or a projection is trained."""
HOLM_P = "Holm p"
"""The name of a p-value after Holm's correction."""
DIFFERENCE_COLUMNS = ["task", "A", "B", "B - A", "95% interval", "p", HOLM_P, "margin"]


def describe_comparison(comparison: Comparison) -> list[str]:
    """Describe for each pair of encoders which differences are significant, one text per pair.

    A text has, in this order: a warning if an encoder has two training seeds; sentences on results,
    on the margin, on the plan and on the correction; a warning if an encoder has a single training
    seed and the other one has not several.

    Args:
        comparison: The differences of the pairs, with the settings of the tests.
    """
    correction = _describe_correction(comparison)
    label = label_tasks(comparison.differences)
    texts = []
    for first, second, differences in comparison.pairs():
        # ``one_run`` names the encoders of the pair that have a single training seed.
        # A difference of one training seed against several (lacks_seeds) has no verdict, and a
        # sentence says so. The warning is for verdicts on encoders with one seed each.
        names_with_one_seed = dict.fromkeys(
            name
            for difference in differences
            if not difference.lacks_seeds
            for name in difference.one_run
        )
        warning = ""
        if names_with_one_seed:
            names = " and ".join(names_with_one_seed)
            warning = f" {names}: one training seed, so this says nothing of the recipe."
        sentences = _warnings_of_two_seeds(first, second, differences)
        sentences += _sentences_on_results(first, second, differences, label, comparison.level)
        if comparison.margin is not None:
            sentences += _sentences_on_margin(first, second, differences, comparison.margin, label)
        if comparison.plan is not None:
            sentences += _sentences_on_plan(differences, comparison.plan, label)
        sentences += correction
        texts.append(f"{'. '.join(sentences)}.{warning}")
    return texts


def _warnings_of_two_seeds(first: str, second: str, differences: Sequence[Difference]) -> list[str]:
    """Return a warning if an encoder of a pair has two training seeds; empty if none has.

    Args:
        first: The name of the first encoder.
        second: The name of the second encoder.
        differences: The differences of the pair; ``training_seeds`` of each is the number of the
            first encoder's training seeds and that of the second's.
    """
    names = [
        name
        for position, name in enumerate((first, second))
        if any(difference.training_seeds[position] == 2 for difference in differences)
    ]
    if not names:
        return []
    return [
        f"Warning: {' and '.join(names)} with two training seeds, by which equal recipes differ "
        "significantly too often; train three or more"
    ]


TaskLabel = Callable[[Difference], str]
"""Returns the label of a difference's task."""


def label_tasks(differences: Sequence[Difference]) -> TaskLabel:
    """Return the function that labels the tasks of these differences in tables and figures.

    A label is the task's name, and in parentheses what distinguishes it from the task's other
    labels: the split, the protocol's name, and the fields in which protocols of one name differ.
    """
    splits_by_task: dict[str, set[str]] = {}
    # By task and split, then by the protocol's name.
    protocols_by_data: dict[tuple[str, str], dict[str, set[Fields]]] = {}
    for difference in differences:
        splits_by_task.setdefault(difference.task, set()).add(difference.split)
        protocols = protocols_by_data.setdefault((difference.task, difference.split), {})
        fields = protocol_part(difference.protocol)
        protocols.setdefault(difference.protocol["name"], set()).add(fields)

    def label(difference: Difference) -> str:
        task, split, protocol = difference.task, difference.split, difference.protocol
        protocols = protocols_by_data[task, split]
        details = [split] if len(splits_by_task[task]) > 1 else []
        if len(protocols) > 1:
            details.append(protocol["name"])
        common_fields = set.intersection(*map(set, protocols[protocol["name"]]))
        details += [
            f"{field}={value}".replace('"', "")
            for field, value in protocol_part(protocol)
            if (field, value) not in common_fields
        ]
        return f"{task} ({', '.join(details)})" if details else task

    return label


def _sentences_on_results(
    first: str, second: str, differences: Sequence[Difference], label: TaskLabel, level: float
) -> list[str]:
    """Return the sentences on which differences of one pair of encoders are significant.

    They name, in this order: the tasks on which each encoder is better, the tasks without a
    significant difference, tasks without a verdict, tasks without a test, and means over tasks.

    Args:
        first: The name of the first encoder.
        second: The name of the second encoder.
        differences: The differences of the pair, second minus first. ``p`` is None without a test,
            ``real`` means significant, ``lacks_seeds`` that one encoder has one training seed and
            the other several.
        label: Labels the tasks.
        level: The level of significance.
    """
    on_tasks = [difference for difference in differences if not difference.is_average]
    tested = [difference for difference in on_tasks if difference.p is not None]
    significant = [difference for difference in tested if difference.real]
    insignificant = [difference for difference in tested if not difference.real]
    sentences = []
    for winner, loser, sign in ((second, first, 1), (first, second, -1)):
        won = [difference for difference in significant if sign * difference.difference > 0]
        if won:
            tasks = ", ".join(
                f"{label(difference)} ({_signed(100 * difference.difference * sign, decimals=2)})"
                for difference in won
            )
            count = ""
            if len(on_tasks) > 1:
                count = f"{len(won)} of {format_count(len(on_tasks), 'task')}: "
            sentences.append(f"{winner} is better than {loser} on {count}{tasks}")
    if insignificant:
        sentences.append(
            _describe_insignificant(first, second, insignificant, len(significant), label)
        )
    sentences += _sentences_without_verdict(differences, label)
    untested = [
        label(difference)
        for difference in on_tasks
        if difference.p is None and not difference.lacks_seeds
    ]
    if untested:
        sentences.append(f"No paired test is known for {', '.join(untested)}")
    sentences += [
        _describe_mean(difference, label, level)
        for difference in differences
        if difference.is_average and difference.p is not None
    ]
    return sentences


def _sentences_without_verdict(differences: Sequence[Difference], label: TaskLabel) -> list[str]:
    """Return a sentence on tasks and means without a verdict, for each encoder that causes it.

    There is no verdict if an encoder has one training seed and the other several.

    Args:
        differences: The differences of the pair; ``training_seeds`` of each is the number of the
            first encoder's training seeds and that of the second's.
        label: Labels the tasks.
    """
    tasks_by_encoder: dict[str, list[str]] = {}
    for difference in differences:
        if difference.lacks_seeds:
            is_first = difference.training_seeds[0] == 1
            name = difference.first if is_first else difference.second
            tasks_by_encoder.setdefault(name, []).append(label(difference))
    return [
        f"No verdict on {', '.join(tasks)}: one training seed of {name} against several does not "
        "tell how its trainings vary"
        for name, tasks in tasks_by_encoder.items()
    ]


def _sentences_on_margin(
    first: str, second: str, differences: Sequence[Difference], margin: float, label: TaskLabel
) -> list[str]:
    """Return a sentence for each judgement by a margin, with the tasks and means that have it.

    Args:
        first: The name of the first encoder.
        second: The name of the second encoder.
        differences: The differences of the pair, each with its judgement by the margin.
        margin: The largest difference that does not matter, not times 100.
        label: Labels the tasks.
    """
    # For example "0.5 points" for 0.005.
    points = _describe_margin(margin)
    beginning_by_verdict: dict[MarginVerdict, str] = {
        "within": f"{first} and {second} differ by less than {points} on",
        "not worse": f"{second} is not worse than {first} by {points} on",
        "worse than": f"{second} is worse than {first} by more than {points} on",
        "open": f"The margin of {points} leaves it open on",
    }
    sentences = []
    for verdict, beginning in beginning_by_verdict.items():
        tasks = [
            ("the " if difference.is_average else "") + label(difference)
            for difference in differences
            if difference.margin_verdict == verdict
        ]
        if tasks:
            sentences.append(f"{beginning} {', '.join(tasks)}")
    return sentences


def _sentences_on_plan(
    differences: Sequence[Difference], plan: float, label: TaskLabel
) -> list[str]:
    """Return a sentence on how many items or seeds would find a planned difference.

    Args:
        differences: The differences of one pair of encoders. Each has the number of seeds per
            encoder or of items with which the planned difference would be found in 80% of samples;
            None if no number is enough, or if it is unknown.
        plan: The planned difference, not times 100.
        label: Labels the tasks.

    Returns:
        A list with the sentence; empty if nothing is known for any task.
    """
    requirements = []
    # By what is said of them, the tasks for which there is no number.
    other_tasks: dict[str, list[str]] = {}
    for difference in differences:
        task = label(difference)
        if difference.required_seeds is not None:
            requirements.append(f"{difference.required_seeds} seeds per encoder on {task}")
        elif difference.required_items is not None:
            items = f"{difference.required_items:,} items like the {difference.n:,} of {task}"
            requirements.append(items)
        elif difference.error is not None:
            fewest, most = sorted(difference.seeds)
            if most == 1:
                number = "no number of items"
            elif fewest == 1:
                number = "an unknown number of seeds (to plan, each encoder needs two)"
            else:
                number = "no number of seeds"
            other_tasks.setdefault(number, []).append(task)
    requirements += [f"{number} on {', '.join(tasks)}" for number, tasks in other_tasks.items()]
    if not requirements:
        return []
    # For example "0.5 points" for 0.005.
    points = _describe_margin(plan)
    return [f"A difference of {points} is found with 80% power by {', '.join(requirements)}"]


def _describe_margin(margin: float) -> str:
    points = f"{100 * margin:g}"
    return f"{points} point{'' if points == '1' else 's'}"


NOTHING_DETECTABLE = "no difference"


def _describe_detectable(differences: Sequence[Difference], label: TaskLabel) -> str:
    """Return the end of a sentence, on the smallest true differences that tests could have found.

    For example ``; found with 80% power: 0.80 points on stsb, no difference on sickr``. The task of
    a single difference is not named. It is empty if they are unknown, or if all round to 0.

    Args:
        differences: The differences of one pair of encoders, which are not significant.
        label: Labels the tasks.
    """
    sizes = [
        f"{size} on {label(difference)}" if len(differences) > 1 else size
        for difference in differences
        if (size := _describe_smallest(difference))
    ]
    return f"; found with 80% power: {', '.join(sizes)}" if sizes else ""


def _describe_smallest(difference: Difference) -> str:
    """Return the smallest true difference that a test could have found, as text in points.

    It is ``NOTHING_DETECTABLE`` ("no difference") if none could be found: there are too few items,
    or it would be above 2, the largest difference of two correlations. It is empty if there was no
    test, or if it rounds to 0.

    Args:
        difference: A difference. Its ``interval`` is None without a test; its ``error`` is None
            also if the test had too few items.
    """
    smallest = difference.smallest_detectable
    if smallest is None:
        has_too_few_items = difference.interval is not None and difference.error is None
        return NOTHING_DETECTABLE if has_too_few_items else ""
    if smallest > MAX_CORRELATION_DIFFERENCE:
        return NOTHING_DETECTABLE
    points = f"{100 * smallest:.2f}"
    return f"{points} points" if float(points) else ""


def _describe_correction(comparison: Comparison) -> list[str]:
    """Return a sentence on the significance level, and over which tests Holm's correction is made.

    The tests on tasks are corrected together, and the tests of means over tasks together.

    Args:
        comparison: The differences on tasks and of means; those with a p-value were tested.

    Returns:
        A list with the sentence, such as ``Significant: Holm p below 0.05; Holm's correction over 6
        tests (2 pairs of encoders, 3 tasks) and, by itself, over 2 tests of means; intervals are
        not corrected``; empty if there are no tests.
    """
    tested = [difference for difference in comparison.differences if difference.p is not None]
    on_tasks = [difference for difference in tested if not difference.is_average]
    n_means = len(tested) - len(on_tasks)
    families = []
    if on_tasks:
        pairs = {(difference.first, difference.second) for difference in on_tasks}
        tasks = {
            (difference.task, difference.split, protocol_part(difference.protocol))
            for difference in on_tasks
        }
        families.append(
            f"{format_count(len(on_tasks), 'test')} "
            f"({format_count(len(pairs), 'pair')} of encoders, {format_count(len(tasks), 'task')})"
        )
    if n_means:
        families.append(f"{format_count(n_means, 'test')} of means")
    if not families:
        return []
    level = f"Significant: {HOLM_P} below {comparison.level:g}"
    correction = f"Holm's correction over {' and, by itself, over '.join(families)}"
    return [f"{level}; {correction}; intervals are not corrected"]


def _describe_insignificant(
    first: str,
    second: str,
    insignificant: Sequence[Difference],
    n_significant: int,
    label: TaskLabel,
) -> str:
    """Return the sentence on the tasks without a significant difference of two encoders.

    It says how small a difference could have been found. If no task has a significant difference,
    it also has the lowest corrected p-value, as in ``No significant difference between a and b on
    any of 3 tasks (lowest Holm p = .21); found with 80% power: 0.80 points on stsb``.

    Args:
        first: The name of the first encoder.
        second: The name of the second encoder.
        insignificant: The differences on the tasks without a significant one.
        n_significant: The number of other tasks, with a significant difference.
        label: Labels the tasks.
    """
    n_tasks = len(insignificant)
    detectable = _describe_detectable(insignificant, label)
    if n_significant:
        tasks = "other task" if n_tasks == 1 else f"other {n_tasks} tasks"
        return f"No significant difference on the {tasks}{detectable}"
    p_values = [difference.p_corrected for difference in insignificant]
    lowest_p = describe_p(min(p for p in p_values if p is not None))
    tasks = label(insignificant[0]) if n_tasks == 1 else f"any of {n_tasks} tasks"
    p_label = HOLM_P if n_tasks == 1 else f"lowest {HOLM_P}"
    return (
        f"No significant difference between {first} and {second} on {tasks} "
        f"({p_label} {lowest_p}){detectable}"
    )


def _describe_mean(mean: Difference, label: TaskLabel, level: float) -> str:
    """Return the sentence on the difference of two encoders' means over tasks.

    For example ``b is better by 1.20 points in the mean of 3 tasks (Holm p = .012)``.

    Args:
        mean: The difference of the means; its ``task`` is the label of the mean, and ``real`` means
            significant.
        label: Labels the tasks.
        level: The level of significance.
    """
    better = mean.second if mean.difference > 0 else mean.first
    points = f"{100 * abs(mean.difference):.2f} points"
    p = f"{HOLM_P} {describe_p(mean.p_corrected, level)}"
    if mean.real:
        return f"{better} is better by {points} in the {label(mean)} ({p})"
    detectable = _describe_detectable([mean], label)
    return f"No significant difference in the {label(mean)}: {points} ({p}){detectable}"


def describe_notes(comparison: Comparison) -> list[str]:
    """Return the notes below a comparison's table: its own notes, then explanations of columns.

    The explanations are of scores and differences, of intervals and p-values, of power and margin
    if there are such columns, and of the protocols by which tasks were scored: one signature of its
    scores for each.

    Args:
        comparison: The comparison. Its ``margin`` and ``plan`` are None if they were not requested.
    """
    dependence = "that share a sentence are not independent"
    if comparison.dependence == "none":
        dependence = "are taken as independent"
    deviations = ""
    if any(difference.deviations for difference in comparison.differences):
        deviations = " ± their deviation over seeds"
    notes_on_size = []
    if comparison.plan is not None or any(
        difference.p is not None and not difference.real and _describe_smallest(difference)
        for difference in comparison.differences
    ):
        notes_on_size.append(
            "Found with 80% power: the smallest true difference that is significant in 80% of "
            "samples, at the first level of Holm's correction."
        )
    if comparison.margin is not None:
        notes_on_size.append(
            f"margin: one-sided tests at level {comparison.level:g} of whether B is above "
            f"A - {100 * comparison.margin:g}, and below A + {100 * comparison.margin:g}; each "
            "row by itself, without Holm's correction."
        )
    return [
        *comparison.notes,
        f"Scores are times 100{deviations}; differences are of unrounded scores. Items "
        f"{dependence}.",
        *_describe_methods(comparison.differences),
        *_describe_probes(comparison.differences),
        *notes_on_size,
        *format_each_protocol(
            part for difference in comparison.differences for part in difference.compared
        ),
    ]


def _describe_methods(differences: Sequence[Difference]) -> list[str]:
    """Return sentences that name the tests behind intervals and p-values.

    If there are several tests, each is named with its tasks, and with the pair of encoders where
    one task has several tests. The last sentence says that the p-value after Holm's correction
    decides (``HOLM_P`` is its label, "Holm p"). Empty if nothing was tested.

    Args:
        differences: The differences of a comparison; ``method`` names the test of each.
    """
    label = label_tasks(differences)
    tested = [
        (difference.method, label(difference), f"{difference.first} and {difference.second}")
        for difference in differences
        if difference.method is not None
    ]
    # A task is in this list once for each of its methods.
    tasks = [task for task, _ in {(task, method) for method, task, _ in tested}]
    # A dict of subjects keeps their order, each once.
    subjects_by_method: dict[str, dict[str, None]] = {}
    for method, task, pair in tested:
        subject = f"{task}: {pair}" if tasks.count(task) > 1 else task
        subjects_by_method.setdefault(method, {})[subject] = None
    methods = list(subjects_by_method)
    if len(methods) > 1:
        methods = [f"{method} ({', '.join(names)})" for method, names in subjects_by_method.items()]
    if not methods:
        return []
    texts = [f"Interval and p: {'; '.join(methods)}."]
    if PERMUTATIONS in subjects_by_method:
        texts.append("Permutations: a test whose interval is wider than that of Student's t.")
    texts.append(
        f"{HOLM_P}: p corrected for all comparisons above, which decides; docs/statistics.md says "
        "more."
    )
    return texts


def _describe_probes(differences: Sequence[Difference]) -> list[str]:
    """Return a note for tasks that train a classifier, regressor or projection on embeddings.

    Tests on them do not count the chance of the training sample. Their protocols have one of the
    ``TRAINING_FIELDS``, ``kfold`` and ``base_seed``. Empty if there are no such tasks.
    """
    if not any(TRAINING_FIELDS & set(difference.protocol) for difference in differences):
        return []
    return [
        "Probes: interval and p count the chance of the test items, not that of the training "
        "sample, so that equal encoders may differ significantly in more than 5% of samples."
    ]


def difference_columns(
    differences: Sequence[Difference], level: float = USUAL_LEVEL
) -> tuple[list[str], list[list[str]]]:
    """Return the heads and the rows of a table of differences as text, one row per difference.

    Columns in which every row has a dash are omitted. A p-value beside ``level``, the level of
    significance, is printed with enough decimals to show on which side of it it is.
    """
    label = label_tasks(differences)
    rows = [_difference_row(difference, label, level) for difference in differences]
    filled = [
        column
        for column in range(len(DIFFERENCE_COLUMNS))
        if any(row[column] != "–" for row in rows)
    ]
    heads = [DIFFERENCE_COLUMNS[column] for column in filled]
    return heads, [[row[column] for column in filled] for row in rows]


def _difference_row(difference: Difference, label: TaskLabel, level: float) -> list[str]:
    """Return a row of a table of differences as text, with a cell per column.

    The columns are ``DIFFERENCE_COLUMNS``: task, both scores, difference, its 95% interval, p, p
    after Holm's correction, and the judgement by the margin. A dash stands for an unknown value.
    For example: stsb, 80.12±0.30, 81.30±0.25, +1.18, +0.20 to +2.16, .018, .036, –.

    Args:
        difference: The difference.
        label: Labels the tasks.
        level: The level of significance.
    """
    # A bound of 10 points or more is printed with one decimal only.
    bounds = [
        _signed(100 * bound, decimals=1 if abs(bound) >= 0.1 else 2)
        for bound in difference.interval or ()
    ]
    deviations = ["", ""]
    if difference.deviations:
        deviations = [f"±{100 * deviation:.2f}" for deviation in difference.deviations]
    scores = [
        f"{100 * score:.2f}{deviation}"
        for score, deviation in zip(difference.scores, deviations, strict=True)
    ]
    return [
        label(difference),
        *scores,
        _signed(100 * difference.difference, decimals=2),
        " to ".join(bounds) or "–",
        format_p(difference.p, level),
        format_p(difference.p_corrected, level),
        difference.margin_verdict or "–",
    ]


def _signed(points: float, decimals: int) -> str:
    # What prints as zero has no sign.
    text = f"{points:+.{decimals}f}"
    return text if float(text) else text[1:]


def describe_p(p: float | None, level: float = USUAL_LEVEL) -> str:
    """Return a p-value as part of a sentence: ``= .051`` or ``< .001``.

    Args:
        p: The p-value; None becomes ``= –``.
        level: The level below which it is significant.
    """
    text = format_p(p, level)
    return f"{text[0]} {text[1:]}" if text[0] in "<>" else f"= {text}"


def format_p(p: float | None, level: float = USUAL_LEVEL) -> str:
    """Return a p-value as printed in a table: ``.043``, ``.25``, ``<.001`` or ``>.99``.

    It has three decimals below .1 (more if the level is very small), and two above. If it would
    round to the level, it gets enough decimals (at most six) to show on which side of the level it
    is.

    Args:
        p: The p-value; None becomes a dash.
        level: The level below which it is significant.
    """
    if p is None:
        return "–"
    if p > 0.99:
        return ">.99"
    least_decimals = max(3, math.ceil(-math.log10(level)))
    least = 10.0**-least_decimals
    if p < least:
        return f"<{least:.{least_decimals}f}".replace("0.", ".", 1)
    decimals = least_decimals if p < 0.0995 else 2
    while float(f"{p:.{decimals}f}") == level != p and decimals < MAX_DECIMALS:
        decimals += 1
    return f"{p:.{decimals}f}".removeprefix("0")
