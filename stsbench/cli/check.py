"""``stsbench check``, ``lock``, ``verify``, ``compare`` and ``parity``: scores against old ones, their items and each other."""

from __future__ import annotations

import dataclasses
import secrets
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TextIO

import msgspec

from stsbench.api.names import Names, chosen_side, compared_results
from stsbench.api.results import compared
from stsbench.bench.plan import RunPlan, plan_tasks, read_tasks
from stsbench.bench.score import compared_sentences, measure_side
from stsbench.boards.render import TERMINAL
from stsbench.boards.render.figures import WRITERS, comparison_figure, render_comparison
from stsbench.check import reports
from stsbench.check.gate import RULES, Check, check, check_published, not_checked, parse_tolerances
from stsbench.check.lock import LockedCell, Side, lock_cells, read_lock, read_side, to_lock
from stsbench.check.verify import Known, Verification, Verified, verify
from stsbench.cli import options as opt
from stsbench.cli.printing import (
    MISTAKE,
    NOT_SAME,
    complain,
    complain_of_all,
    cut,
    print_json,
    say,
    say_words,
    write_or_say,
)
from stsbench.cli.progress import shown_count, shown_work
from stsbench.cli.screen import print_rows
from stsbench.core import settings
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, OutputError, StsbenchError, choose, one_line
from stsbench.core.files import append_line, write_whole
from stsbench.data.splits import LabelledPairSplit, LabelledSplit, PairSplit
from stsbench.data.task import expand_names, holds
from stsbench.encoders.load import find_encoder
from stsbench.numbers.statistics import sentence_columns
from stsbench.significance.comparison import Comparison, Difference, columns, compare, notes_below, sentences
from stsbench.significance.parity import ASTRAY, PROBES, Embedded, Form, Parity, judge

SHORT = 24
"""A table of more rows shows those that matter."""


def check_command(
    context: opt.Context,
    new: opt.NewResults,
    *,
    against: opt.Against,
    encoder: opt.OnlyEncoders,
    against_encoder: opt.AgainstEncoders,
    tasks: opt.OnlyTasks = None,
    rule: opt.RuleName = "absolute",
    tolerance: opt.Tolerances,
    exact: opt.Exact = False,
    allow_missing: opt.AllowMissing = False,
    junit: opt.Junit = None,
    github: opt.Github = False,
    summary: opt.Summary = None,
    cards: opt.Cards,
    as_json: opt.AsJson = False,
) -> int:
    """Check new scores against old ones, for CI.

    Exit code 0: fine; 1: a regression; 2: not comparable.

    Example: stsbench check results --against scores.lock.json
    """
    published = str(against) == "published" and not against.exists()
    if published:
        given = opt.Given.of(context)
        given.idle("with --against published", "--against-encoder", "--rule", "--allow-missing")

    def judged() -> Check:
        tolerances, catalogue = parse_tolerances(tolerance), Catalogue(cards)
        wanted = expand_names(tasks, catalogue) if tasks else None
        side = _side(new, encoder, wanted, catalogue)
        if published:
            return check_published(side, catalogue, exact=exact, tolerances=tolerances)
        old = _side(against, against_encoder, wanted, catalogue)
        return check(
            side,
            old,
            rule=choose("rule", rule, {one: one for one in RULES}),
            exact=exact,
            allow_missing=allow_missing,
            chosen=bool(encoder) or side.is_in(new),
            tolerances=tolerances,
            suites=catalogue.suites(),
        )

    # GitHub's runner reads both streams, asked for annotations or not; JSON on stdout is to stay JSON.
    watched, stream = github or settings.on_github(), sys.stderr if as_json else sys.stdout
    with _no_commands(stream if watched else None):
        found, mistake = _reported(judged, junit, summary)
        if mistake is not None:
            complain(reports.no_command(str(mistake)) if watched else mistake)
        elif as_json:
            verdicts = [dataclasses.asdict(verdict) for verdict in found.verdicts]
            facts = {"exit": found.exit_code, "rule": found.rule, "summary": found.summary, "verdicts": verdicts}
            print_json(facts, shown=reports.no_command_json if watched else str)
        else:
            _print_check(found)
    if github:
        stream.write("".join(f"{line}\n" for line in reports.github_lines(found)))
    return found.exit_code


