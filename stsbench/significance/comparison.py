"""Compare encoders on the same items: differences, intervals, p-values and margins."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from stsbench.core.errors import AdvisingNote, DataError
from stsbench.core.grouping import group_by
from stsbench.numbers.dependence import DOMINANT_COMPONENT_NOTE
from stsbench.numbers.statistics import mean_and_deviation
from stsbench.results.folder import describe_missing_columns, make_rescore_remedy, without_columns
from stsbench.results.record import Result
from stsbench.results.signature import Fields, compared_part, protocol_part
from stsbench.significance import margins
from stsbench.significance.comparison_record import (
    Comparison,
    Difference,
    MeasuredDifference,
    TestSettings,
    pair_names,
)
from stsbench.significance.differences import EstimatedDifference
from stsbench.significance.items import (
    ResultsByEncoder,
    TaskItems,
    has_one_training_seed,
    join_items,
    match_tasks,
    pair_items,
)
from stsbench.significance.means import estimate_mean_difference, estimate_seed_spread
from stsbench.significance.paired import MCNEMAR, STUDENT, PairedShares, PairedTest, correct_by_holm


def compare(
    encoders: Mapping[str, Sequence[Result]],
    *,
    tasks: Sequence[str] | None = None,
    protocol: str | None = None,
    settings: TestSettings | None = None,
    suites: Mapping[str, Sequence[str]] | None = None,
) -> Comparison:
    """Test the differences of encoders from the first one, or of every two, on their common tasks.

    Each pair is tested on each task and on the means over tasks. Holm's correction is taken over
    the tasks of all pairs, and separately over the means of all pairs.

    Args:
        encoders: The results of at least two encoders, by the encoder's name.
        tasks: The tasks to compare; None for all.
        protocol: The name of the only protocol to compare; None for all.
        settings: The settings of the tests.
        suites: The tasks of each suite by its name, by which means are labelled.

    Returns:
        The differences on tasks, then those of means, with notes on tasks that only some encoders
        have and on reasons to doubt the tests.

    Raises:
        ProtocolError: A task was scored differently; the message names the field.
        DataError: No task is common to all, or per-item columns are missing or broken.
    """
    settings = settings or TestSettings()
    matched = match_tasks(encoders, tasks=tasks, protocol=protocol)
    all_results = [
        result
        for results_by_encoder in matched.results_of_tasks
        for results_of_seeds in results_by_encoder.values()
        for result in results_of_seeds
    ]
    if lacking := without_columns(all_results):
        raise DataError(
            f"{describe_missing_columns(lacking)}, which tests need",
            remedy=make_rescore_remedy(lacking),
        )
    on_tasks: list[MeasuredDifference] = []
    means: list[MeasuredDifference] = []
    for pair_differences in _compare_pairs(matched.results_of_tasks, settings):
        on_tasks.extend(pair_differences)
        means.extend(_means_over_tasks(pair_differences, suites or {}))
    # By task and split, which decide which items there are.
    items_by_data: dict[tuple[str, str], list[TaskItems[str]]] = {}
    for measured in on_tasks:
        key = (measured.difference.task, measured.difference.split)
        items_by_data.setdefault(key, []).extend(measured.items)
    notes = list(matched.notes)
    if settings.dependence != "none":
        notes += _describe_unknown_sentences(items_by_data, all_results)
        notes += _describe_dominant_components(items_by_data)
    for name in encoders:
        results_by_task = [
            results_by_encoder[name] for results_by_encoder in matched.results_of_tasks
        ]
        notes += _describe_equal_trainings(name, results_by_task)
    differences = _with_holm_correction(on_tasks, settings)
    differences += _with_holm_correction(means, settings)
    return Comparison(
        encoders=list(encoders),
        differences=differences,
        level=settings.level,
        dependence=settings.dependence,
        margin=settings.margin,
        plan=settings.plan,
        all_pairs=settings.all_pairs,
        notes=notes,
    )


def _compare_pairs(
    results_of_tasks: Sequence[ResultsByEncoder], settings: TestSettings
) -> list[list[MeasuredDifference]]:
    """Compare each pair of encoders on each task, before any correction of p-values.

    Args:
        results_of_tasks: For each task the results of each encoder, one per seed.
        settings: The settings of the tests.

    Returns:
        For each pair of encoders the differences on all tasks.
    """
    all_measured = (
        measured
        for results_by_encoder in results_of_tasks
        for measured in compare_on_task(results_by_encoder, settings)
    )
    by_pair = group_by(
        all_measured, lambda measured: (measured.difference.first, measured.difference.second)
    )
    return list(by_pair.values())


def _describe_unknown_sentences(
    items_by_data: Mapping[tuple[str, str], Sequence[TaskItems[str]]], results: Sequence[Result]
) -> list[str]:
    """Make a note on the tasks for which it is unknown which items share a sentence.

    Args:
        items_by_data: The items of each task and split, once per pair of encoders.
        results: The results of all encoders. If those of such tasks were scored again, it would be
            known: the note has that advice.

    Returns:
        A list with the note; empty if there are no such tasks.
    """
    unknown = [
        task
        for (task, _), task_items in items_by_data.items()
        if not all(items.knows_sentences for items in task_items)
    ]
    if not unknown:
        return []
    remedy = make_rescore_remedy([result for result in results if result.task in unknown])
    # The note is a text that ends with the advice.
    reason = "taken as independent, for no result says which items share a sentence"
    return [AdvisingNote(f"{', '.join(dict.fromkeys(unknown))}: {reason}", remedy)]


def _describe_dominant_components(
    items_by_data: Mapping[tuple[str, str], Sequence[TaskItems[str]]],
) -> list[str]:
    """Make a note on the tasks on which shared sentences link most items to one group.

    Such items count as one observation, so that tests are doubtful.

    Args:
        items_by_data: The items of each task and split, once per pair of encoders.

    Returns:
        A list with the note; empty if there are no such tasks.
    """
    tasks = []
    for (task, _), task_items in items_by_data.items():
        # Only the first element: all pairs of encoders have the same items. There is none if no
        # test is known for the task.
        for items in task_items[:1]:
            # Which items share sentences, and each item's weight in the score.
            joined = join_items([items])
            # Whether one group has more than half of the weight.
            if joined.dependence.has_dominant_component(joined.weights):
                tasks.append(task)
    tasks = list(dict.fromkeys(tasks))
    return [f"{', '.join(tasks)}: {DOMINANT_COMPONENT_NOTE}"] if tasks else []


def _describe_equal_trainings(name: str, results_by_task: Sequence[Sequence[Result]]) -> list[str]:
    """Make a note on tasks on which two training seeds of an encoder have the same item scores.

    Such seeds may be one training that was scored twice.

    Args:
        name: The name of the encoder.
        results_by_task: The encoder's results on each task, one per seed.

    Returns:
        A list with the note; empty if there are no such tasks.
    """
    tasks = []
    for results in results_by_task:
        # A result's ``items`` is the hash of its per-item columns.
        item_hashes = {result.items for result in results}
        seeds_with_hashes = {(result.train_seed, result.items) for result in results}
        # If there are more of these pairs than hashes, two seeds share a hash.
        if len(seeds_with_hashes) > len(item_hashes):
            tasks.append(results[0].task)
    if not tasks:
        return []
    return [
        f"{name}: several training seeds have the same items on {', '.join(tasks)}; "
        "are they one training?"
    ]


def compare_on_task(
    results_by_encoder: ResultsByEncoder, settings: TestSettings
) -> Iterator[MeasuredDifference]:
    """Compare encoders pair by pair on one task, before any correction of p-values.

    Pairs are those with the first encoder, or all if the settings say so.

    Args:
        results_by_encoder: Each encoder's results on the task, one per seed.
        settings: The settings of the tests.

    Yields:
        The difference of a pair, with the items of the task. It has no interval and no p-value, and
        there are no items, if no paired test of the scores is known.

    Raises:
        DataError: Per-item columns are missing, broken, or of other items.
    """
    items = pair_items(results_by_encoder, settings.dependence)
    names = list(results_by_encoder)
    for first, second in pair_names(names, all_pairs=settings.all_pairs):
        untested = _compare_without_test(results_by_encoder, first, second)
        if items is None:
            yield MeasuredDifference(untested)
            continue
        # Second minus first, with its error over items and seeds.
        estimate = estimate_mean_difference([items], first, second)
        # The score of a classifier may be a mean of rounded accuracies of folds, and so differ from
        # the mean of its items. The interval is centred on the difference of the scores.
        difference = _with_estimate(untested, estimate._replace(difference=untested.difference))
        # McNemar's or a permutation test; None if there is none: then Student's t stays.
        test = _exact_test(items, names.index(first), names.index(second), settings)
        if test is not None:
            difference = _with_exact_test(difference, test)
        yield MeasuredDifference(difference, [items])


def _exact_test(
    items: TaskItems[str], first_index: int, second_index: int, settings: TestSettings
) -> PairedTest | None:
    """Test the difference of two encoders on a task without assuming a distribution.

    Args:
        items: The task's items, with the values of all encoders.
        first_index: The index of the encoder whose score is subtracted.
        second_index: The index of the other encoder.
        settings: The number of permutations, and the seed of random draws.

    Returns:
        McNemar's test if items are right or wrong, else a permutation test. None if items share
        sentences, or if an encoder has several seeds. Nor is there a permutation test of F1, of
        Kendall's correlation, or of 250 items or more.
    """
    # One sample per encoder, in the order of the indices, with a score per seed.
    samples = list(items.samples.values())
    n_seeds = max(len(samples[index].scores) for index in (first_index, second_index))
    # Which items share sentences, by the function for the items of several tasks.
    dependence = join_items([items]).dependence
    if n_seeds > 1 or not dependence.are_independent:
        return None
    return items.paired.exact_test(
        first_index,
        second_index,
        n_permutations=settings.n_permutations,
        # Every pair of encoders gets the same draws, whichever other encoders are compared.
        rng=settings.rng(f"{items.task} swaps"),
    )


def _with_estimate(difference: Difference, estimate: EstimatedDifference) -> Difference:
    """Return a difference with the interval, error and p-value of Student's t test filled in.

    Args:
        difference: The difference without a test.
        estimate: The same difference with its error over items and seeds. Of an infinite error
            (too few items) and infinite degrees of freedom the result has None.
    """
    has_seeds = estimate.seed_error > 0
    return replace(
        difference,
        interval=estimate.interval(),
        error=_none_if_infinite(estimate.error),
        df=_none_if_infinite(estimate.df),
        seed_error=_none_if_infinite(estimate.seed_error) if has_seeds else None,
        seed_df=_none_if_infinite(estimate.seed_df) if has_seeds else None,
        other_error=estimate.other_error,
        p=estimate.p,
        method=STUDENT,
    )


def _with_exact_test(difference: Difference, test: PairedTest) -> Difference:
    """Replace Student's t test of a difference by a test that assumes no distribution.

    - McNemar's test gives the p-value and the interval; the error stays.
    - A permutation test replaces Student's t only if its interval is wider and finite. The error
      is then multiplied by the ratio of the widths, and the interval is Student's t's with that
      error. Otherwise the difference is returned unchanged.

    Args:
        difference: The difference by Student's t. Without an estimate of its error, any test
            replaces what there is.
        test: McNemar's test, or a permutation test, with p-value and interval. There is one seed
            per encoder, so that the error has no part over seeds. ``discordant``, the numbers of
            items that only one encoder has right, is None for permutations.
    """
    estimate = difference.estimate
    interval = test.interval
    error = difference.error
    if test.method != MCNEMAR and estimate is not None:
        test_low, test_high = test.interval
        low, high = estimate.interval()
        # How many times as wide the interval of permutations is as that of Student's t.
        width_ratio = (test_high - test_low) / (high - low) if high > low else 0.0
        if not 1 < width_ratio < math.inf:
            return difference
        estimate = estimate._replace(error=estimate.error * width_ratio)
        interval = estimate.interval()
        error = estimate.error
    # ``difference.estimate`` is computed from ``error`` when it is read: it is wider too.
    return replace(
        difference,
        interval=interval,
        error=error,
        p=test.p,
        method=test.method,
        discordant=test.discordant,
    )


def _compare_without_test(
    results_by_encoder: ResultsByEncoder, first: str, second: str
) -> Difference:
    """Return the difference of two encoders' mean scores over seeds on one task, without a test.

    Args:
        results_by_encoder: Each encoder's results on the task, one per seed.
        first: The name of the encoder whose mean is subtracted.
        second: The name of the other encoder.

    Returns:
        The difference. ``deviations`` (over seeds) is None if an encoder has one result;
        ``training_seeds`` counts distinct seeds, 0 if nothing was trained; ``one_run`` names those
        encoders that have exactly one training seed. Task, protocol and items are the same for all.
    """
    first_results = results_by_encoder[first]
    second_results = results_by_encoder[second]
    first_mean = mean_and_deviation([result.score for result in first_results])
    second_mean = mean_and_deviation([result.score for result in second_results])
    deviations = None
    if first_mean.deviation is not None and second_mean.deviation is not None:
        deviations = (first_mean.deviation, second_mean.deviation)
    result = first_results[0]
    return Difference(
        first=first,
        second=second,
        task=result.task,
        tasks=(result.task,),
        split=result.split,
        protocol=result.protocol,
        n=result.n,
        compared=(compared_part(result),),
        seeds=(len(first_results), len(second_results)),
        training_seeds=(
            _count_training_seeds(first_results),
            _count_training_seeds(second_results),
        ),
        scores=(first_mean.mean, second_mean.mean),
        deviations=deviations,
        difference=second_mean.mean - first_mean.mean,
        one_run=tuple(
            name for name in (first, second) if has_one_training_seed(results_by_encoder[name])
        ),
    )


def _count_training_seeds(results: Sequence[Result]) -> int:
    """Count the training seeds of an encoder's results; 0 if they name none."""
    return len({result.train_seed for result in results} - {None})


