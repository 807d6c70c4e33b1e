"""Scores without the items whose sentences are in training text, beside the scores of all items."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import NamedTuple

import msgspec
import numpy as np

from stsbench.bench.plan import CleanScoreSettings, EncoderPlan, RunPlan
from stsbench.bench.progress import RunCallbacks
from stsbench.bench.protocols import PlannedTask
from stsbench.core.errors import DataError, EncoderError, StsbenchError
from stsbench.core.files import strip_folders
from stsbench.data.corpora.overlap import OverlapMatches, find_overlap_matches, load_searched_text
from stsbench.data.quality import DataToCheck, find_fold_copies, find_leaks
from stsbench.evaluators.base import Evaluator
from stsbench.evaluators.registry import make_task_evaluator
from stsbench.numbers.dependence import SENTENCE_COLUMNS, read_sentence_ids, sentence_columns
from stsbench.numbers.statistics import AGGREGATIONS, MIN_ITEMS, BoolArray, IntArray, subset_indices
from stsbench.results.folder import Arrays, read_item_columns, write_result
from stsbench.results.record import MIN_SUBSET_PAIRS, CleanScore, Result, digest_columns

OWN_TEXT = "own"
"""Stands for the training text that an encoder's recipe names."""
COPIES = "copies"
"""Stands for the items of a task that have a copy in another split, or in another fold."""
Sentences = tuple[str, ...]
"""One sentence, or all sentences of an item."""


class SearchedText(NamedTuple):
    """Training text in which the sentences of the tasks were looked for."""

    settings: CleanScoreSettings
    """The names of the text, and how similar its near-duplicates of sentences are."""
    digest: str
    """The hash of the text, which a clean score records."""
    matches: OverlapMatches
    """The sentences of the tasks that the text contains."""


class CleanScorer:
    """Adds a clean score to each Result of a run, including current results of the folder."""

    def __init__(
        self,
        settings: CleanScoreSettings,
        plan: RunPlan,
        tasks: Iterable[PlannedTask],
        encoder_plans: Sequence[EncoderPlan],
        callbacks: RunCallbacks,
    ) -> None:
        """Read training text, and find the sentences of the tasks in it.

        A clean score is a score without the items whose sentences the training text contains.

        Args:
            settings: The corpora of training text, and how similar a sentence must be to count as
                contained.
            plan: The settings of the run.
            tasks: The tasks of the run, whose data are read already.
            encoder_plans: The encoders of the run.
            callbacks: ``on_failure`` is called if a clean score cannot be computed.

        Raises:
            StsbenchError: The text is not available, or an encoder has none of its own.
        """
        self._settings = settings
        self._plan = plan
        self._callbacks = callbacks
        self._catalogue = plan.catalogue
        self._sentences_by_split = {
            (task.name, task.split): task.splits[task.split].texts() for task in tasks
        }
        self._text_by_encoder: dict[str, SearchedText] = {}
        text_by_settings: dict[CleanScoreSettings, SearchedText] = {}
        for encoder_plan in encoder_plans:
            # The corpus ``own`` is replaced by the one that the encoder was trained on.
            settings_of_encoder = self._resolve_own_text(encoder_plan.name)
            # Encoders with the same text share one search of it.
            if settings_of_encoder not in text_by_settings:
                text_by_settings[settings_of_encoder] = self._search(settings_of_encoder)
            self._text_by_encoder[encoder_plan.name] = text_by_settings[settings_of_encoder]

    def _resolve_own_text(self, encoder: str) -> CleanScoreSettings:
        """Return the settings of clean scores, with the corpus ``own`` replaced.

        It is replaced by the corpus that the encoder's training recipe names.

        Args:
            encoder: The name of the encoder. What precedes a ``+`` (of a post-processor) may be the
                name of a recipe.

        Raises:
            StsbenchError: The settings have ``own``, and the encoder was not trained by a recipe.
        """
        recipe = encoder.partition("+")[0]
        own_corpus = None
        if recipe in self._catalogue.paths("trainers"):
            own_corpus = self._catalogue.recipe(recipe).data.corpus
        # A dict keeps the order of the corpora, each once.
        corpora: dict[str, None] = {}
        for corpus in self._settings.corpora:
            if corpus == OWN_TEXT:
                if own_corpus is None:
                    raise StsbenchError(
                        f"'{encoder}' is of no recipe, which would name its training text",
                        hint="give `clean=CORPUS`",
                        parameter="clean",
                        value=OWN_TEXT,
                    )
                corpus = own_corpus
            corpora[corpus] = None
        return replace(self._settings, corpora=tuple(corpora))

    def _search(self, settings: CleanScoreSettings) -> SearchedText:
        """Search corpora for the sentences of all splits that the run scores.

        Args:
            settings: The names of the corpora, and how similar near-duplicates are.

        Returns:
            The settings, a hash of the corpora's texts, and the sentences that were found.
        """
        # A function from the name of a corpus to its text. ``folder`` is the folder of corpora.
        load = partial(
            load_searched_text,
            corpora=settings.folder,
            data=self._plan.data_folder,
            catalogue=self._catalogue,
        )
        corpora = list(map(load, settings.corpora))
        sentences = (
            sentence
            for sentences_of_split in self._sentences_by_split.values()
            for sentence in sentences_of_split
        )
        matches = find_overlap_matches(corpora, sentences, min_similarity=settings.min_similarity)
        # The hash of a single corpus, or a hash of the hashes of several.
        hashes = [corpus.sha256 for corpus in corpora]
        digest = hashes[0] if len(hashes) == 1 else digest_columns({"corpora": hashes})
        return SearchedText(settings, digest, matches)

    def __call__(self, result: Result) -> Result:
        """Return a Result (a stored score) with its clean score added.

        The clean score is over the items without a sentence that the encoder's training text
        contains. It replaces an earlier one for the same text. If it changes the Result, its file
        is written again. If it cannot be computed, that is reported and the Result returned
        unchanged.

        Args:
            result: The Result of one of the run's encoders on one of its tasks.
        """
        searched_text = self._text_by_encoder[result.encoder]
        # The keys of kind_by_text are the sentences that the training text contains, or has
        # near-duplicates of. A tuple of one sentence excludes all items with it; a tuple of several
        # would exclude only items of exactly these sentences.
        excluded = [
            (sentence,)
            for sentence in self._sentences_by_split[result.task, result.split]
            if sentence in searched_text.matches.kind_by_text
        ]
        return _add_clean_score(
            result,
            excluded,
            searched_text.settings,
            searched_text.digest,
            self._plan,
            self._callbacks,
        )