def _reported(
    judged: Callable[[], Check], junit: Path | None, summary: Path | None
) -> tuple[Check, StsbenchError | None]:
    """What was judged, or why nothing was, in the files of reports too."""
    try:
        return _write_reports(judged(), junit, summary), None
    except Exception as error:
        said = one_line(error)
        if not isinstance(error, StsbenchError):
            said = f"stsbench itself failed: {type(error).__name__}: {said}"
        found = not_checked(said)
        for files in ((junit, None), (None, summary)):
            with suppress(StsbenchError):
                _write_reports(found, *files)
        if not isinstance(error, StsbenchError):
            raise
        return found, error


def _write_reports(found: Check, junit: Path | None, summary: Path | None) -> Check:
    if junit is not None:
        write_whole(junit, reports.junit(found))
    if summary is not None:
        # GitHub's job summary is one that every step adds to.
        append_line(summary, reports.markdown(found).removesuffix("\n"))
    return found


@contextmanager
def _no_commands(stream: TextIO | None) -> Iterator[None]:
    """While within, GitHub takes no line of ours for a command: names come from files of others.

    What ends it nobody can know before, so no name can.
    """
    if stream is None:
        yield
        return
    token = secrets.token_hex(16)
    stream.write(f"::stop-commands::{token}\n")
    stream.flush()
    try:
        yield
        sys.stdout.flush()
    finally:
        stream.write(f"::{token}::\n")
        stream.flush()


def lock_command(
    *,
    results: opt.ResultsArgument = Path("results"),
    out: opt.LockFile = Path("scores.lock.json"),
    encoder: opt.OnlyEncoders,
    tasks: opt.OnlyTasks = None,
    cards: opt.Cards,
    as_json: opt.AsJson = False,
) -> None:
    """Write scores to a lock file for 'stsbench check'.

    It holds what they were made with, and what paired tests need.

    Example: stsbench lock results --out scores.lock.json
    """
    catalogue = Catalogue(cards)
    wanted = expand_names(tasks, catalogue) if tasks else None
    if not results.is_dir():
        raise OutputError(f"results folder '{results}' does not exist; 'stsbench run' makes it")
    side = _side(results, encoder, wanted, catalogue).verified()
    for problem in side.problems:
        raise DataError(f"{problem.line}; repair or remove the file, for a lock without it would not check it")
    if not (held := side.results()):
        raise DataError(f"{results}: holds no results to lock")
    kept: list[LockedCell] = []
    with suppress(DataError, OutputError):
        kept = read_lock(out)
    cells = lock_cells(held, kept)
    write_whole(out, to_lock(cells))
    bare = sum(cell.paired is None for cell in cells)
    if as_json:
        encoders = sorted({cell.encoder for cell in cells})
        print_json({"lock": str(out), "cells": len(cells), "encoders": encoders, "without_items": bare})
    else:
        more = f"; {bare} without what a paired test needs, for their per-item columns are missing" if bare else ""
        say(f"locked {len(cells)} cell{'' if len(cells) == 1 else 's'} in {out}{more}")


def _side(path: Path, encoders: Sequence[str], tasks: Sequence[str] | None, catalogue: Catalogue) -> Side:
    side = chosen_side(encoders, read_side(path, tasks=tasks), catalogue, path)
    if line := side.older_line(catalogue):
        complain(line)
    return side


def _print_check(found: Check) -> None:
    shown = list(found.verdicts)
    if len(shown) > SHORT:
        shown = [verdict for verdict in shown if reports.matters(verdict)]
    cells = [reports.row(verdict) for verdict in shown]
    if len({verdict.encoder for verdict in found.verdicts}) == 1:
        say(f"{found.verdicts[0].encoder}\n")
        cells = [["", *one[1:]] for one in cells]
    if cells:
        print_rows(reports.COLUMNS, cells, right=[2, 3, 4, 5], sparse=True)
        say("")
    for verdict in shown:
        if reports.matters(verdict):
            say_words(f"{verdict.encoder} on {verdict.task}: {verdict.outcome}: {verdict.reason}")
    say(f"{found.summary}; scores are times 100")


def verify_command(
    *,
    results: opt.VerifiedResults = Path("results"),
    data: opt.Data = None,
    cards: opt.Cards,
    as_json: opt.AsJson = False,
) -> int:
    """Make every score again from its items.

    Hashes, protocols and data are checked too; no encoder is needed.

    Example: stsbench verify results --data DIR
    """
    catalogue, at = Catalogue(cards), opt.data_folder(data)
    read = cache(_read)
    with shown_count("results verified") as progress:
        found = verify(results, catalogue, lambda one: read(one.task, one.split, catalogue, at), progress)
    if as_json:
        rows = [_verified_facts(one) for one in found.files]
        print_json({"exit": found.exit_code, "summary": found.summary, "results": rows})
    else:
        _print_verified(found)
    return found.exit_code