def _means_over_tasks(
    task_differences: Sequence[MeasuredDifference], suites: Mapping[str, Sequence[str]]
) -> Iterator[MeasuredDifference]:
    """Yield the mean differences of one pair of encoders over tasks, for each protocol one.

    Only differences by the same protocol (way of scoring) are averaged. A task that was scored on
    several splits counts by the split that is most common among tasks with one split. Each of its
    further splits is averaged apart, with the same split of other such tasks. There is no mean over
    a single task.

    Args:
        task_differences: The pair's difference on each task, split and protocol.
        suites: The tasks of each suite by its name; a mean over exactly these tasks is labelled by
            it.
    """
    splits_by_task: dict[str, set[str]] = {}
    for measured in task_differences:
        splits = splits_by_task.setdefault(measured.difference.task, set())
        splits.add(measured.difference.split)
    single_splits = Counter(
        next(iter(splits)) for splits in splits_by_task.values() if len(splits) == 1
    )
    # The commonest split of the tasks with a single one; None if there are no such tasks.
    usual_split = next((split for split, _ in single_splits.most_common(1)), None)
    # The differences to average, by protocol and by further split (empty for the usual one).
    groups: dict[tuple[Fields, str], list[MeasuredDifference]] = {}
    for measured in task_differences:
        difference = measured.difference
        has_several_splits = len(splits_by_task[difference.task]) > 1
        is_unusual_split = has_several_splits and difference.split != usual_split
        extra_split = difference.split if is_unusual_split else ""
        # protocol_part: the fields as text, the same for protocols whose scores are comparable.
        group_key = (protocol_part(difference.protocol), extra_split)
        groups.setdefault(group_key, []).append(measured)
    for comparable in groups.values():
        if len(comparable) > 1:
            mean = mean_difference(comparable)
            # The mean over exactly the tasks of a suite has the suite's name.
            names = [name for name, tasks in suites.items() if set(tasks) == set(mean.tasks)]
            # A mean over some of the tasks is labelled by their protocol.
            if len(comparable) < len(task_differences):
                names.append(str(comparable[0].difference.protocol["name"]))
            if names:
                mean = replace(mean, task=f"{mean.task} ({names[0]})")
            yield MeasuredDifference(mean, _items_of_all_tasks(comparable))


