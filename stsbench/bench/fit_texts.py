"""Which texts an encoder is fitted on, by the word its card has for them in ``fit``.

    target          all sentences of the task that is scored, of all its splits
    target.train    those of one split of it
    stsb.test       those of one split of a task of this name, whichever task is scored
    allnli          a corpus, by its logical name
    mine.txt        a file of one's own, as corpora are

``target+ungraded`` (and so for any task) takes also the sentences of pairs released without a gold
score, as ConSERT's training does. Each sentence counts as often as it occurs, as in the code of
BERT-whitening and BERT-flow; of a row of a corpus all text columns are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stsbench.bench.tasks import ScoredTask
from stsbench.cards.catalogue import Catalogue
from stsbench.data.corpora.corpus import TEXT_COLUMNS
from stsbench.data.corpora.load import load_corpus
from stsbench.data.corpora.overlap import text_key
from stsbench.data.task import Task, load_task
from stsbench.encoders.facts import notes_of
from stsbench.encoders.fitted.fitted import TARGET, texts_digest
from stsbench.encoders.known import KnownEncoder
from stsbench.errors import StsbenchError, UnknownName
from stsbench.files.whole import without_folders

UNGRADED = "+ungraded"


def needs_task(fit: str) -> bool:
    """Whether the texts are those of the task that is scored."""
    return fit.removesuffix(UNGRADED).partition(".")[0] == TARGET


def texts_to_fit(fit: str, *, task: Task | None, catalogue: Catalogue, data: Path | None = None) -> list[str]:
    """Return the texts that a card's ``fit`` names, each as often as it occurs.

    Args:
        fit: see above.
        task: the task that is scored, None where no task is.
        catalogue: the cards of tasks and corpora.
        data: a local data folder.

    Raises:
        UnknownName: no such split, task, corpus or file; offers the nearest.
        DataError: the data cannot be had or read.
    """
    name, _, split = fit.removesuffix(UNGRADED).partition(".")
    corpora = catalogue.corpora()
    if fit in corpora or (name not in (TARGET, *catalogue.paths("tasks")) and Path(fit).suffix):
        return _corpus_texts(fit, catalogue, data)
    if name != TARGET and name in catalogue.paths("tasks"):
        task = load_task(name, data=data, catalogue=catalogue)
    elif name != TARGET or task is None:
        known = [TARGET, *corpora, *(f"{one}.test" for one in catalogue.paths("tasks"))]
        raise UnknownName("text to fit on", fit, known, hint="give target, a corpus, a task's split or a file")
    return task.texts([split] if split else None, with_ungraded=fit.endswith(UNGRADED), repeated=True)


def _corpus_texts(name: str, catalogue: Catalogue, data: Path | None) -> list[str]:
    corpus = load_corpus(name, data=data, catalogue=catalogue)
    columns = [corpus.table.column(name).to_pylist() for name in TEXT_COLUMNS if name in corpus.columns]
    return [text for row in zip(*columns, strict=True) for text in row]


@dataclass(frozen=True)
class FitTexts:
    """What an encoder is fitted on for one task."""

    sentences: Sequence[str]
    digest: str
    what: str
    overlap: bool

    def told(self, encoder: KnownEncoder) -> KnownEncoder:
        """The encoder as a Result of this task names it."""
        return replace(encoder, fitted_on=self.digest, saw_task=self.overlap)

    def notes(self, fitted: object) -> list[str]:
        """What a reader of its scores should know of the texts, and of what is fitted on them."""
        return [
            f"fitted on {len(self.sentences)} sentences ({without_folders(self.what)})",
            *notes_of(fitted),
        ]


def texts_of_tasks(
    fit: str,
    tasks: Sequence[ScoredTask],
    catalogue: Catalogue,
    data: Path | None,
    failed: Callable[[str, StsbenchError], None],
) -> dict[str, FitTexts]:
    """The texts to fit on by task; read once where they are the same for all."""
    found: dict[str, FitTexts] = {}
    shared: list[str] = []
    keys: set[bytes] = set()
    digest = ""
    for task in tasks:
        if needs_task(fit) or not shared:
            try:
                shared = texts_to_fit(fit, task=task.task, catalogue=catalogue, data=data)
            except StsbenchError as error:
                if not needs_task(fit):
                    failed(", ".join(one.name for one in tasks), error)
                    return {}
                failed(task.name, error)
                continue
            keys, digest = set(map(text_key, shared)), texts_digest(shared)
        seen = not keys.isdisjoint(map(text_key, task.texts()))
        found[task.name] = FitTexts(shared, digest, fit, seen)
    return found
