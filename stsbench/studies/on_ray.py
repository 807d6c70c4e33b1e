"""Sweeps on Ray: a training a GPU, or a slice of cores."""

from __future__ import annotations

import time
from contextlib import chdir
from functools import partial
from pathlib import Path

from stsbench.bench.on_ray import TRIES, WAIT_SECONDS
from stsbench.bench.workers import Lost, Reference, caught, handed_back, is_alone, joined, stop
from stsbench.core import settings
from stsbench.core.errors import Stopped, StsbenchError, one_line
from stsbench.recipes.on_ray import check_seen
from stsbench.studies.sweep import Book, Sweep, SweepScore, halving_of, score_trial
from stsbench.studies.trials import Trial, TrialWatcher, plan_trials


def side_by_side(book: Book, on: str, cores: int, watcher: TrialWatcher) -> None:
    """Train side by side, as many as there are GPUs, or slices of cores; those under way when the time is over end.

    Raises StsbenchError: Ray is not installed, or machines do not share what they need; Stopped: by Ctrl-C.
    """
    sweep, halving = book.sweep, halving_of(book.sweep)
    if "://" in on:
        raise StsbenchError(f"--on {on}: lead a sweep within its cluster; run it there with RAY_ADDRESS and --on ray")
    with joined(on) as ray:
        if not is_alone(on):
            shop = sweep.workshop
            given = [shop.data or settings.data_folder(), shop.corpora or settings.corpora_folder()]
            check_seen(ray, [Path(sweep.card.base or "."), *given, *shop.catalogue.folders], settings.runs_folder())
            check_seen(ray, [], sweep.folder)
        here = ray.cluster_resources()
        held, each, many = int(here.get("CPU", 0)), {"num_cpus": 1, "num_gpus": 1}, int(here.get("GPU", 0))
        if not many:
            if held < cores:
                raise StsbenchError(f"--cores {cores}: there are {held} cores; give at most as many")
            each, many = {"num_cpus": cores}, held // cores
        # Ray tries again what a worker had that is lost.
        work, under_way = ray.remote(_work).options(max_retries=TRIES - 1, **each), dict[Reference, Trial]()
        started = time.monotonic()
        try:
            while not sweep.is_over(started):
                while len(under_way) < many and (trial := book.next()) is not None:
                    under_way[work.remote(sweep, trial, halving, str(Path.cwd()))] = trial
                if not under_way:
                    break
                for reference in ray.wait(list(under_way), timeout=WAIT_SECONDS)[0]:
                    book.close(under_way.pop(reference), _score(handed_back(ray, reference)))
        except KeyboardInterrupt as error:
            raise Stopped("stopped; the same command resumes") from error
        finally:
            stop(ray, list(under_way))


def _work(sweep: Sweep, trial: Trial, halving: str, folder: str) -> SweepScore | Exception:
    """What a worker does; at a second try a part of the training is there."""
    with chdir(folder):
        (now,) = plan_trials(trial.plans)
        return caught(partial(score_trial, sweep, now, halving, TrialWatcher()))


def _score(found: SweepScore | Exception) -> SweepScore:
    if isinstance(found, Lost):
        return SweepScore(None, f"its worker has failed {TRIES} times")
    return SweepScore(None, one_line(found)) if isinstance(found, Exception) else found