UNTESTED: Mapping[str, Any] = dict.fromkeys(
    ("interval", "error", "df", "seed_error", "seed_df", "other_error", "p", "method")
)
"""The fields of a Difference without a test, all None."""


def mean_difference(task_differences: Sequence[MeasuredDifference]) -> Difference:
    """Compute the difference of two encoders' means over several tasks, which may share sentences.

    It has an interval and a p-value by Student's t only if a paired test is known for each task.
    Of the numbers of seeds the mean has the smallest over tasks, of training seeds the largest.
    Names, split and protocol are those of the first task.

    Args:
        task_differences: The pair's difference on each task, with its items.
    """
    n_tasks = len(task_differences)
    differences = [measured.difference for measured in task_differences]
    # One per task; empty if no paired test is known for one of them.
    items = _items_of_all_tasks(task_differences)
    first, second = differences[0].first, differences[0].second
    mean = float(np.mean([difference.difference for difference in differences]))
    # Pairs of numbers, such as the seeds, have the first encoder's number and then the second's.
    # UNTESTED sets all that a test gives, such as interval, error and p, to None.
    untested = replace(
        differences[0],
        task=f"mean of {n_tasks} tasks",
        tasks=tuple(difference.task for difference in differences),
        n=sum(difference.n for difference in differences),
        compared=tuple(part for difference in differences for part in difference.compared),
        seeds=(
            min(difference.seeds[0] for difference in differences),
            min(difference.seeds[1] for difference in differences),
        ),
        scores=(
            float(np.mean([difference.scores[0] for difference in differences])),
            float(np.mean([difference.scores[1] for difference in differences])),
        ),
        training_seeds=(
            max(difference.training_seeds[0] for difference in differences),
            max(difference.training_seeds[1] for difference in differences),
        ),
        deviations=None,
        difference=mean,
        discordant=None,
        **UNTESTED,
    )
    if not items:
        return untested
    estimate = estimate_mean_difference(items, first, second)
    return _with_estimate(untested, estimate._replace(difference=mean))


