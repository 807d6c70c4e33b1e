"""``stsbench run``."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stsbench.bench import Listener, Plan, run
from stsbench.cards import Catalogue
from stsbench.cli.printing import console, print_json, say, table
from stsbench.errors import StsbenchError, UnknownName, one_line
from stsbench.results import Result
from stsbench.task import suites_within

SHOWN_FAILURES = 3


def run_command(
    *,
    encoders: Sequence[str],
    tasks: str | None,
    protocol: str | None,
    split: str | None,
    seeds: str,
    assign: Sequence[str],
    data: Path | None,
    out: Path,
    store: Path | None,
    no_store: bool,
    fresh: bool,
    verbose: bool,
    cards: Sequence[Path],
    as_json: bool,
) -> int:
    """Carry out a run and print its table; returns 0, or 2 where anything failed."""
    catalogue = Catalogue(cards)
    names = list(dict.fromkeys(n.strip() for one in encoders for n in one.split(",") if n.strip()))
    if encoders and not names:
        raise UnknownName("encoder", ",".join(encoders), [], hint="'stsbench list encoders' lists them")
    plan = Plan(
        encoders=names or ["minilm"],
        tasks=tasks or ("sts" if names else "quickstart"),
        out=out,
        params=parse_assignments(assign),
        protocol=protocol,
        data=data,
        split=split,
        seeds=parse_seeds(seeds),
        store=None if no_store else store or "default",
        fresh=fresh,
        catalogue=catalogue,
    )
    failures: list[str] = []
    results: list[Result] = []
    with _progress(failures) as listener:
        for result in run(plan, listener):
            results.append(result)
    if as_json:
        print_json({"results": [_as_json(r) for r in results], "failures": failures})
    else:
        _print_results(results, catalogue, out, verbose=verbose)
    for failure in failures[:SHOWN_FAILURES]:
        sys.stderr.write(f"stsbench: {failure}\n")
    if len(failures) > SHOWN_FAILURES:
        sys.stderr.write(f"stsbench: and {len(failures) - SHOWN_FAILURES} more failed; --json lists them all\n")
    return 2 if failures else 0


def parse_seeds(text: str) -> list[int]:
    """Read a comma list of whole numbers."""
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise StsbenchError(f"--seeds '{text}': give whole numbers, such as 0,1,2") from error
    if min(seeds) < 0 or max(seeds) >= 1 << 32:
        raise StsbenchError(f"--seeds '{text}': a seed is not negative and below {1 << 32}")
    return seeds


def parse_assignments(assign: Sequence[str]) -> dict[str, Any]:
    """Read ``key=value`` texts; a value is a TOML value where it can be, else the text itself."""
    import tomllib

    params: dict[str, Any] = {}
    for one in assign:
        key, equals, value = one.partition("=")
        if not equals or not key.strip():
            raise StsbenchError(f"--set '{one}': give key=value, such as pooling=cls")
        try:
            params[key.strip()] = tomllib.loads(f"value = {value}")["value"]
        except ValueError:
            params[key.strip()] = value
    return params


@contextmanager
def _progress(failures: list[str]) -> Iterator[Listener]:
    """Show how encoding and scoring go, on stderr and only where someone watches."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    screen = console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as progress:
        bar = progress.add_task("loading", total=None)

        def encoding(done: int, total: int) -> None:
            progress.update(bar, description="encoding", completed=done, total=total)

        def scoring(task: str) -> None:
            progress.update(bar, description=f"scoring {task}")

        def failed(what: str, error: Exception) -> None:
            if not isinstance(error, StsbenchError):
                screen.print("".join(traceback.format_exception(error)), markup=False)
            failure = f"{what}: {one_line(error) or type(error).__name__}"
            # Data that cannot be had fail for every encoder and seed alike.
            if failure not in failures:
                failures.append(failure)

        yield Listener(encoding=encoding, scoring=scoring, failed=failed)


def _as_json(result: Result) -> dict[str, Any]:
    import json

    from stsbench.results import to_json

    fields: dict[str, Any] = json.loads(to_json(result))
    return fields


def _print_results(results: Sequence[Result], catalogue: Catalogue, out: Path, *, verbose: bool) -> None:
    if not results:
        return
    rows = [_row(result) for result in results]
    if verbose:
        rows = [line for result, row in zip(results, rows, strict=True) for line in (row, *_details(result))]
    many = len({result.encoder for result in results}) > 1
    rows += [row for name in dict.fromkeys(r.encoder for r in results) for row in _averages(name, results, catalogue)]
    columns = ["encoder", "task", "score", "95% interval", "n", "protocol"]
    if not many:
        say(f"{results[0].encoder}\n")
        columns, rows = columns[1:], [row[1:] for row in rows]
    console().print(table(columns, rows, right=[len(columns) - 4, len(columns) - 3, len(columns) - 2]))
    for note in dict.fromkeys(f"{r.task}: {note}" for r in results for note in r.notes):
        say(note)
    say(f"\nscores are times 100; results are in {out}")


def _row(result: Result) -> list[str]:
    low, high = result.interval
    name = result.task if result.split in ("test", "all") else f"{result.task} ({result.split})"
    if result.eval_seed:
        name += f" seed {result.eval_seed}"
    interval = f"{100 * low:.2f}–{100 * high:.2f}"
    return [result.encoder, name, f"{100 * result.score:.2f}", interval, str(result.n), result.protocol["name"]]


def _details(result: Result) -> Iterator[list[str]]:
    metric = str(result.protocol.get("metric", ""))
    for name, values in result.per_subset.items():
        score = values.get(metric, values.get("f1", next(iter(values.values()))))
        size = values.get("n", values.get("support", 0))
        yield ["", f"  {name}", f"{100 * score:.2f}", "", f"{size:.0f}", ""]


def _averages(encoder: str, results: Sequence[Result], catalogue: Catalogue) -> Iterator[list[str]]:
    """A row for each suite all of whose tasks were scored, by one protocol an evaluator."""
    mine = {r.task: r for r in results if r.encoder == encoder and r.eval_seed == results[0].eval_seed}
    for suite in suites_within(list(mine), catalogue).values():
        if suite.average and len(suite.tasks) > 1:
            scores = [mine[task].score for task in suite.tasks]
            yield [encoder, f"mean of {suite.name}", f"{100 * sum(scores) / len(scores):.2f}", "", "", ""]
