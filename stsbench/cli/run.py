"""``stsbench run``."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from stsbench.bench.cells import RunSettings
from stsbench.bench.dry_run import forecast_run
from stsbench.bench.listener import Listener
from stsbench.bench.run import run
from stsbench.cards.catalogue import Catalogue
from stsbench.cli.dry_run import print_forecasts
from stsbench.cli.exit_codes import BUG, MISTAKE
from stsbench.cli.names import Names
from stsbench.cli.options.encoders import RunOptions
from stsbench.cli.printing import complain, console, print_json, say
from stsbench.cli.scores import print_scores
from stsbench.encoders.trained import trained_runs
from stsbench.encoders.unfinished import unfinished_runs
from stsbench.errors import StsbenchError, one_line
from stsbench.results.record import Result

SHOWN_FAILURES = 3


def run_command(options: RunOptions) -> int:
    """Carry out a run and print its table; returns 0, 2 where anything failed, 3 where that was a bug."""
    catalogue = Catalogue(options.cards)
    names = Names(catalogue).to_load([*options.encoders, *options.encoder], options.results)
    settings = RunSettings(
        encoders=names or ["minilm"],
        tasks=options.tasks or ("sts" if names else "quickstart"),
        out=options.results,
        params=parse_assignments(options.assign),
        protocol=options.protocol,
        data=options.data,
        split=options.split,
        seeds=parse_seeds(options.seeds),
        store=None if options.no_store else options.store or "default",
        fresh=options.fresh,
        catalogue=catalogue,
    )
    failed = Failures()
    if options.dry_run:
        with _progress(failed) as listener:
            forecasts = list(forecast_run(settings, listener))
        print_forecasts(forecasts, failed.lines, as_json=options.as_json)
    else:
        with _progress(failed) as listener:
            results = list(run(settings, listener))
        _print_results(results, settings, failed.lines, verbose=options.verbose, as_json=options.as_json)
    _name_unfinished(names)
    for line in failed.lines[:SHOWN_FAILURES]:
        complain(line)
    if len(failed.lines) > SHOWN_FAILURES:
        complain(f"and {len(failed.lines) - SHOWN_FAILURES} more failed; --json lists them all")
    return failed.code


def _print_results(
    results: Sequence[Result], settings: RunSettings, failures: Sequence[str], *, verbose: bool, as_json: bool
) -> None:
    if as_json:
        print_json({"results": [_as_json(r) for r in results], "failures": failures})
    elif results:
        print_scores(results, settings.catalogue, verbose=verbose)
        folders = {one.path_in(settings.out).parent for one in results}
        say(f"Results: {folders.pop() if len(folders) == 1 else settings.out}/")


class Failures:
    """What failed while the rest went on: a line each, and the worst exit code."""

    def __init__(self) -> None:
        """Nothing has failed yet."""
        self.lines: list[str] = []
        self.code = 0

    def add(self, what: str, error: Exception) -> None:
        """Note one; data that cannot be had fail for every encoder and seed alike, and are told once."""
        self.code = max(self.code, MISTAKE if isinstance(error, StsbenchError) else BUG)
        line = f"{what}: {one_line(error) or type(error).__name__}"
        if line not in self.lines:
            self.lines.append(line)


def _name_unfinished(names: Sequence[str]) -> None:
    """Say which seeds of trained recipes are missing; where no seed is done, that is the run's failure."""
    for unfinished in (one for name in names if trained_runs(name) for one in unfinished_runs(name)):
        complain(f"not scored: {unfinished}")


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
        if key.strip() in params:
            raise StsbenchError(f"--set '{one}': {key.strip()} is given twice")
        try:
            params[key.strip()] = tomllib.loads(f"value = {value}")["value"]
        except ValueError:
            params[key.strip()] = value
    return params


@contextmanager
def _progress(failures: Failures) -> Iterator[Listener]:
    """Show how encoding and scoring go, on stderr and only where someone watches."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    screen = console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as progress:
        bar = progress.add_task("loading", total=None)

        def encoding(done: int, total: int) -> None:
            progress.update(bar, description="encoding", completed=done, total=total)

        def scoring(task: str) -> None:
            progress.update(bar, description=f"scoring {task}")

        def failed(what: str, error: Exception) -> None:
            if not isinstance(error, StsbenchError):
                screen.print("".join(traceback.format_exception(error)), soft_wrap=True)
            failures.add(what, error)

        def refused(why: str) -> None:
            complain(f"scored again: {why}")

        yield Listener(encoding=encoding, scoring=scoring, failed=failed, refused=refused, noticed=complain)


def _as_json(result: Result) -> dict[str, Any]:
    import json

    from stsbench.results.folder import result_to_json

    fields: dict[str, Any] = json.loads(result_to_json(result))
    return fields