def _read(name: str, split: str, catalogue: Catalogue, folder: Path | None) -> Known | None:
    if name not in catalogue.paths("tasks") or split not in catalogue.task(name).splits:
        return None
    (task,) = plan_tasks(name, catalogue, data=folder, split=split)
    card = task.task.card
    if card.package is None and not all(holds(card.local, one, folder) for one in task.wanted):
        return None
    task.load()
    # Labels are not among a split's own columns.
    read, columns = task.splits[split], dict[str, Any]()
    if isinstance(read, PairSplit):
        columns = {"gold": read.gold, **({"subset": list(read.subset)} if read.subsets_known else {})}
    elif isinstance(read, LabelledSplit | LabelledPairSplit):
        columns = {"labels": read.labels}
    return Known(task.digest, columns and columns | sentence_columns(*read.sides))


def _verified_facts(one: Verified) -> dict[str, Any]:
    result = one.result
    cell = {} if result is None else {"encoder": result.encoder, "task": result.task, "split": result.split}
    facts = {"verdict": one.standing, "problems": one.problems, "not_verified": one.unknown, "data_at_hand": one.data}
    return {"path": str(one.path), **cell, **facts}


def _print_verified(found: Verification) -> None:
    failed = ((one.path, line) for one in found.of("failed") for line in one.problems)
    complain_of_all("failed", (line if str(path) in line else f"{path}: {line}" for path, line in failed))
    reasons: dict[str, list[Verified]] = {}
    for one in found.of("not verified"):
        reasons.setdefault("; ".join(one.unknown), []).append(one)
    for reason, files in reasons.items():
        counts = Counter(one.path.parent.name for one in files)
        say(f"not verified: {reason}: {', '.join(f'{name} {count}' for name, count in counts.items())}")
    say(found.summary)
    if found.exit_code == MISTAKE and not found.of("failed"):
        say("nothing could be verified")


def compare_command(
    context: opt.Context,
    encoders: opt.ComparedEncoders,
    *,
    results: opt.ResultsFolder = Path("results"),
    tasks: opt.OnlyTasks = None,
    protocol: opt.OnlyProtocol = None,
    seed: opt.CompareSeed = 0,
    independent: opt.Independent = False,
    output: opt.CompareFormat = "terminal",
    out: opt.TableFile = None,
    plot: opt.Plot = None,
    cards: opt.Cards,
    as_json: opt.AsJson = False,
) -> None:
    """Test which differences between encoders are significant.

    The tests are paired, over the same items.

    Example: stsbench compare minilm glove-840b --tasks sts
    """
    given = opt.Given.of(context)
    given.apart("--json", "--format")
    opt.check_figure("--plot", plot)
    if not results.is_dir() and all(Path(one).is_dir() for one in encoders):
        given.idle("where all that is compared are folders", "--results")
    fmt = opt.written_as(output, out, as_json=as_json)
    choose("format", fmt, {TERMINAL: None, **WRITERS})
    if len(encoders) < 2:
        raise StsbenchError("compare needs at least two encoders, or folders of results")
    catalogue = Catalogue(cards)
    by_name = compared_results(
        encoders, results, catalogue, skipped=lambda line: complain(f"skipped: {line}"), older=complain
    )
    found = compared(by_name, catalogue, tasks=tasks, protocol=protocol, seed=seed, independent=independent)
    if plot is not None:
        write_whole(plot, comparison_figure(found).to_bytes(plot.suffix.removeprefix(".")))
        # On stdout where that is for people, and not beside JSON or CSV.
        if fmt == TERMINAL or out is not None:
            say(f"wrote {plot}")
    if fmt == TERMINAL:
        _print_comparison(found)
    else:
        write_or_say(render_comparison(found, fmt), out)


def _print_comparison(comparison: Comparison) -> None:
    for (first, second, differences), sentence in zip(comparison.pairs(), sentences(comparison), strict=True):
        say(f"A = {first}\nB = {second}\n")
        _print_differences(differences)
        say("")
        say_words(sentence)
        say("")
    for line in notes_below(comparison):
        say_words(line)


