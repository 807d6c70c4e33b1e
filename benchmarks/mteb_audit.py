"""What does not fit in MTEB's public STS results: which scores, by how much, in which files.

    python benchmarks/mteb_audit.py               # prints the findings as markdown
    python benchmarks/mteb_audit.py --clone DIR   # and those on main scores, which need the files
    python benchmarks/mteb_audit.py --csv FILE    # writes all findings, one line for each file

It reads the table that is shipped with the package; main scores, and scores as they are written,
are only in the files of a clone of embeddings-benchmark/results. A finding says that numbers do
not fit each other, and no more: a run may have failed, a file may have been edited, a prompt may
be missing.
"""

from __future__ import annotations

import argparse
import csv
import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stsbench.boards.mteb.board import read_public_source, score_task
from stsbench.boards.mteb.scores import (
    METRIC,
    MtebResult,
    join_revisions,
    list_metrics,
    parse_json,
    read_public_results,
)
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError
from stsbench.data.mteb.facts import (
    SplitAndSubset,
    count_pairs,
    list_same_text_revisions,
    read_mteb_facts,
)

DEFAULT_PART = SplitAndSubset("test", "default")
SAME_PAIRS = (
    ("STSBenchmark", DEFAULT_PART, "STSBenchmarkMultilingualSTS", SplitAndSubset("test", "en")),
    *(
        ("STS22", SplitAndSubset("test", subset), "STS22.v2", SplitAndSubset("test", subset))
        for subset in ("en", "de", "de-pl", "fr-pl")
    ),
)
"""Parts of two tasks that hold the same pairs."""
MAX_DIFFERENCE = 1.0
"""Points by which two scores on the same pairs may differ: prompts and precision differ too."""
MAX_MAIN_DIFFERENCE = 5e-5
"""How far a main score may lie from the Spearman correlation of cosines: some are rounded."""
MAX_TWICE_DIVIDED = 0.011
"""A score below this is one in points that was divided by 100 twice, if others are like theirs."""
MAX_DISTANCE = 0.2
"""How far such a score, times 100, may lie from the median of the model's scores."""
MAX_RESIDUAL = -40.0
"""Points by which a score lies below what model and language let expect."""
MIN_EQUAL_SCORES = 5
"""As many scores must be equal for two models to be called alike."""
MAX_SHOWN = 40


class Finding(NamedTuple):
    """One thing that does not fit."""

    place: str
    """Where it is, for the page: mostly the folder of the model, its revision and the file."""
    fact: str
    size: float
    """By how much it does not fit; the largest are shown first."""
    files: Sequence[str]
    """The paths of the files in the repository."""


def name_file(result: MtebResult, task: str = "") -> str:
    """Return the path of a result file in the repository.

    Args:
        result: The result.
        task: Another task of the same model and revision.
    """
    folder = result.model.replace("/", "__")
    return f"results/{folder}/{result.revision}/{task or result.task}.json"


def shorten_file(path: str) -> str:
    """Return a path without the leading ``results``, with the beginning of a commit."""
    return re.sub(r"([0-9a-f]{8})[0-9a-f]{32}", r"\1", path.removeprefix("results/"))


def make_finding(result: MtebResult, fact: str, size: float) -> Finding:
    """Return a finding of one file."""
    path = name_file(result)
    return Finding(shorten_file(path), fact, size, [path])


def compare_same_pairs(results: Sequence[MtebResult]) -> Iterator[Finding]:
    """Yield models with two scores on the same pairs that differ."""
    counts = count_pairs(Catalogue())
    result_by_key = {(result.model, result.revision, result.task): result for result in results}
    for (model, revision, task), result in result_by_key.items():
        for first_task, first_part, second_task, second_part in SAME_PAIRS:
            second = result_by_key.get((model, revision, second_task))
            if task != first_task or second is None:
                continue
            scores = (result.scores.get(first_part), second.scores.get(second_part))
            has_same_text = all(
                tried.data_revision in list_same_text_revisions(tried.task)
                for tried in (result, second)
            )
            if None in scores or not has_same_text:
                continue
            first_points, second_points = (100 * (score or 0.0) for score in scores)
            difference = abs(first_points - second_points)
            n_pairs = counts[second_task, second_part]
            if difference > MAX_DIFFERENCE:
                yield Finding(
                    f"{shorten_file(name_file(result))}, {second_task}.json ({second_part.subset})",
                    f"{first_points:.2f} and {second_points:.2f} on the same {n_pairs:,} pairs",
                    difference,
                    [name_file(result), name_file(second)],
                )