def _items_of_all_tasks(task_differences: Sequence[MeasuredDifference]) -> list[TaskItems[str]]:
    """Return the items of all tasks; empty if no paired test is known of one of them."""
    if not all(measured.items for measured in task_differences):
        return []
    return [items for measured in task_differences for items in measured.items]


def _with_holm_correction(
    measured_differences: Sequence[MeasuredDifference], settings: TestSettings
) -> list[Difference]:
    """Correct the p-values of differences by Holm's method, and judge the differences.

    Args:
        measured_differences: The differences, with the items of their tasks.
        settings: The significance level, the margin and the planned difference.

    Returns:
        The differences in the same order. ``real`` means significant after the correction,
        ``family`` is the number of tests. Added are the judgement by the margin, the smallest
        difference that could have been found, and the items or seeds that the planned difference
        needs. A difference of one training seed against several loses its test.
    """
    # UNTESTED sets all that a test gives, such as interval, error and p, to None.
    differences = [
        replace(measured.difference, **UNTESTED)
        if measured.difference.lacks_seeds
        else measured.difference
        for measured in measured_differences
    ]
    p_values = [difference.p for difference in differences if difference.p is not None]
    corrected_p_values = iter(correct_by_holm(p_values))
    corrected = []
    for difference, measured in zip(differences, measured_differences, strict=True):
        p = None if difference.p is None else next(corrected_p_values)
        judged = replace(
            difference,
            p_corrected=p,
            real=p is not None and p < settings.level,
            family=len(p_values),
        )
        judged = _with_margin_verdict(judged, settings)
        corrected.append(_with_power(judged, measured.items, settings))
    return corrected


