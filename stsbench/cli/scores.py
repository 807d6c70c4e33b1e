"""The tables of scores that 'stsbench run' prints: one line per task, or one column per task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from stsbench.bench.protocols import format_protocol
from stsbench.boards.tables.layout import build_layout
from stsbench.boards.tables.request import TableRequest
from stsbench.boards.tables.table import OVERLAP_LEGENDS, OVERLAP_SYMBOLS
from stsbench.cli.printing import (
    fold_lines,
    format_interval,
    format_points,
    print_paragraph,
    print_text,
)
from stsbench.cli.tables import print_rows, print_table
from stsbench.cli.wording import describe_remedy
from stsbench.core.cards import Suite
from stsbench.core.catalogue import Catalogue
from stsbench.core.grouping import group_by
from stsbench.data.task import suites_within
from stsbench.numbers.statistics import mean_and_deviation
from stsbench.results.folder import describe_missing_columns, make_rescore_remedy, without_columns
from stsbench.results.groups import group_by_encoder, seed_means, suite_mean
from stsbench.results.record import MIN_SUBSET_PAIRS, Result, common_clean_scores
from stsbench.results.signature import format_signature, protocol_part
from stsbench.significance.means import MEAN_METHOD, compute_mean_interval

SCORE_COLUMNS = ("encoder", "task", "score", "majority", "95% interval", "n", "protocol")
CLASS_SCORES = ("precision", "recall", "f1")


class ScoreLine(NamedTuple):
    """One line of the table, its cells in the order of ``SCORE_COLUMNS``."""

    encoder: str
    task: str
    score: str
    majority: str = ""
    interval: str = ""
    n: str = ""
    protocol: str = ""

    @property
    def is_mean(self) -> bool:
        """Whether the score is a mean over tasks or seeds."""
        return self.n == "" or "±" in self.score


class ScoredTask(NamedTuple):
    """The results of an encoder on a split of a task, one per seed, in the order of the seeds."""

    encoder: str
    """The printed name."""
    results: list[Result]


def print_scores(results: Sequence[Result], catalogue: Catalogue, *, verbose: bool) -> None:
    """Print a table with one line per task and one per suite, then notes and signatures.

    A suite is a named list of tasks; its line has the mean over them. A signature is a line that
    says how scores were made. A task whose test sentences the encoder was trained on carries a
    symbol, which a note explains.

    Args:
        results: The results of any encoders. Those that differ only in their seed are printed as
            one line, with their mean.
        catalogue: The cards of encoders, tasks and suites.
        verbose: Whether to print every seed, subset and class too.
    """
    scored_tasks = _group_seeds(results, catalogue)
    encoders = list(dict.fromkeys(scored_task.encoder for scored_task in scored_tasks))
    lines: list[ScoreLine] = []
    for scored_task in scored_tasks:
        lines += _task_lines(scored_task, catalogue, verbose=verbose)
    for encoder in encoders:
        results_by_task = {
            scored_task.results[0].task: scored_task.results
            for scored_task in scored_tasks
            if scored_task.encoder == encoder
        }
        lines += _suite_lines(encoder, results_by_task, catalogue)
    if len(encoders) == 1:
        print_text(f"{encoders[0]}\n")
        lines = [line._replace(encoder="") for line in lines]
    print_rows(SCORE_COLUMNS, lines, number_columns=range(2, 6), omit_empty=True)
    if verbose:
        for scored_task in scored_tasks:
            suffix = f", {scored_task.encoder}" if len(encoders) > 1 else ""
            _print_classes(scored_task.results, suffix)
    # The lines of means over tasks or seeds.
    means = [line for line in lines if line.is_mean]
    interval_methods = dict.fromkeys(result.interval_method for result in results)
    if any(line.interval for line in means):
        interval_methods[f"of means, {MEAN_METHOD}"] = None
    legend = f"scores are times 100; 95% interval: {'; '.join(interval_methods)}"
    print_text("\n" + "\n".join(fold_lines(legend)))
    if not all(line.interval for line in means):
        print_missing_columns(results, need="intervals of means need")
    _print_notes(results, explains_symbols=True)
    _print_signatures(scored_tasks)


def _print_signatures(scored_tasks: Sequence[ScoredTask]) -> None:
    """Print the signatures of each encoder's scores, one per protocol and split.

    A signature is a line that says how scores were made: tasks, data, protocol, versions.

    Args:
        scored_tasks: The results of each encoder on each task, one per seed.
    """
    for encoder_tasks in group_by(scored_tasks, lambda scored_task: scored_task.encoder).values():
        results = [result for scored_task in encoder_tasks for result in scored_task.results]
        # protocol_part: equal for protocols whose scores are comparable.
        results_by_scoring = group_by(
            results, lambda result: (protocol_part(result.protocol), result.split)
        )
        for scored_alike in results_by_scoring.values():
            print_text("\n".join(fold_lines(format_signature(scored_alike), indent="  ")))


def _group_seeds(results: Sequence[Result], catalogue: Catalogue) -> list[ScoredTask]:
    """Group the results that differ only in their seeds: of one encoder, task and split.

    Results of one name may be of different encoders, for example from before and after a change of
    weights. These have different printed names, such as ``final [3f2a1b]``.

    Args:
        results: The results of any encoders and tasks.
        catalogue: The cards of encoders.

    Returns:
        For each printed name, task and split the results, one per seed. Encoders and tasks are in
        the order of their first result.
    """
    return [
        ScoredTask(group.name, results_of_seeds)
        for group in group_by_encoder(results, catalogue)
        for results_of_seeds in group_by(
            group.results, lambda result: (result.task, result.split)
        ).values()
    ]


def print_boards(results: Sequence[Result], catalogue: Catalogue) -> None:
    """Print boards with one line per encoder and one column per task, then the results' notes.

    There is a board for each protocol and each suite (a named list of tasks), and one for the tasks
    that are in none of these suites. At the end a hint names other commands.

    Args:
        results: The results of several encoders.
        catalogue: The cards of encoders, tasks and suites.
    """
    # protocol_part: equal for protocols whose scores are comparable.
    results_by_protocol = group_by(results, lambda result: protocol_part(result.protocol))
    for protocol_results in results_by_protocol.values():
        splits_by_task = {result.task: result.split for result in protocol_results}
        request = TableRequest(catalogue=catalogue, results=protocol_results)
        for name, suite in _choose_suites(list(splits_by_task), catalogue):
            for table in request.make_suite_boards(name, suite, splits_by_task):
                print_table(build_layout(table))
    # Symbols are explained already, in the legend of each board.
    _print_notes(results, explains_symbols=False)
    print_text("see also: 'stsbench compare' (significance), --verbose (intervals, subsets)")


def _choose_suites(tasks: Sequence[str], catalogue: Catalogue) -> Iterator[tuple[str, Suite]]:
    """Divide tasks into suites (named lists of tasks), so that each task is in one suite.

    The largest suites are taken first. A suite is taken if it has several tasks and a common mean,
    and all of its tasks are still without a suite. The tasks that remain become a suite without a
    name or mean.

    Args:
        tasks: The names of the tasks.
        catalogue: The cards, which define the suites.

    Yields:
        The name of each suite (empty for the last one), and the suite.
    """
    remaining = list(tasks)
    # By name, the suites all of whose tasks are among these.
    suites = suites_within(tasks, catalogue)
    largest_first = sorted(suites.items(), key=lambda name_and_suite: -len(name_and_suite[1].tasks))
    for name, suite in largest_first:
        if suite.average and len(suite.tasks) > 1 and {*suite.tasks} <= {*remaining}:
            remaining = [task for task in remaining if task not in suite.tasks]
            yield name, suite
    if remaining:
        yield "", Suite(name="Scores", tasks=remaining, average=False)


def _task_label(result: Result) -> str:
    """Return the task, with the split if it is unusual."""
    return result.task if result.split in ("test", "all") else f"{result.task} ({result.split})"


def _task_lines(
    scored_task: ScoredTask, catalogue: Catalogue, *, verbose: bool
) -> Iterator[ScoreLine]:
    """Yield the lines of an encoder on a task in the table of scores.

    The first has the score, or the mean over seeds. Then follows one line for each clean score: the
    score over the items without a sentence in some training text. With ``verbose``, lines of each
    seed and each subset of the task follow.

    Args:
        scored_task: The encoder's results on the task, one per seed.
        catalogue: The cards, for the name of the protocol.
        verbose: Whether to yield the lines of seeds and subsets.
    """
    results = scored_task.results
    first = results[0]
    has_seeds = len(results) > 1
    # What the training text has of the test sentences. The symbol is that of the worst seed:
    # training on gold scores is worse than on the texts alone.
    overlaps = {result.overlap for result in results}
    symbol = next((OVERLAP_SYMBOLS[name] for name in ("gold", "text") if name in overlaps), "")
    interval = compute_mean_interval([results]) if has_seeds else first.interval
    yield ScoreLine(
        encoder=scored_task.encoder,
        task=f"{_task_label(first)} {symbol}".rstrip(),
        # With the deviation over seeds if there are several.
        score=_format_mean([result.score for result in results]),
        # The accuracy of always answering the most frequent class; empty for tasks without classes.
        majority=format_points(first.scores.get("majority")),
        interval=format_interval(interval),
        n=str(first.n),
        protocol=format_protocol(first.task, first.protocol, catalogue),
    )
    # By the name, such as "without wiki1m": the clean score of each seed, if all seeds have one.
    for name, clean_scores in common_clean_scores(results).items():
        # The score is None if too few items are left.
        scores = [clean.score for clean in clean_scores if clean.score is not None]
        has_all_scores = len(scores) == len(clean_scores)
        clean_interval = clean_scores[0].interval if len(clean_scores) == 1 else None
        yield ScoreLine(
            encoder="",
            task=f"  {name}",
            score=_format_mean(scores) if has_all_scores else "–",
            interval=format_interval(clean_interval),
            n=str(clean_scores[0].n),
        )
    if verbose:
        if has_seeds:
            yield from map(_seed_line, results)
        yield from _subset_lines(first)


def _seed_line(result: Result) -> ScoreLine:
    """Return the line of one seed of a task, below the line of their mean.

    The seed is that of training, or of evaluation if nothing was trained; both, as ``1/2``, if
    something was trained and the seed of evaluation is not 0.
    """
    return ScoreLine(
        encoder="",
        task=f"  seed {_format_seed(result)}",
        score=format_points(result.score),
        interval=format_interval(result.interval),
        n=str(result.n),
    )


def _subset_lines(result: Result) -> Iterator[ScoreLine]:
    """Yield a line per subset of a task, with its score and number of items.

    Args:
        result: The result on the task. ``per_subset`` holds the numbers of each subset by metric,
            and its number of items under ``n``.
    """
    # Tasks without a metric in their protocol have no scores of subsets.
    metric = result.protocol.get("metric")
    if metric is None:
        return
    for name, values in result.per_subset.items():
        # format_points: times 100 as text, empty for None.
        yield ScoreLine(
            encoder="",
            task=f"  {name}",
            score=format_points(values.get(metric)) or "–",
            n=f"{values['n']:.0f}",
        )


def _suite_lines(
    encoder: str, results_by_task: Mapping[str, Sequence[Result]], catalogue: Catalogue
) -> Iterator[ScoreLine]:
    """Yield a line with the mean of each suite of which the encoder was scored on all tasks.

    A suite is a named list of tasks. There is no line for a suite of a single task, for one whose
    tasks have no common mean, nor if its tasks were scored with different seeds.

    Args:
        encoder: The encoder's printed name.
        results_by_task: Its results on each task, one per seed.
        catalogue: The cards, which define the suites.
    """
    for suite in suites_within(list(results_by_task), catalogue).values():
        suite_results = [results_by_task[task] for task in suite.tasks]
        # The mean over the tasks for each seed; empty if the tasks have different seeds.
        scores = seed_means(suite_results)
        if not suite.average or len(suite_results) < 2 or not scores:
            continue
        # The accuracy of always answering the most frequent class, which no seed changes. None if a
        # task has no classes.
        majority = suite_mean(
            suite.tasks, score=lambda task: results_by_task[task][0].scores.get("majority")
        )
        yield ScoreLine(
            encoder=encoder,
            task=f"mean of {suite.name}",
            # The mean over the seeds, with their deviation if there are several.
            score=_format_mean(scores),
            majority=format_points(majority),
            interval=format_interval(compute_mean_interval(suite_results)),
        )


def _print_classes(results: Sequence[Result], suffix: str) -> None:
    """Print precision, recall and F1 of each class, as means over seeds, if the task has classes.

    Args:
        results: The results on one task, one per seed. ``per_subset`` holds the numbers of each
            subset of the task by their name.
        suffix: What follows the task in the title.
    """
    # The subsets of a task with classes are its classes. Those of other tasks lack these scores.
    values_by_class = results[0].per_subset
    has_class_scores = all(set(CLASS_SCORES) <= set(values) for values in values_by_class.values())
    if not values_by_class or not has_class_scores:
        return
    rows = []
    for class_name, values in values_by_class.items():
        means = [
            format_points(fmean(result.per_subset[class_name][score_name] for result in results))
            for score_name in CLASS_SCORES
        ]
        # The support is the number of items of the class.
        rows.append([class_name, *means, f"{values['support']:.0f}"])
    seeds = f", mean of {len(results)} seeds" if len(results) > 1 else ""
    print_text(f"\nclasses of {_task_label(results[0])}{suffix}{seeds}\n")
    print_rows(["class", "precision", "recall", "F1", "n"], rows, number_columns=[1, 2, 3, 4])


def print_missing_columns(results: Sequence[Result], need: str) -> None:
    """Print which results lack per-item columns, and the command that makes them.

    Per-item columns hold one value per scored pair or sentence. Nothing is printed if all results
    have theirs.

    Args:
        results: The results whose columns are needed.
        need: What needs them, for example "intervals need".
    """
    if incomplete := without_columns(results):
        missing = describe_missing_columns(incomplete)
        print_paragraph(
            f"{missing}, which {need}; {describe_remedy(make_rescore_remedy(incomplete))}"
        )


def _print_notes(results: Sequence[Result], *, explains_symbols: bool) -> None:
    """Print the notes on results, then a legend of what is in the table of their scores.

    The legend explains, in this order and if the table has it: the accuracy of the majority; clean
    scores, which are over the items without a sentence in some training text, and the subsets that
    are too small for them; the symbols of encoders that were trained on test sentences; and the
    seeds that a deviation is over.

    Args:
        results: The results in the table.
        explains_symbols: Whether to explain the symbols; False if a legend above does.
    """
    _print_own_notes(results)
    if any("majority" in result.scores for result in results):
        print_text("majority: the accuracy of always answering the most frequent class")
    from stsbench.bench.clean import COPIES

    # COPIES is the name for the other splits and folds of a task, in place of a training text.
    for name in dict.fromkeys(clean.name for result in results for clean in result.clean):
        items = (
            "that have no copy in another split or fold"
            if name == f"without {COPIES}"
            else "of which that text holds no sentence"
        )
        print_paragraph(f"{name}: the score of the items {items}")
    omitted_subsets_by_label = {
        f"{result.task}, {clean.name}": ", ".join(clean.left_out)
        for result in results
        for clean in result.clean
        if clean.left_out
    }
    for label, subsets in omitted_subsets_by_label.items():
        print_paragraph(
            f"{label}: not in the mean, for fewer than {MIN_SUBSET_PAIRS} pairs are left of it: "
            f"{subsets}"
        )
    if explains_symbols:
        symbols = {
            OVERLAP_SYMBOLS[result.overlap]
            for result in results
            if result.overlap in OVERLAP_SYMBOLS
        }
        for symbol in sorted(symbols):
            print_text(OVERLAP_LEGENDS[symbol])
    results_by_split = group_by(results, lambda result: (result.encoder, result.task, result.split))
    # The results of tasks with several seeds, whose scores are printed with a deviation.
    results_of_several_seeds = [
        result for group in results_by_split.values() if len(group) > 1 for result in group
    ]
    results_of_several_seeds.sort(key=lambda result: (result.train_seed or 0, result.eval_seed))
    seeds = list(dict.fromkeys(map(_format_seed, results_of_several_seeds)))
    if len(seeds) > 1:
        print_text(f"±: deviation over the seeds {', '.join(seeds)}")


def _print_own_notes(results: Sequence[Result]) -> None:
    """Print each note on results once, behind the names of all tasks that it is about.

    If there are several encoders, the encoder's name precedes the tasks.
    """
    has_several_encoders = len({result.encoder for result in results}) > 1
    # By encoder and note: a dict with the tasks as keys, which is a set that keeps their order.
    tasks_by_note: dict[tuple[str, str], dict[str, None]] = {}
    for result in results:
        for note in result.notes:
            encoder_prefix = f"{result.encoder} on " if has_several_encoders else ""
            tasks_by_note.setdefault((encoder_prefix, note), {})[result.task] = None
    for (encoder_prefix, note), tasks in tasks_by_note.items():
        print_paragraph(f"{encoder_prefix}{', '.join(tasks)}: {note}")


def _format_seed(result: Result) -> str:
    """Return the seed of training, of evaluation if nothing was trained, or both if both vary."""
    if result.train_seed is None:
        return str(result.eval_seed)
    return f"{result.train_seed}/{result.eval_seed}" if result.eval_seed else str(result.train_seed)


def _format_mean(scores: Sequence[float]) -> str:
    mean, deviation = mean_and_deviation(scores)
    return format_points(mean) + ("" if deviation is None else f"±{100 * deviation:.2f}")
