"""The bench: an encoder scored on tasks, and whole runs of encoders, tasks and seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from stsbench import settings as places
from stsbench.bench.cells import Cell, RunSettings, plan_cells
from stsbench.bench.embedder import Embedder, Store, chosen_data_folder, make_embedder
from stsbench.bench.executor import Executor, local
from stsbench.bench.listener import Listener
from stsbench.bench.score import Failed, score_tasks
from stsbench.bench.tasks import ScoredTask, plan_tasks, read_tasks
from stsbench.cards.catalogue import Catalogue
from stsbench.data.task import expand_names
from stsbench.encoders.given import find_given
from stsbench.encoders.known import KnownEncoder
from stsbench.encoders.seams import Encoder
from stsbench.errors import SourceError, StsbenchError, choose
from stsbench.files.whole import remove, remove_stale, write_whole
from stsbench.registry.arguments import NAME, NAMES, PLACE, SEED, STORE, checked
from stsbench.results.record import Result


@checked(
    tasks=NAMES, protocol=NAMES, data=PLACE, seed=SEED, split=NAME, store=STORE, name=NAME, on_error=NAME,
    catalogue=Catalogue, listener=Listener,
)  # fmt: skip
def evaluate(
    encoder: Encoder | KnownEncoder | Callable[[list[str]], object] | str | Path,
    tasks: str | Sequence[str],
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
) -> Iterator[Result]:
    """Score an encoder on tasks, yielding one Result a task in the order of the tasks.

    All data are read and all sentences of all tasks embedded before the first score, each
    distinct sentence once; that begins when the first Result is asked for.

    Args:
        encoder: an encoder, what :func:`stsbench.load_encoder` takes, a ``SentenceTransformer`` of
            sentence-transformers, or a function from a list of sentences to their embeddings (n, d);
            embeddings of these two are never stored.
        tasks: names of tasks and suites, or a comma list of them.
        protocol: names of protocols; each task takes the one its evaluator knows.
        data: a local data folder; default ``STSBENCH_DATA``, else the Hub.
        seed: of the evaluation (folds, classifiers).
        split: score this split of each task instead of its usual one.
        store: where embeddings are kept: a folder, None for nowhere, or the user's cache folder.
        on_error: ``skip`` goes on past a task that fails, telling the listener.
        name: what results call an encoder that is not given by its name.
        catalogue: cards to look names up in.
        listener: told how the run goes.

    Raises:
        StsbenchError: data or encoder cannot be used; see :mod:`stsbench.errors`.
    """
    choose("on_error", on_error, {"raise": None, "skip": None})
    catalogue, listener = catalogue or Catalogue(), listener or Listener()
    failed = partial(_failed, on_error=on_error, listener=listener)
    planned = plan_tasks(tasks, catalogue, protocol=protocol, data=data, split=split)
    embedder = partial(
        make_embedder,
        find_given(encoder, catalogue, name=name),
        store=store,
        catalogue=catalogue,
        data=chosen_data_folder(data),
        progress=listener.encoding,
        failed=failed,
    )
    return _scored(planned, embedder, int(seed), listener, failed)


def _scored(
    planned: Sequence[ScoredTask],
    embedder: Callable[[Sequence[ScoredTask]], Embedder],
    seed: int,
    listener: Listener,
    failed: Failed,
) -> Iterator[Result]:
    read = read_tasks(planned, failed)
    yield from score_tasks(embedder(read), dict.fromkeys(read, (seed,)), listener=listener, failed=failed)


def _failed(what: str, error: StsbenchError, *, on_error: str, listener: Listener) -> None:
    if on_error == "raise":
        raise error
    listener.failed(what, error)


def run(settings: RunSettings, listener: Listener, *, executor: Executor = local) -> Iterator[Result]:
    """Carry out a run, writing each Result as soon as it is there; what the folder holds is not done again.

    An encoder or task that fails is told to the listener, and the run goes on.

    Raises:
        StsbenchError: nothing at all can be done (unknown task, no data), or results cannot be written.
    """
    cells = cells_to_do(settings)
    check_writable(settings.out)
    yield from executor(cells, settings, listener)


def cells_to_do(settings: RunSettings) -> list[Cell]:
    """The cells of a run, its data folder looked for before.

    Raises:
        StsbenchError: a task, suite, protocol or data folder that does not exist.
    """
    expand_names(settings.tasks, settings.catalogue)
    data = chosen_data_folder(settings.data)
    if data is not None and not data.is_dir():
        raise SourceError(f"data folder '{data}' does not exist")
    return plan_cells(settings)


def check_writable(folder: Path) -> None:
    """Fail before the work rather than after it."""
    probe = write_whole(folder / ".stsbench-writable", b"")
    remove(probe)
    # Also what this run will not write beside: other encoders' results, stores and fits.
    remove_stale(folder, "*.partial", "*/*.partial")
    remove_stale(places.cache_folder(), "*/*.partial", "*/*/*.partial")