def find_other_scales(results: Sequence[MtebResult]) -> Iterator[Finding]:
    """Yield files whose scores are of another scale than the model's other ones."""
    scores_by_model: dict[str, list[float]] = {}
    for result in results:
        scores_by_model.setdefault(result.model, []).extend(result.scores.values())
    for result in results:
        usual_score = statistics.median(scores_by_model[result.model])
        small_scores = [score for score in result.scores.values() if 0 < score < MAX_TWICE_DIVIDED]
        if len(small_scores) <= len(result.scores) / 2:
            continue
        small_score = statistics.median(small_scores)
        if abs(100 * small_score - usual_score) < MAX_DISTANCE:
            fact = (
                f"median {small_score:.6f} of {len(result.scores)} scores; "
                f"the median of all of the model's scores is {usual_score:.2f}"
            )
            yield make_finding(result, fact, usual_score / small_score)


def find_low_subsets(results: Sequence[MtebResult]) -> Iterator[Finding]:
    """Yield scores far below what the model's other subsets and other models let expect.

    The expected score of a model on a subset is the median of the model, plus the median over
    models of the difference of the subset's score to the model's median.
    """
    for task, facts in read_mteb_facts().tasks.items():
        if len(facts.subsets) < 3:
            continue
        of_task = [result for result in results if result.task == task]
        parts = sorted({part for result in of_task for part in result.scores})
        scores = np.array(
            [[100 * result.scores.get(part, np.nan) for part in parts] for result in of_task]
        )
        enough = np.isfinite(scores).sum(axis=1) >= 3
        model_medians = np.full(len(of_task), np.nan)
        model_medians[enough] = np.nanmedian(scores[enough], axis=1)
        offsets = scores - model_medians[:, None]
        residuals = offsets - np.nanmedian(offsets[enough], axis=0)
        for row, column in zip(*np.nonzero(residuals < MAX_RESIDUAL), strict=True):
            expected = scores[row, column] - residuals[row, column]
            fact = (
                f"{parts[column].subset}: {scores[row, column]:.2f}, where {expected:.2f} "
                "would be like its other languages"
            )
            yield make_finding(of_task[row], fact, -float(residuals[row, column]))


def find_mixed_revisions(results: Sequence[MtebResult]) -> Iterator[Finding]:
    """Yield benchmarks whose means hold tasks of which models were scored on other data."""
    joined = join_revisions(results)
    for benchmark, tasks in read_mteb_facts().benchmarks.items():
        n_complete = 0
        files: list[str] = []
        n_by_task: dict[str, int] = {}
        n_mixed = 0
        for results_by_task in joined.values():
            of_tasks = [results_by_task[task] for task in tasks if task in results_by_task]
            scores = [score_task(result, tasks[result.task]) for result in of_tasks]
            if None in scores or len(scores) < len(tasks):
                continue
            n_complete += 1
            others = [
                result
                for result in of_tasks
                if result.data_revision not in list_same_text_revisions(result.task)
            ]
            n_mixed += bool(others)
            files += map(name_file, others)
            for result in others:
                n_by_task[result.task] = n_by_task.get(result.task, 0) + 1
        if n_mixed:
            counts = ", ".join(f"{task} {count}" for task, count in n_by_task.items())
            fact = f"{n_mixed} of {n_complete} models with all tasks, by task: {counts}"
            yield Finding(benchmark, fact, n_mixed, files)