def _print_differences(differences: Sequence[Difference]) -> None:
    heads, rows = columns(differences)
    print_rows(heads, rows, right=range(1, len(heads)))


OF_TASKS = "of the tasks"


def parity_command(
    first: opt.FirstEncoder,
    second: opt.SecondEncoder,
    *,
    tasks: opt.TasksToScore = "sts",
    protocol: opt.Protocols = None,
    split: opt.Split = None,
    margin: opt.Margin = 0.5,
    data: opt.Data = None,
    store: opt.Store = None,
    no_store: opt.NoStore = False,
    cards: opt.Cards,
    as_json: opt.AsJson = False,
) -> int:
    """Test whether two encoders that should be identical are.

    The same sentences go through both: those of the tasks, and long, empty and other odd ones. The exit code is 0 where they
    are the same, 1 where they are different.

    Example: stsbench parity minilm minilm+dtype=bfloat16 --tasks stsb
    """
    catalogue, kept = Catalogue(cards), opt.kept_in(store, no_store=no_store)
    names = [Names(catalogue).one_to_load(one) for one in (first, second)]
    if names[0] == names[1]:
        raise StsbenchError(f"parity was given '{names[0]}' twice; give two encoders")
    known = [find_encoder(name, catalogue=catalogue) for name in names]
    plan = RunPlan(tasks=tasks, protocol=protocol, data=data, split=split, store=kept, catalogue=catalogue)

    def refuse(what: str, error: StsbenchError) -> None:
        raise error

    scored = read_tasks(plan.scored, refuse)
    sentences = [*PROBES, *((OF_TASKS, text) for text in compared_sentences(scored))]
    with shown_work() as shown:
        texts = [text for _, text in sentences]
        sides = [
            measure_side(one, scored, texts, plan, shown.listener(name, noticed=complain))
            for name, one in zip(names, known, strict=True)
        ]
    embedded = [Embedded(Form(side.type, side.embeddings.shape[1]), side.embeddings) for side in sides]
    comparison = compare({name: side.results for name, side in zip(names, sides, strict=True)})
    found = judge(embedded[0], embedded[1], sentences, comparison, margin=margin / 100)
    if as_json:
        keys = ("verdict", "reasons", "forms", "rows", "distance", "strays", "neighbour", "kept")
        facts = {key: msgspec.to_builtins(_named(getattr(found, key))) for key in keys}
        differences = msgspec.to_builtins(comparison.differences)
        print_json({"encoders": comparison.encoders, "same": found.same, **facts, "differences": differences})
    else:
        _print_parity(found)
    return 0 if found.same else NOT_SAME


def _print_parity(found: Parity) -> None:
    comparison = found.comparison
    for letter, name, form in zip("AB", comparison.encoders, found.forms, strict=True):
        say(f"{letter} = {name} ({form})")
    if found.rows:
        rows = [[r.kind, f"{r.n}", f"{r.worst:.5f}", f"{r.median:.5f}", f"{r.astray}"] for r in found.rows]
        say("")
        heads = ["sentences", "n", "worst cosine", "median", f"below {ASTRAY:g}"]
        print_rows(heads, rows, right=range(1, 5))
        say(f"\nlargest distance of two embeddings: {found.distance:.2g} of the longer one's length")
    before, after = found.neighbour.cosines
    say_words(
        f"nearest neighbours: {100 * found.kept:.1f}% kept; the largest change of a cosine is {before:.3f} to {after:.3f}, "
        f"'{cut(found.neighbour.text)}' and '{cut(found.neighbour.neighbour)}'"
    )
    if found.strays:
        say("\nsentences that differ most\n")
        strays = [[f"{one.cosine:.5f}", one.kind, cut(one.text)] for one in found.strays]
        print_rows(["cosine", "kind", "sentence"], strays, right=[0], names=[1])
    say("")
    _print_differences(comparison.differences)
    for line in comparison.notes:
        say_words(line)
    say("")
    say_words(f"verdict: {found.verdict}")
    for reason in found.reasons:
        say_words(f"* {reason}")


def _named(value: Any) -> Any:  # noqa: ANN401 - any part of a Parity
    """A part with the names of its fields, which JSON of a tuple has not."""
    if hasattr(value, "_asdict"):
        return {key: _named(one) for key, one in value._asdict().items()}
    return [_named(one) for one in value] if isinstance(value, list | tuple) else value