def find_copies(data: DataToCheck) -> list[Sentences]:
    """Return the sentences of the scored items with a copy in another split or fold."""
    split = data.checked_splits[data.score_split]
    positions = {*find_leaks(split).items, *find_fold_copies(split).items}
    items = list(zip(*split.split.sides, strict=True))
    return [items[position] for position in sorted(positions)]


def score_without_copies(
    result: Result,
    copies_by_task: Mapping[str, Sequence[Sentences]],
    plan: RunPlan,
    callbacks: RunCallbacks,
) -> Result:
    """Return a Result with a further score, over the items that have no copy in the task's data.

    A copy is an item that occurs again, for example in the training split. If the score changes the
    Result, its file is written again. A Result of a task without copies is returned unchanged.

    Args:
        result: The Result, a stored score.
        copies_by_task: The sentences of each item that has copies, by task.
        plan: The settings of the run.
        callbacks: ``on_failure`` is called if the score cannot be computed.
    """
    copies = copies_by_task.get(result.task)
    if not copies:
        return result
    digest = digest_columns({"copies": list(chain.from_iterable(copies))})
    settings = CleanScoreSettings([COPIES])
    return _add_clean_score(result, copies, settings, digest, plan, callbacks)


def _add_clean_score(
    result: Result,
    excluded: Sequence[Sentences],
    settings: CleanScoreSettings,
    text_digest: str,
    plan: RunPlan,
    callbacks: RunCallbacks,
) -> Result:
    """Return a Result with a clean score: its score without items that training text contains.

    It replaces an earlier clean score of the same name. If that changes the Result, its file is
    written again. If the score cannot be computed, that is reported and the Result returned
    unchanged.

    Args:
        result: The Result, a stored score.
        excluded: Sentences to exclude: a tuple of one excludes every item with this sentence, a
            tuple of several the item of exactly these.
        settings: The names of the training text.
        text_digest: The hash of the training text.
        plan: The settings of the run.
        callbacks: ``on_failure`` is called if the clean score cannot be computed.
    """
    try:
        evaluator = make_task_evaluator(
            result.task, plan.catalogue.task(result.task), result.protocol
        )
        clean_score = compute_clean_score(result, excluded, evaluator, settings, text_digest)
    except StsbenchError as error:
        callbacks.on_failure(f"clean score of {result.encoder} on {result.task}", error)
        return result
    other_scores = [score for score in result.clean if score.name != clean_score.name]
    cleaned = msgspec.structs.replace(result, clean=[*other_scores, clean_score])
    if cleaned.clean != result.clean:
        # The file of its per-item columns exists already. For a Result without columns only the
        # file of the Result itself is written.
        without_columns = msgspec.structs.replace(cleaned, per_item={})
        write_result(without_columns, plan.results_folder)
    return cleaned


