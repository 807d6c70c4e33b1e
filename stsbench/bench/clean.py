"""Clean scores: those over the items that some training text holds nothing of, beside each score of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from stsbench.bench.cells import RunPart, TextLeftOut
from stsbench.bench.embedder import chosen_data_folder
from stsbench.bench.work import Work
from stsbench.compare.clean import score_without
from stsbench.data.corpora.load import load_corpus
from stsbench.data.corpora.overlap import Held, find_held
from stsbench.errors import DataError, StsbenchError
from stsbench.files.whole import without_folders
from stsbench.results.again import command_again, has_columns, lacking_said
from stsbench.results.folder import write_result
from stsbench.results.record import CleanScore, Result, columns_digest

OWN = "own"
"""Stands for the training text that an encoder's recipe names."""


class _Found(NamedTuple):
    text: str
    held: Held


class Cleaner:
    """Puts a clean score into each Result of a run, those among them that the results folder held already."""

    def __init__(self, asked: TextLeftOut, work: Work, parts: Sequence[RunPart]) -> None:
        """Read the training text and look for the tasks' sentences in it, before anything is embedded.

        Raises:
            StsbenchError: the text cannot be had, or an encoder has none of its own.
        """
        self._asked, self._work = asked, work
        self._texts = {(task.name, task.split): task.splits[task.split].texts() for task in work.tasks.values()}
        self._corpora = {part.name: self._corpora_of(part.name) for part in parts}
        self._found = {names: self._find(names) for names in dict.fromkeys(self._corpora.values())}

    def __call__(self, result: Result) -> Result:
        """The Result with its clean score, which is written; without, where it cannot be made, which is told."""
        names, settings = self._corpora[result.encoder], self._work.settings
        text, held = self._found[names]
        seen = [one for one in self._texts[result.task, result.split] if one in held.how]
        try:
            if not has_columns(result):
                raise DataError(f"{lacking_said([result])}; run: {command_again([result])}")
            n, score, interval = score_without(result, seen)
        except DataError as error:
            self._work.listener.failed(f"clean score of {result.encoder} on {result.task}", error)
            return result
        made = CleanScore(
            corpora=[str(without_folders(name)) for name in names],
            text=text,
            near=self._asked.near,
            n=n,
            score=score,
            interval=interval,
        )
        others = [one for one in result.clean if one.name != made.name]
        cleaned = msgspec.structs.replace(result, clean=[*others, made])
        if cleaned.clean != result.clean:
            # Its per-item columns lie there already.
            write_result(msgspec.structs.replace(cleaned, per_item={}), settings.out)
        return cleaned

    def _corpora_of(self, encoder: str) -> tuple[str, ...]:
        catalogue, stem = self._work.settings.catalogue, encoder.partition("+")[0]
        own = [catalogue.recipe(stem).data.corpus] if stem in catalogue.paths("trainers") else []
        if OWN in self._asked.corpora and not own:
            raise StsbenchError(
                f"--clean {OWN}: '{encoder}' is of no recipe, which would name its training text; give --clean CORPUS"
            )
        return tuple(dict.fromkeys(name for one in self._asked.corpora for name in (own if one == OWN else [one])))

    def _find(self, names: Sequence[str]) -> _Found:
        settings = self._work.settings
        corpora = [
            load_corpus(
                name,
                corpora=self._asked.folder,
                data=chosen_data_folder(settings.data),
                catalogue=settings.catalogue,
            )
            for name in names
        ]
        held = find_held(corpora, (text for texts in self._texts.values() for text in texts), near=self._asked.near)
        hashes = [corpus.sha256 for corpus in corpora]
        return _Found(hashes[0] if len(hashes) == 1 else columns_digest({"corpora": hashes}), held)
