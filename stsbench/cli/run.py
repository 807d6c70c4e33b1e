"""``stsbench run``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from stsbench.bench.cells import RunSettings, TextLeftOut
from stsbench.bench.dry_run import forecast_run
from stsbench.bench.executor import EXECUTORS
from stsbench.bench.run import run
from stsbench.cards.catalogue import Catalogue
from stsbench.cli.config import resolved
from stsbench.cli.dry_run import print_forecasts
from stsbench.cli.names import Names
from stsbench.cli.options.encoders import RunOptions
from stsbench.cli.printing import complain, print_json, print_rows, say
from stsbench.cli.progress import run_progress
from stsbench.cli.scores import print_boards, print_scores
from stsbench.cli.variants import chosen_variants, print_variants
from stsbench.encoders.facts import is_name
from stsbench.encoders.trained import trained_runs
from stsbench.encoders.unfinished import unfinished_runs
from stsbench.errors import StsbenchError
from stsbench.results.record import Result


def run_command(options: RunOptions) -> int:
    """Carry out a run and print its table; returns 0, 2 where anything failed, 3 where that was a bug."""
    catalogue = Catalogue(options.cards)
    names = Names(catalogue).to_load([*options.encoders, *options.encoder], options.results)
    params, encoders = parse_assignments(options.assign), names or ["minilm"]
    if options.variants:
        if options.names:
            raise StsbenchError("names of your own have no effect beside --variants; leave them out")
        encoders, params = chosen_variants(encoders, options.variants, params)
    settings = RunSettings(
        encoders=encoders,
        tasks=options.tasks or ("sts" if names else "quickstart"),
        out=options.results,
        params=params,
        protocol=options.protocol,
        data=options.data,
        split=options.split,
        seeds=parse_seeds(options.seeds),
        store=None if options.no_store else options.store or "default",
        fresh=options.fresh,
        called=chosen_names(encoders, options.names, catalogue),
        catalogue=catalogue,
        on=options.on,
        gpus_per_encoder=options.gpus_per_encoder,
        clean=TextLeftOut(options.clean, options.near, options.corpora) if options.clean else None,
    )
    EXECUTORS.load_at(settings.on)
    with run_progress(
        None if options.dry_run else settings.out, resolved(settings), events=options.as_json
    ) as progress:
        if options.dry_run:
            forecasts = list(forecast_run(settings, progress.listener()))
        else:
            results = list(run(settings, progress.listener()))
            progress.end()
    if options.dry_run:
        print_forecasts(forecasts, progress.failures, as_json=options.as_json)
    elif options.variants and results and not options.as_json:
        print_variants(results, catalogue, options.plot)
        say(f"Results: {settings.out}/")
    else:
        _print_results(results, settings, progress.failures, verbose=options.verbose, as_json=options.as_json)
        if settings.on != "local" and not options.as_json:
            print_failed(progress.failed)
    _name_unfinished(names)
    return progress.code


def _print_results(
    results: Sequence[Result], settings: RunSettings, failures: Sequence[str], *, verbose: bool, as_json: bool
) -> None:
    if as_json:
        print_json({"results": [_as_json(r) for r in results], "failures": failures})
    elif results:
        # A board is of the splits that tasks are scored on.
        others = any(one.split != settings.catalogue.task(one.task).score_split for one in results)
        if verbose or others or len({one.encoder for one in results}) == 1:
            print_scores(results, settings.catalogue, verbose=verbose)
        else:
            print_boards(results, settings.catalogue)
        folders = {one.path_in(settings.out).parent for one in results}
        say(f"Results: {folders.pop() if len(folders) == 1 else settings.out}/")


def print_failed(failed: Sequence[tuple[str, str]]) -> None:
    """Print what failed of a run of many workers, and why: the lines that said so are long gone."""
    if failed:
        say("\nFailed\n")
        print_rows(["what", "why"], failed)


def _name_unfinished(names: Sequence[str]) -> None:
    """Say which seeds of trained recipes are missing; where no seed is done, that is the run's failure."""
    # Where the folder of runs cannot be read, that has failed already.
    with suppress(StsbenchError):
        for unfinished in (one for name in names if trained_runs(name) for one in unfinished_runs(name)):
            complain(f"not scored: {unfinished}")


def chosen_names(encoders: Sequence[str], names: Sequence[str], catalogue: Catalogue) -> dict[str, str]:
    """What results call each encoder, where names are given.

    Raises:
        StsbenchError: too few, too many, twice the same, or one that is another encoder's.
    """
    if names and len(names) != len(encoders):
        raise StsbenchError(f"--name gives {len(names)} names for {len(encoders)} encoders; give one name each")
    for name in names:
        check_own_name(name, catalogue)
        if list(names).count(name) > 1:
            raise StsbenchError(f"--name '{name}' is given twice; results of two encoders would be mixed")
    return dict(zip(encoders, names, strict=True)) if names else {}


def check_own_name(name: str, catalogue: Catalogue) -> None:
    """Refuse a name that nothing of the user's own can have; raises StsbenchError."""
    if not is_name(name) or "@" in name or "+" in name:
        raise StsbenchError(f"--name '{name}': give a line of text without @ and +")
    if catalogue.is_taken(name):
        raise StsbenchError(f"--name '{name}' is the name of a card or recipe; give one of your own")


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


def _as_json(result: Result) -> dict[str, Any]:
    import json

    from stsbench.results.folder import result_to_json

    fields: dict[str, Any] = json.loads(result_to_json(result))
    return fields