def find_copies(results: Sequence[MtebResult]) -> Iterator[Finding]:
    """Yield pairs of models with equal scores on several tasks."""
    scores_by_model: dict[str, dict[tuple[str, SplitAndSubset], float]] = {}
    for model, results_by_task in join_revisions(results).items():
        scores_by_model[model] = {
            (task, part): score
            for task, result in results_by_task.items()
            for part, score in result.scores.items()
        }
    models_by_score: dict[tuple[tuple[str, SplitAndSubset], float], list[str]] = {}
    for model, scores in scores_by_model.items():
        for key, score in scores.items():
            models_by_score.setdefault((key, score), []).append(model)
    n_equal: dict[tuple[str, str], int] = {}
    for models in models_by_score.values():
        for pair in combinations(sorted(models), 2):
            n_equal[pair] = n_equal.get(pair, 0) + 1
    for (first, second), count in n_equal.items():
        n_shared = len(scores_by_model[first].keys() & scores_by_model[second].keys())
        if count >= MIN_EQUAL_SCORES:
            fact = f"{count} of {n_shared} scores are equal"
            folders = [f"results/{model.replace('/', '__')}" for model in (first, second)]
            yield Finding(f"{first}, {second}", fact, count / n_shared, folders)


def count_revisions(results: Sequence[MtebResult]) -> Iterator[Finding]:
    """Yield tasks with several data revisions, and how many files each has."""
    files_by_task: Mapping[str, dict[str, list[str]]] = {
        task: {} for task in read_mteb_facts().tasks
    }
    for result in results:
        files = files_by_task[result.task].setdefault(result.data_revision, [])
        files.append(name_file(result))
    for task, files_by_revision in files_by_task.items():
        if len(files_by_revision) < 2:
            continue
        same_text = list_same_text_revisions(task)
        words = []
        other_files: list[str] = []
        for revision, files in sorted(files_by_revision.items(), key=lambda item: -len(item[1])):
            is_same = revision in same_text
            words.append(f"{revision[:8]} {len(files)}" + ("" if is_same else " (not known)"))
            other_files += [] if is_same else files
        yield Finding(task, ", ".join(words), len(files_by_revision), other_files)


def find_main_scores(clone: Path) -> Iterator[Finding]:
    """Yield files of which a main score is none, is another correlation, or is out of range.

    Args:
        clone: A clone of the repository.
    """
    for path in sorted((clone / "results").rglob("*.json")):
        if path.stem not in read_mteb_facts().tasks:
            continue
        name = path.relative_to(clone).as_posix()
        try:
            task_scores = list(list_metrics(parse_json(path))[1])
        except DataError as error:
            yield Finding(shorten_file(name), str(error), math.inf, [name])
            continue
        problems = [
            f"{part.split}, {part.subset}: {problem}"
            for part, fields in task_scores
            if (problem := describe_main_score(fields))
        ]
        if problems:
            yield Finding(shorten_file(name), "; ".join(problems), len(problems), [name])


def describe_main_score(fields: Mapping[str, Any]) -> str:
    """Return why the main score of a subset does not fit; empty if it does, or there is none."""
    main_score, score = fields.get("main_score"), fields.get(METRIC)
    if main_score is None:
        return ""
    if not math.isfinite(main_score):
        return "main score is no number"
    if abs(main_score) > 1:
        return f"main score {main_score:.4f} is no correlation"
    if score is None:
        return f"main score {main_score:.4f}, without {METRIC}"
    if abs(main_score - score) > MAX_MAIN_DIFFERENCE:
        return f"main score {main_score:.4f}, {METRIC} {score:.4f}"
    return ""


class Section(NamedTuple):
    """Findings of one kind."""

    title: str
    explanation: str
    findings: Sequence[Finding]
    """The largest first."""


def make_section(title: str, explanation: str, findings: Iterable[Finding]) -> Section:
    """Return a section with the largest findings first."""
    return Section(title, explanation, sorted(findings, key=lambda finding: -finding.size))


