"""Encoders scored on tasks, with all Results in one object at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Literal

from stsbench.bench.iterate import ARGUMENTS, GivenEncoders, iterate
from stsbench.bench.listener import Listener
from stsbench.bench.shelf import Store
from stsbench.bench.tasks import GivenTasks
from stsbench.cards.catalogue import Catalogue
from stsbench.interface.progress import watching
from stsbench.interface.results import NotScored, Results, html_so_far
from stsbench.registry.arguments import checked
from stsbench.results.record import Result


@checked(**ARGUMENTS)
def evaluate(
    encoder: GivenEncoders,
    tasks: GivenTasks,
    *,
    protocol: str | Sequence[str] | None = None,
    data: Path | str | None = None,
    seed: int = 0,
    split: str | None = None,
    store: Store = "default",
    on_error: Literal["raise", "skip"] = "raise",
    name: str | None = None,
    catalogue: Catalogue | None = None,
    listener: Listener | None = None,
) -> Results:
    """Score encoders on tasks, and return all Results: encoder by encoder, in the order of the tasks.

    Nothing is written but embeddings, to the store; :meth:`stsbench.Results.save` writes results. On a terminal and in a
    notebook it is shown how it goes, unless a listener is given. :func:`stsbench.iterate` yields each Result as soon as it
    is there.

    Args:
        encoder: an encoder, what :func:`stsbench.load_encoder` takes, a ``SentenceTransformer`` of
            sentence-transformers, or a function from a list of sentences to their embeddings (n, d);
            embeddings of these two are never stored. Several as a list, as a dict by what results are to call them,
            or as a comma list of names.
        tasks: names of tasks and suites, a comma list of them, Tasks, or a list of these.
        protocol: names of protocols; each task takes the one its evaluator knows.
        data: a local data folder; default ``STSBENCH_DATA``, else the Hub.
        seed: of the evaluation (folds, classifiers).
        split: score this split of each task instead of its usual one.
        store: where embeddings are kept: a folder, None for nowhere, or the user's cache folder.
        on_error: ``skip`` goes on past a task that fails, and past one of several encoders; ``failures`` of the Results
            holds what failed.
        name: what results call an encoder that is not given by its name.
        catalogue: cards to look names up in.
        listener: told how it goes.

    Raises:
        StsbenchError: data or encoder cannot be used; see :mod:`stsbench.errors`.
    """
    found: list[Result] = []
    failures: list[NotScored] = []
    catalogue = catalogue or Catalogue()
    with _noting(failures, listener, lambda: html_so_far(found, catalogue)) as told:
        for result in iterate(
            encoder, tasks, protocol=protocol, data=data, seed=seed, split=split, store=store, on_error=on_error,
            name=name, catalogue=catalogue, listener=told,
        ):  # fmt: skip
            found.append(result)
    return Results(found, failures=failures, catalogue=catalogue)


@contextmanager
def _noting(failures: list[NotScored], listener: Listener | None, html: Callable[[], str]) -> Iterator[Listener]:
    """A listener that notes what failed and tells the one that is given, or shows how it goes where none is."""
    with watching(html) if listener is None else nullcontext(listener) as told:

        def failed(what: str, error: Exception) -> None:
            failures.append(NotScored(what, error))
            told.failed(what, error)

        yield replace(told, failed=failed)
