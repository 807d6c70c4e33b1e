"""The same scores from stsbench, MTEB and sentence-transformers, in one run on the same pairs.

    STSBENCH_DATA=DIR python benchmarks/mteb_same.py [--tasks sts-mteb] [--checkpoint DIR]

It needs ``pip install mteb``. MTEB gets the pairs that stsbench has read, because it reads only
from the Hub; everything else is its own: the call of the model, the similarity and the correlation.
The scores are Spearman correlations of cosines, from -1 to 1. The exit code is 1 if two scores of a
task differ by more than 0.001.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import mteb
from datasets import Dataset
from encode import default_checkpoint
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

import stsbench
from stsbench.data.mteb.facts import MatchedTask, find_matched_task
from stsbench.data.splits import PairSplit
from stsbench.data.task import expand_names

DEFAULT_TASKS = ("sts-mteb", "sts17-en-en")
MAX_DIFFERENCE = 0.001


def score_by_mteb(model: SentenceTransformer, split: PairSplit, matched: MatchedTask) -> float:
    """Return MTEB's score of a model on pairs that are handed to MTEB's task."""
    task = mteb.get_task(matched.mteb_task, hf_subsets=[matched.mteb_subset], eval_splits=["test"])
    pairs = {
        "sentence1": list(split.sentences1),
        "sentence2": list(split.sentences2),
        "score": split.gold.tolist(),
    }
    task.dataset = {matched.mteb_subset: {"test": Dataset.from_dict(pairs)}}
    task.data_loaded = True
    results = mteb.evaluate(model, [task], cache=None, show_progress_bar=False)
    (scores,) = results.task_results[0].scores["test"]
    return float(scores["cosine_spearman"])


def score_by_sentence_transformers(model: SentenceTransformer, split: PairSplit) -> float:
    """Return the score of sentence-transformers' evaluator."""
    evaluator = EmbeddingSimilarityEvaluator(
        list(split.sentences1),
        list(split.sentences2),
        split.gold.tolist(),
        main_similarity="cosine",
        write_csv=False,
    )
    return float(evaluator(model)["spearman_cosine"])


def compare_tasks(names: Sequence[str], checkpoint: Path) -> Mapping[str, float]:
    """Print the scores of all sides on each task, and return the largest difference by task."""
    catalogue = stsbench.Catalogue()
    model = SentenceTransformer(str(checkpoint), device="cpu")
    print("| MTEB's task | task | stsbench | MTEB | sentence-transformers | difference |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    differences = {}
    for name in expand_names(list(names), catalogue):
        matched = find_matched_task(name, catalogue)
        split = stsbench.load_task(name).load("test")
        if matched is None or not isinstance(split, PairSplit):
            sys.exit(f"{name} is no task of MTEB's")
        (result,) = stsbench.evaluate(str(checkpoint), name, store=None)
        scores = [
            result.score,
            score_by_mteb(model, split, matched),
            score_by_sentence_transformers(model, split),
        ]
        differences[name] = max(scores) - min(scores)
        mteb_name = f"{matched.mteb_task} {matched.mteb_subset.replace('default', '')}".strip()
        cells = [mteb_name, f"`{name}`", *(f"{score:.5f}" for score in scores)]
        print(f"| {' | '.join(cells)} | {differences[name]:.6f} |", flush=True)
    return differences


def main() -> int:
    """Compare the scores, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", default=",".join(DEFAULT_TASKS))
    parser.add_argument("--checkpoint", type=Path, default=None)
    options = parser.parse_args()
    names = options.tasks.split(",")
    differences = compare_tasks(names, options.checkpoint or default_checkpoint())
    n_same = sum(difference <= MAX_DIFFERENCE for difference in differences.values())
    print(f"\n{n_same} of {len(differences)} tasks within {MAX_DIFFERENCE}")
    return 0 if n_same == len(differences) else 1


if __name__ == "__main__":
    sys.exit(main())