def _with_margin_verdict(difference: Difference, settings: TestSettings) -> Difference:
    """Add to a difference the judgement whether it exceeds the margin, the largest harmless one.

    The procedure is that of the difference's interval. If McNemar's test has compared shares of
    right items, it is Tango's interval: ``discordant`` is then the numbers of items that only the
    first and only the second encoder has right. Otherwise it is Student's t. The judgement is
    ``within``, ``not worse``, ``worse than`` or ``open``. Without a margin or a test the difference
    is returned unchanged.

    Args:
        difference: The difference.
        settings: The margin and the significance level.
    """
    estimate = difference.estimate
    if estimate is None or settings.margin is None:
        return difference
    if difference.discordant is None:
        verdict = margins.margin_verdict(estimate, settings.margin, settings.level)
    else:
        shares = PairedShares(difference.n, *difference.discordant)
        # Two one-sided tests at a level are an interval of confidence 1 - 2 * level.
        verdict = margins.interval_verdict(shares.interval(1 - 2 * settings.level), settings.margin)
    return replace(difference, margin_verdict=verdict)


def _with_power(
    difference: Difference, items: Sequence[TaskItems[str]], settings: TestSettings
) -> Difference:
    """Add to a difference how small a difference its test could find, and what a smaller one needs.

    Args:
        difference: The difference, after Holm's correction over ``family`` tests.
        items: The items of its tasks.
        settings: The significance level, and ``plan``: the difference to be found in a planned
            comparison; None if there is no plan.

    Returns:
        The difference with ``smallest_detectable`` and, for the plan, ``required_items`` or
        ``required_seeds``; unchanged if it has no estimate of its error.
    """
    # The difference with its standard error and degrees of freedom, read from the fields ``error``,
    # ``df`` and others; None where there is no error.
    estimate = difference.estimate
    if estimate is None:
        return difference
    # The level of the first test by Holm's correction.
    level = settings.level / max(difference.family, 1)
    # One error per way to estimate the variance over items; infinite if there are too few items.
    smallest = max(margins.smallest_detectable(error, level) for error in estimate.errors)
    required_items = required_seeds = None
    if settings.plan is not None and difference.error is not None:
        # The errors of the difference over items, and the deviation of a score over seeds; None if
        # an encoder has one seed, or other seeds on one task than on another.
        spread = estimate_seed_spread(items, difference.first, difference.second)
        if spread is not None:
            required_seeds = margins.required_seeds(*spread, settings.plan, level)
        elif max(difference.seeds) == 1:
            required_items = margins.required_items(
                estimate.errors, difference.n, settings.plan, level
            )
    return replace(
        difference,
        smallest_detectable=_none_if_infinite(smallest),
        required_items=required_items,
        required_seeds=required_seeds,
    )


def _none_if_infinite(value: float | None) -> float | None:
    """Return a number that is finite; None for another one, which JSON cannot hold."""
    return value if value is not None and math.isfinite(value) else None
