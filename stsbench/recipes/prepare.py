"""What a plan needs, loaded and checked: its text, its development split and the checkpoint it starts from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stsbench.cards.recipe import CorpusFacts
from stsbench.data.corpora.choosing import NUMBERS, of_at_most, of_form, refuse_ordered, repeated, where
from stsbench.data.splits import PairSplit
from stsbench.data.task import load_task
from stsbench.encoders.seams import Encoder, FloatArray
from stsbench.encoders.trained import RUN_FILE, run_folder
from stsbench.errors import CardError, DataError, TrainingError, choose
from stsbench.numbers.closeness import alignment, uniformity
from stsbench.numbers.similarity import paired_cosine, paired_similarities
from stsbench.numbers.statistics import CORRELATIONS
from stsbench.recipes.plan import TrainPlan

if TYPE_CHECKING:
    from stsbench.data.corpora.corpus import Corpus
    from stsbench.encoders.checkpoints.checkpoint import Checkpoint


def values_of(corpus: Corpus, names: Sequence[str]) -> dict[str, Any]:
    """Some columns of a corpus: texts, or numbers."""
    return {name: corpus.numbers(name) if name in NUMBERS else corpus.column(name) for name in names}


def as_documents(corpus: Corpus) -> Corpus:
    """Each line of a plain file of text is a document, where documents are asked for."""
    if corpus.columns != ["text"]:
        return corpus
    return replace(corpus, table=corpus.table.rename_columns(["document"]))


def load_validation(plan: TrainPlan) -> Callable[[Encoder], float]:
    """What scores an encoder on a plan's development split."""
    facts = plan.card.selection
    split = load_task(facts.task, data=plan.data, catalogue=plan.catalogue).load(facts.split)
    return validator(split, measure=facts.measure)


def load_text(plan: TrainPlan) -> Corpus:
    """What a plan learns from."""
    from stsbench.data.corpora.load import load_corpus

    facts = plan.card.data
    corpus = load_corpus(facts.corpus, corpora=plan.corpora, data=plan.data, catalogue=plan.catalogue)
    if facts.where:
        refuse_ordered(corpus, "where")
        corpus = where(corpus, facts.where)
    corpus = of_form(corpus, facts.form) if facts.form else corpus
    corpus = corpus.sentences() if facts.sentences else corpus
    corpus = corpus if facts.max_words is None else of_at_most(corpus, facts.max_words)
    return _some_rows(corpus, facts, plan.seed)


def _some_rows(corpus: Corpus, facts: CorpusFacts, seed: int) -> Corpus:
    """The rows that are drawn, all of them where no number is given; again and again where that is asked for."""
    wanted = facts.rows
    if wanted is None:
        if facts.upsample:
            raise CardError("[data] upsample repeats the rows that are drawn; give 'rows' too")
        return corpus
    if not (1 if facts.upsample else 2) <= wanted <= len(corpus):
        raise CardError(
            f"[data] rows {wanted}: the corpus has {len(corpus)}{'' if wanted > 1 else ', and two are the fewest'}"
        )
    if "document_id" in corpus.columns:
        # Ordered text stays in one piece: a sentence's neighbours are what is learned from.
        drawn = np.arange(wanted)
    else:
        drawn = np.sort(np.random.default_rng([seed, 7]).choice(len(corpus), wanted, replace=False))
    taken = corpus.take(drawn.tolist())
    if facts.upsample:
        refuse_ordered(corpus, "upsample")
    return repeated(taken, len(corpus)) if facts.upsample else taken


def find_start(plan: TrainPlan) -> Checkpoint:
    """The checkpoint that training starts from."""
    from stsbench.encoders.checkpoints.checkpoint import find_checkpoint

    base = plan.card.base
    if plan.base:
        return find_checkpoint(**_given_base(plan))
    if base.recipe:
        earlier = run_folder(plan.out, base.recipe, plan.seed)
        if not (earlier / RUN_FILE).is_file():
            raise TrainingError(
                f"recipe {plan.name} continues from recipe '{base.recipe}', seed {plan.seed}, which is not trained here; "
                f"run: stsbench train {base.recipe} --seeds {plan.seed}"
            )
        return find_checkpoint(str(earlier))
    if not base.model:
        raise CardError(f"recipe {plan.name}: no checkpoint to start from; pass --base FOLDER ({base.note})")
    return find_checkpoint(base.model, revision=base.revision, sha256=base.sha256)


def _given_base(plan: TrainPlan) -> dict[str, Any]:
    """Where the user's ``--base`` lies: a folder, a Hub id, or what an encoder's card says."""
    if Path(plan.base).is_dir() or plan.base not in plan.catalogue.paths("baselines"):
        return {"model": plan.base}
    card = plan.catalogue.encoder(plan.base)
    found = {key: card.params[key] for key in WHERE if key in card.params}
    if not {"model", "package"} & {*found}:
        raise CardError(
            f"--base {plan.base}: its card names no checkpoint; give --base a folder that holds it, or a Hub id"
        )
    return found


WHERE = ("model", "package", "revision", "subfolder", "sha256")
"""What of a card's parameters tells where its checkpoint lies."""


MEASURES: Mapping[str, Callable[[FloatArray, FloatArray], Sequence[npt.NDArray[np.float64]]]] = {
    "cosine": lambda a, b: [paired_cosine(a, b)[0]],
    "best_of_four": paired_similarities,
}
"""What Spearman is taken of when weights are chosen; the highest counts."""


def validator(split: Any, *, measure: str = "cosine") -> Callable[[Encoder], float]:  # noqa: ANN401 - any split
    """Return what scores an encoder on a development split: Spearman of cosine or the best of four, x100 nowhere.

    Beside the score it tells alignment and uniformity of the split's embeddings.
    """
    if not isinstance(split, PairSplit):
        raise DataError("selection needs a split of sentence pairs with gold scores, such as stsb's dev")

    from stsbench.training.seams import DevelopmentScore

    similarities = choose("measure", measure, MEASURES)
    close = split.gold > ALIKE * split.gold.max()

    def validate(encoder: Encoder) -> float:
        embeddings = encoder.encode([*split.sentences1, *split.sentences2])
        a, b = embeddings[: split.n], embeddings[split.n :]
        found = similarities(a, b)
        scores = [float(CORRELATIONS["spearman"](one, split.gold)) for one in found]
        # A collapsed student embeds everything alike: the worst there is, not an error.
        best = max(score if np.isfinite(score) else -1.0 for score in scores)
        aligned = {"alignment": alignment(a[close], b[close])} if close.any() else {}
        return DevelopmentScore(best, {**aligned, "uniformity": uniformity(embeddings)})

    return validate


ALIKE = 0.8
"""Pairs are positives above this share of the highest gold score: above 4 of STS-B's 5, as in SimCSE's section 3."""