def print_section(section: Section) -> None:
    """Print one kind of finding with a table."""
    n_findings = len(section.findings)
    count = f"{n_findings} finding{'s' * (n_findings != 1)}"
    print(f"\n## {section.title}\n\n{section.explanation} {count}.")
    if not n_findings:
        return
    print("\n| where | what |\n| --- | --- |")
    for finding in section.findings[:MAX_SHOWN]:
        print(f"| {finding.place} | {finding.fact} |")
    if n_findings > MAX_SHOWN:
        print(f"\n{n_findings - MAX_SHOWN} more are not listed here; `--csv FILE` writes all.")


def list_sections(results: Sequence[MtebResult]) -> Iterator[Section]:
    """Yield all kinds of findings that the shipped table shows."""
    yield make_section(
        "The same pairs under two names",
        "The test pairs of STSBenchmark are those of STSBenchmarkMultilingualSTS in English, and "
        "four parts of STS22 and STS22.v2 are the same. "
        f"Scores that differ by more than {MAX_DIFFERENCE:g} point:",
        compare_same_pairs(results),
    )
    yield make_section(
        "Scores of another scale",
        "Most scores of the file look like points that were divided by 100 twice:",
        find_other_scales(results),
    )
    yield make_section(
        "Data revisions of a task",
        "One column holds files of several data revisions. Those marked are not known to hold the "
        "text of the present one:",
        count_revisions(results),
    )
    yield make_section(
        "Means over other data",
        "Models whose mean over a benchmark's tasks holds a score of a data revision that is not "
        "known to hold the same text. `leaderboard` gives them no mean:",
        find_mixed_revisions(results),
    )
    yield make_section(
        "Languages far below a model's others",
        f"Scores at least {-MAX_RESIDUAL:g} points below what the model's other languages and "
        "other models let expect. Many are true: a model may not know a language.",
        find_low_subsets(results),
    )
    yield make_section(
        "Models with equal scores",
        f"Pairs of models with at least {MIN_EQUAL_SCORES} equal scores, to all digits that are "
        "kept here:",
        find_copies(results),
    )


def print_page(results: Sequence[MtebResult], sections: Iterable[Section]) -> None:
    """Print all findings as a page."""
    n_scores = sum(len(result.scores) for result in results)
    n_models = len({result.model for result in results})
    commit = read_public_source()["commit"]
    print(
        "# What does not fit in MTEB's public STS results\n\n"
        "This page is what `python benchmarks/mteb_audit.py --clone DIR` prints. A finding says "
        "that numbers do not fit each\nother, and no more: a run may have failed, a file may have "
        "been edited, a prompt may be missing. No model is accused of\nanything. With `--csv FILE` "
        "all findings are written with all their files.\n\n"
        f"{n_scores:,} scores of {n_models} models in {len(results):,} files, "
        f"commit {commit[:8]} of embeddings-benchmark/results."
    )
    for section in sections:
        print_section(section)


def write_csv(path: Path, sections: Iterable[Section]) -> None:
    """Write all findings, one line for each file."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["kind", "where", "what", "file"])
        for section in sections:
            for finding in section.findings:
                for file in finding.files:
                    writer.writerow([section.title, finding.place, finding.fact, file])


def main() -> None:
    """Print all findings, or write them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--clone", type=Path, help="a clone of embeddings-benchmark/results")
    parser.add_argument("--csv", type=Path, help="the file to write all findings to")
    arguments = parser.parse_args()
    results = read_public_results()
    sections = list(list_sections(results))
    if arguments.clone is not None:
        main_scores = make_section(
            "Main scores",
            f"Files whose main score is not their Spearman correlation of cosines (`{METRIC}`), or "
            "is no number from -1 to 1. Without that correlation, which people have not, the main "
            "score is taken; one that is no number is left out.",
            find_main_scores(arguments.clone),
        )
        sections.append(main_scores)
    if arguments.csv is not None:
        write_csv(arguments.csv, sections)
    else:
        print_page(results, sections)


if __name__ == "__main__":
    main()