def compute_clean_score(
    result: Result,
    excluded: Sequence[Sentences],
    evaluator: Evaluator,
    settings: CleanScoreSettings,
    text_digest: str,
) -> CleanScore:
    """Compute the score over the items that contain none of the excluded sentences.

    For a classifier it is the share of right answers, while the score over all items may be a mean
    over folds. A mean over subsets omits subsets that keep fewer than ``MIN_SUBSET_PAIRS`` pairs.

    Args:
        result: The result, with its per-item columns or the path of its file.
        excluded: Sentences to exclude: a tuple of one excludes every item with this sentence, a
            tuple of several the item of exactly these.
        evaluator: Computes the score from the columns of the remaining items.
        settings: The names of the training text, and how similar its near-duplicates are (None:
            equal sentences only), which the clean score records.
        text_digest: The hash of the training text.

    Returns:
        The score and its interval, both None if under ``MIN_ITEMS`` (4) items remain, with the
        number ``n`` of these items and the omitted subsets (``left_out``).

    Raises:
        DataError: The columns are missing, broken or lack sentences; or no evaluator scores items.
    """
    columns = read_item_columns(result)
    clean_score = CleanScore(
        corpora=[str(strip_folders(name)) for name in settings.corpora],
        text=text_digest,
        near=settings.min_similarity,
        n=0,
        score=None,
        interval=None,
    )
    sentence_ids = _item_sentence_ids(result, columns, evaluator)
    is_kept = ~_are_excluded(sentence_ids, excluded)
    if is_kept.all():  # Nothing is excluded: the stored score is the clean one.
        return msgspec.structs.replace(
            clean_score, n=result.n, score=result.score, interval=result.interval
        )
    omitted_subsets: list[str] = []
    aggregation = str(result.protocol.get("aggregation"))
    # "mean" or "wmean", over the subsets' correlations. No function: "all", or no aggregation.
    if AGGREGATIONS.get(aggregation) is not None:
        omitted_subsets = _subsets_without_correlation(columns, is_kept)
        is_kept &= ~np.isin(columns["subset"].astype(str), omitted_subsets)
    n_kept = int(is_kept.sum())
    clean_score = msgspec.structs.replace(clean_score, n=n_kept, left_out=omitted_subsets)
    # recompute raises an error if values are too few or too equal to correlate: then no score.
    with suppress(DataError, EncoderError):
        if n_kept >= MIN_ITEMS:
            kept_columns = {name: column[is_kept] for name, column in columns.items()}
            scores = evaluator.recompute(kept_columns)
            return msgspec.structs.replace(
                clean_score, score=scores.score, interval=scores.interval
            )
    return clean_score


def _are_excluded(sentence_ids: IntArray, excluded: Sequence[Sentences]) -> BoolArray:
    """Return whether each item contains an excluded sentence, or is an excluded item, (n,).

    Args:
        sentence_ids: The ids of the m sentences of each item, (n, m).
        excluded: Tuples of sentences, all of one length: a tuple of one excludes every item with
            this sentence, a tuple of m the item of exactly these.
    """
    # ``sentence_columns`` hashes sentences: a column of ids for each position in the tuples; none
    # if nothing is excluded.
    excluded_columns = sentence_columns(*zip(*excluded, strict=True)).values()
    # The same tuples with ids in place of sentences.
    excluded_ids = set(zip(*(ids.tolist() for ids in excluded_columns), strict=True))
    return np.array(
        [
            tuple(ids) in excluded_ids or any((single_id,) in excluded_ids for single_id in ids)
            for ids in sentence_ids.tolist()
        ],
        dtype=bool,
    )


def _item_sentence_ids(result: Result, columns: Arrays, evaluator: Evaluator) -> IntArray:
    """Return the ids of each item's sentences, (n, 1) or for pairs (n, 2).

    An id is the first four bytes of a sentence's sha256.

    Args:
        result: The result, for messages.
        columns: Its per-item columns, (n,) each.
        evaluator: The evaluator of its task, which must be able to score some of the items.

    Raises:
        DataError: The columns lack the ids of sentences, or the evaluator has no method
            ``recompute``, which scores items.
    """
    sentence_ids = read_sentence_ids(columns)
    if sentence_ids is not None and hasattr(evaluator, "recompute"):
        return sentence_ids
    if sentence_ids is not None:
        reason = "its evaluator cannot make scores again from items"
    # Only retrieval, whose items are images, has recalls.
    elif "recall" in columns:
        reason = "the items are no sentences"
    else:
        reason = f"its per-item columns lack {SENTENCE_COLUMNS[0]}"
    raise DataError(
        f"{result.encoder} on {result.task}: no part of the items has a score: {reason}"
    )


def _subsets_without_correlation(columns: Arrays, is_kept: BoolArray) -> list[str]:
    """Return the names of subsets that no correlation can be computed for after pairs are excluded.

    They keep fewer than ``MIN_SUBSET_PAIRS`` pairs, or only pairs with the same gold score.

    Args:
        columns: Per-item columns, among them ``gold`` and ``subset``, (n,).
        is_kept: Whether each pair is kept, (n,).
    """
    subsets = []
    for name, positions in subset_indices(columns["subset"].tolist()).items():
        gold = columns["gold"][positions][is_kept[positions]]
        if len(gold) < MIN_SUBSET_PAIRS or np.ptp(gold) == 0:
            subsets.append(name)
    return subsets
