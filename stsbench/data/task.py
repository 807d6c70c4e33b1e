"""A task: its card, its splits, its texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stsbench import settings
from stsbench.cards.catalogue import Catalogue
from stsbench.cards.digests import task_digest
from stsbench.cards.facts import Suite, TaskCard
from stsbench.cards.names import split_names
from stsbench.data.sources import Loaded, load_split
from stsbench.data.splits import LabelledPairSplit, PairSplit, Split
from stsbench.errors import DataError, StsbenchError, UnknownName
from stsbench.registry.arguments import NAME, NAMES, PLACE, checked


@dataclass(frozen=True, kw_only=True)
class Task:
    """A dataset with the way it is scored, made by :func:`load_task`."""

    name: str
    card: TaskCard
    card_digest: str
    data: Path | None = None
    _loaded: dict[str, Loaded] = field(default_factory=dict, repr=False, compare=False)

    def loaded(self, split: str) -> Loaded:
        """One split with its provenance; read once, then kept."""
        if split not in self._loaded:
            self._loaded[split] = load_split(self.name, self.card, split, data=self.data)
        return self._loaded[split]

    @checked(split=NAME)
    def load(self, split: str = "test") -> Split:
        """One split, checked against the card.

        Raises:
            DataError: no source has the split, or it is not what the card says.
        """
        return self.loaded(split).split

    def ungraded(self, split: str) -> Sequence[str]:
        """The sentences of a split's pairs that the release carries without a gold score.

        Raises:
            DataError: there are such pairs, but the source that was read leaves them out.
        """
        loaded = self.loaded(split)
        if not isinstance(loaded.split, PairSplit):
            return ()
        if not loaded.split.ungraded_known:
            raise DataError(
                f"{self.name} ({split}): the source that was read ({loaded.source}) leaves out the "
                f"{self.card.splits[split].ungraded:,} pairs without a gold score, which are needed; "
                "pass --data DIR with the files of the release"
            )
        return loaded.split.ungraded

    @checked(splits=NAMES)
    def texts(
        self, splits: str | Sequence[str] | None = None, *, with_ungraded: bool = False, repeated: bool = False
    ) -> list[str]:
        """All sentences of some splits (default: all), each once, in the order met.

        Args:
            splits: names of splits, or one.
            with_ungraded: also those of pairs released without a gold score: ConSERT and
                others train on them. A source that leaves them out is an error.
            repeated: each as often as it occurs, the two of a pair one after the other: what
                BERT-whitening and BERT-flow are fitted on.
        """
        texts: list[str] = []
        for name in [splits] if isinstance(splits, str) else list(self.card.splits) if splits is None else splits:
            split = self.load(name)
            if repeated and isinstance(split, PairSplit | LabelledPairSplit):
                texts += [text for pair in zip(split.sentences1, split.sentences2, strict=True) for text in pair]
            else:
                texts += split.texts()
            if with_ungraded:
                texts += self.ungraded(name)
        return texts if repeated else list(dict.fromkeys(texts))


@checked(name=NAME, data=PLACE, catalogue=Catalogue)
def load_task(name: str, *, data: Path | str | None = None, catalogue: Catalogue | None = None) -> Task:
    """Return the task of this id; its data are read when first asked for.

    ``data`` is a local data folder; without it ``STSBENCH_DATA`` is used where it is set.

    Raises:
        UnknownName: no such task; offers the nearest.
    """
    catalogue = catalogue or Catalogue()
    card = catalogue.task(name)
    folder = Path(data) if data is not None else settings.data_folder()
    return Task(name=name, card=card, card_digest=task_digest(card), data=folder)


def expand_names(names: str | Sequence[str], catalogue: Catalogue) -> list[str]:
    """Turn comma lists of tasks and suites into task ids, each once, in order.

    Raises:
        UnknownName: a name that is neither; offers the nearest of both.
        StsbenchError: no name at all.
    """
    parts = [part for name in ([names] if isinstance(names, str) else names) for part in split_names(name)]
    suites, tasks = catalogue.suites(), catalogue.paths("tasks")
    found: dict[str, None] = {}
    for part in parts:
        if part in suites:
            for task in suites[part].tasks:
                if task not in tasks:
                    raise UnknownName(f"task in suite {part}:", task, tasks)
            found.update(dict.fromkeys(suites[part].tasks))
        elif part in tasks:
            found[part] = None
        else:
            known = [*suites, *tasks]
            hint = "'stsbench list tasks' and 'list suites' show them; cards of your own need --cards DIR"
            raise UnknownName("task or suite", part, known, hint=hint)
    if not found:
        raise StsbenchError("no task is named; give tasks or suites, such as sts12,stsb or quickstart")
    return list(found)


def tasks_in_order(catalogue: Catalogue) -> list[str]:
    """All tasks as boards have them: by suites, and then those of none."""
    of_suites = (task for suite in catalogue.suites().values() for task in suite.tasks)
    return list(dict.fromkeys([*of_suites, *catalogue.paths("tasks")]))


def suites_within(tasks: Sequence[str], catalogue: Catalogue) -> dict[str, Suite]:
    """The suites whose every task is among these: those whose average can be printed."""
    return {name: suite for name, suite in catalogue.suites().items() if set(suite.tasks) <= set(tasks)}
