"""What a results folder holds already: a cell that is done, a name that is another encoder's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from stsbench.bench.embedder import Embedder
from stsbench.bench.tasks import ScoredTask
from stsbench.encoders.known import KnownEncoder
from stsbench.errors import DataError, StsbenchError
from stsbench.provenance.identity import same_encoder, without_texts
from stsbench.results.folder import read_items, read_result
from stsbench.results.record import Result, cell_digest, items_path, result_path


def done_already(
    folder: Path, task: ScoredTask, embedder: Embedder, seed: int, refused: Callable[[str], None]
) -> Result | None:
    """The Result of a cell that a results folder holds, unless its embeddings have been set aside since."""
    result, watch = find_result(folder, task, embedder.known(task), seed, refused), embedder.watch(task)
    if result is None or watch is None:
        return result
    # Both tell whole seconds: what was made within the same one may be of before.
    return result if not watch.since or str(result.run.get("created", "")) > watch.since else None


def find_result(
    folder: Path, task: ScoredTask, encoder: KnownEncoder, seed: int, refused: Callable[[str], None]
) -> Result | None:
    """The Result of a cell that a results folder holds, if it is of the same data, cards and encoder.

    Why one is not as results must be, or that its per-item columns do not make it, goes to ``refused``.
    """
    if encoder.fingerprint is None:
        return None
    cell = cell_digest(task.protocol, encoder.fingerprint, encoder.train_seed, seed)
    path = result_path(folder, encoder.name, task.name, task.split, cell)
    if not path.is_file():
        return None
    try:
        result = read_result(path)
        if items_path(path).exists():
            read_items(path)
    except DataError as error:
        refused(str(error))
        return None
    same = (encoder.name, task.name, task.digest, task.task.card_digest, encoder.card_digest)
    held = (result.encoder, result.task, result.data, result.task_card, result.encoder_card)
    return result if held == same else None


def holds_another(folder: Path, name: str, fingerprint: str | None) -> bool:
    """Whether a results folder holds results of this name, and none of this encoder."""
    home = result_path(folder, name, "task", "split", "cell").parent
    found = []
    for path in sorted(home.glob("*.json")):
        with suppress(StsbenchError):
            found.append(read_result(path))
    own = fingerprint and without_texts(fingerprint)
    # Another version of a library makes no other encoder of it.
    mine = [one for one in found if one.encoder == name and (one.state == own or same_encoder(one.state, own))]
    return bool(found) and not mine
