"""Encoders that a program hands over, scored on tasks: each Result as soon as it is there, and nothing written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal

from stsbench.bench.embedder import chosen_data_folder, make_embedder
from stsbench.bench.listener import Listener
from stsbench.bench.score import Failed, score_tasks
from stsbench.bench.shared import Shared
from stsbench.bench.shelf import Store
from stsbench.bench.tasks import GivenTasks, ScoredTask, plan_tasks, read_tasks
from stsbench.cards.catalogue import Catalogue
from stsbench.cards.names import split_names
from stsbench.data.task import Task
from stsbench.encoders.given import find_given
from stsbench.encoders.known import KnownEncoder
from stsbench.encoders.loading import check_loadable
from stsbench.encoders.seams import Encoder
from stsbench.errors import OutputError, Stopped, StsbenchError, choose, shown
from stsbench.registry.arguments import NAME, NAMES, PLACE, SEED, STORE, Kind, checked
from stsbench.results.record import Result

GivenEncoder = Encoder | KnownEncoder | Callable[[list[str]], object] | str | Path
"""What a program may hand over as an encoder: one that is loaded, a name, a SentenceTransformer, a function."""
GivenEncoders = GivenEncoder | Sequence[GivenEncoder] | Mapping[str, GivenEncoder]
"""The same, a list of them, or a dict of them by what results are to call them."""


def _are_tasks(value: object) -> bool:
    one = str | Task
    return isinstance(value, one) or (isinstance(value, Sequence) and all(isinstance(part, one) for part in value))


ARGUMENTS: Mapping[str, Kind | type] = {
    "tasks": Kind(_are_tasks, "a name, a Task or a list of them"),
    "protocol": NAMES,
    "data": PLACE,
    "seed": SEED,
    "split": NAME,
    "store": STORE,
    "name": NAME,
    "on_error": NAME,
    "catalogue": Catalogue,
    "listener": Listener,
}
"""What the arguments of :func:`iterate` may be, for all functions that have them."""


@checked(**ARGUMENTS)
def iterate(
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
) -> Iterator[Result]:
    """Score encoders on tasks, yielding each Result as soon as it is there: encoder by encoder, in the order of the tasks.

    Names and arguments are checked at the call. When the first Result is asked for, all data are read. Of each encoder
    all sentences of all tasks are embedded before its first score, each distinct sentence once.

    Args:
        encoder: an encoder, what :func:`stsbench.load_encoder` takes, a ``SentenceTransformer`` of
            sentence-transformers, or a function from a list of sentences to their embeddings (n, d);
            embeddings of these two are never stored. Several as a list, as a dict by what results are to call them,
            or as a comma list of names; one that is given by its name is made when it is its turn.
        tasks: names of tasks and suites, a comma list of them, Tasks, or a list of these.
        protocol: names of protocols; each task takes the one its evaluator knows.
        data: a local data folder; default ``STSBENCH_DATA``, else the Hub.
        seed: of the evaluation (folds, classifiers).
        split: score this split of each task instead of its usual one.
        store: where embeddings are kept: a folder, None for nowhere, or the user's cache folder.
        on_error: ``skip`` goes on past a task that fails, and past one of several encoders, telling the listener.
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
    found, shared = _found(_by_name(encoder, name), catalogue), Shared()

    def score(known: KnownEncoder, read: Sequence[ScoredTask]) -> Iterator[Result]:
        embedder = make_embedder(
            known,
            read,
            store=store,
            catalogue=catalogue,
            data=chosen_data_folder(data),
            progress=listener.encoding,
            failed=failed,
            shared=shared,
            noticed=listener.noticed,
        )
        return score_tasks(embedder, dict.fromkeys(read, (int(seed),)), listener=listener, failed=failed)

    return _scored(planned, found, score, failed, catalogue)


def _by_name(given: GivenEncoders, name: str | None) -> list[tuple[str | None, object]]:
    """Each encoder with what results are to call it, if that is said."""
    if isinstance(given, Mapping):
        found: list[tuple[str | None, object]] = list(given.items())
    elif isinstance(given, list | tuple):
        found = [(None, one) for one in given]
    elif isinstance(given, str) and not _is_path(given):
        found = [(None, one) for one in split_names(given)]
    else:
        found = [(None, given)]
    if not found:
        raise StsbenchError("no encoder is given; give a name such as minilm, an encoder, or a list of them")
    if name is None:
        return found
    if len(found) > 1 or isinstance(given, Mapping):
        raise StsbenchError(f"name='{name}' is for one encoder; name several by a dict, {{'first': …, 'second': …}}")
    return [(name, found[0][1])]


def _is_path(name: str) -> bool:
    # What is too long for a file's name is none.
    with suppress(OSError):
        return bool(name) and Path(name).exists()
    return False


def _found(given: Sequence[tuple[str | None, object]], catalogue: Catalogue) -> list[KnownEncoder | str]:
    """Encoders that are there already, and the names of those to be made; of one alone nothing is put off."""
    found: list[KnownEncoder | str] = []
    for name, one in given:
        if len(given) > 1 and name is None and isinstance(one, str | Path):
            check_loadable(str(one), catalogue)
            found.append(str(one))
        else:
            found.append(find_given(one, catalogue, name=name))
    before: Before = {}
    for known in found:
        if isinstance(known, KnownEncoder):
            _is_new(known, before)
    return found


Before = dict[tuple[str, int | None], set[str | None]]
"""The fingerprints of the encoders so far, by their names and seeds: they themselves are let go."""


def _is_new(known: KnownEncoder, before: Before) -> bool:
    """Whether an encoder is not one of those before, which it joins.

    Raises:
        StsbenchError: nothing tells it from another of its name.
    """
    same_name = before.setdefault((known.name, known.train_seed), set())
    if None in {*same_name, known.fingerprint} and same_name:
        raise StsbenchError(
            f"two of the encoders are called {shown(known.name)}; name them by a dict, {{'first': …, 'second': …}}"
        )
    is_new = known.fingerprint not in same_name
    same_name.add(known.fingerprint)
    return is_new


def _scored(
    planned: Sequence[ScoredTask],
    found: Sequence[KnownEncoder | str],
    score: Callable[[KnownEncoder, Sequence[ScoredTask]], Iterator[Result]],
    failed: Failed,
    catalogue: Catalogue,
) -> Iterator[Result]:
    read = read_tasks(planned, failed)
    before: Before = {}
    for one in found:
        what = one if isinstance(one, str) else one.name
        try:
            known = find_given(one, catalogue)
            if _is_new(known, before):
                yield from score(known, read)
        except (OutputError, Stopped):
            raise
        except Exception as error:
            # The only one's mistake is the caller's.
            if len(found) == 1:
                raise
            failed(what, error)


def _failed(what: str, error: Exception, *, on_error: str, listener: Listener) -> None:
    if on_error == "raise":
        raise error
    listener.failed(what, error)
