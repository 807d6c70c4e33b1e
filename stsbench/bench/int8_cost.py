"""Measure what int8 costs an encoder: its score on pairs of STS-B, less the one in float32."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace

import msgspec
import numpy as np

from stsbench.bench.embedder import base_encoder
from stsbench.bench.plan import RunPlan
from stsbench.core.errors import StsbenchError
from stsbench.core.files import write_atomically
from stsbench.core.provenance import encoder_identity
from stsbench.data.quality import load_local_splits
from stsbench.data.splits import PairSplit
from stsbench.data.task import load_task
from stsbench.encoders.backends import Int8Backend
from stsbench.encoders.base import Encoder
from stsbench.encoders.cached_files import read_json_record
from stsbench.encoders.engine.embed import Engine
from stsbench.encoders.named import NamedEncoder
from stsbench.encoders.transformer.encoder import TransformerEncoder
from stsbench.encoders.transformer.sentence_transformer import SentenceTransformerEncoder
from stsbench.numbers.dependence import read_sentence_ids, sentence_columns
from stsbench.numbers.similarity import paired_cosine
from stsbench.numbers.statistics import Float64Array, weigh_subsets
from stsbench.significance.differences import ScoreSample
from stsbench.significance.items import TaskItems
from stsbench.significance.means import estimate_mean_difference
from stsbench.significance.paired import PairedCorrelation

TASK = "stsb"
N_PAIRS = 500
"""The number of pairs, evenly spaced in the development split."""


class Int8Cost(msgspec.Struct, kw_only=True):
    """The score in int8 less that in float32, never times 100."""

    difference: float
    interval: tuple[float, float]
    """The paired 95% interval of the difference."""
    n: int
    """The number of pairs."""


def report_int8_cost(
    encoder: NamedEncoder, plan: RunPlan, on_notice: Callable[[str], None]
) -> None:
    """Give a notice on how much int8 numbers in place of float32 change an encoder's score.

    The score is the one on pairs of STS-B's development split. The change is measured once, and
    stored beside the int8 model (``backend.exported`` is the folder of that model, None if it has
    not been loaded).

    Args:
        encoder: Any encoder; others than those with ``dtype=int8`` have no notice.
        plan: The run, whose data folder and cards are read.
        on_notice: Called with the notice.

    Raises:
        StsbenchError: A model cannot be loaded, or the cost cannot be stored.
    """
    base = base_encoder(encoder.encoder)
    if not isinstance(base, TransformerEncoder | SentenceTransformerEncoder):
        return
    backend = base.backend
    if not isinstance(backend, Int8Backend) or backend.exported is None:
        return
    # Encoders with other poolings or prompts share the file of the model, but not its cost. So the
    # name of the stored cost has a hash of the encoder's identity (class, parameters, weights).
    digest = hashlib.sha256((encoder_identity(base) or "").encode()).hexdigest()[:16]
    path = backend.exported / f"cost-{digest}.json"
    # None if there is no such file, or it is broken.
    cost = read_json_record(path, Int8Cost)
    if cost is None:
        pairs = _load_pairs(plan)
        if pairs is None:
            on_notice(
                f"{encoder.name}: the cost of int8 is not measured, because STS-B's development "
                "split is not on this machine"
            )
            return
        cost = _measure(base, pairs)
        write_atomically(path, msgspec.json.encode(cost))
    low, high = cost.interval
    on_notice(
        f"{encoder.name}: int8 moves the score on {cost.n} pairs of STS-B's development split by "
        f"{100 * cost.difference:+.2f} points (95% interval {100 * low:+.2f} to {100 * high:+.2f})"
    )


def _load_pairs(plan: RunPlan) -> PairSplit | None:
    """Load ``N_PAIRS`` evenly spaced pairs of STS-B's development split (its ``validation``).

    Args:
        plan: The run, whose data folder and cards are read.

    Returns:
        The pairs with their gold scores; None if the data are not on this machine, or broken.
    """
    try:
        task = load_task(TASK, data=plan.data_folder, catalogue=plan.catalogue)
        # Only splits whose files are on this machine, by name: nothing is downloaded.
        split = load_local_splits(task).get("validation")
    except StsbenchError:
        return None
    if not isinstance(split, PairSplit):
        return None
    # A row that is drawn twice, because there are fewer than N_PAIRS, counts once.
    rows = np.unique(np.linspace(0, split.n - 1, N_PAIRS).astype(np.int64))
    return replace(
        split,
        sentences1=[split.sentences1[row] for row in rows],
        sentences2=[split.sentences2[row] for row in rows],
        gold=split.gold[rows],
        subset=[split.subset[row] for row in rows],
        locations=(),
    )


def _measure(
    encoder: TransformerEncoder | SentenceTransformerEncoder, pairs: PairSplit
) -> Int8Cost:
    """Measure how much int8 changes an encoder's Spearman correlation on pairs.

    Args:
        encoder: The encoder in int8.
        pairs: Pairs of sentences with gold scores.

    Returns:
        The score in int8 less that in float32, its 95% interval, and the number of pairs.
    """

    def compute_similarities(encoder: Encoder) -> Float64Array:
        """Return the cosine of each pair, (1, n): one row, because there is one seed."""
        # The embeddings of all first sentences, then those of all second ones.
        embeddings = np.asarray(Engine(encoder)(pairs.texts()))
        return paired_cosine(embeddings[: pairs.n], embeddings[pairs.n :]).values[None]

    # "all": the pairs are correlated together, not by subset.
    paired = PairedCorrelation(
        values=[compute_similarities(encoder.in_float32()), compute_similarities(encoder)],
        gold=pairs.gold,
        subset_weights=weigh_subsets(pairs.subset, "all"),
        metric="spearman",
    )
    # The score of either encoder, and how much each pair moves it.
    samples = {
        name: ScoreSample(paired.scores(index), paired.influences(index), seeds=())
        for index, name in enumerate(("float32", "int8"))
    }
    # Numbers of the sentences of each pair, by which pairs that share one are known.
    sentences = read_sentence_ids(sentence_columns(*pairs.sides))
    assert sentences is not None, "pairs have sentences"
    items = TaskItems(
        task=TASK,
        samples=samples,
        weights=paired.weights,
        sentences=sentences,
        knows_sentences=True,
        paired=paired,
    )
    # The second one's score less the first one's.
    estimate = estimate_mean_difference([items], "float32", "int8")
    return Int8Cost(difference=estimate.difference, interval=estimate.interval(), n=pairs.n)
