"""Benchmark sentence encoders on STS and SentEval.

Scores can be trusted, compared and reproduced. The names below are the public interface; each is
imported when first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stsbench.api.calls import (
        compare as compare,
        evaluate as evaluate,
        evaluate_pairs as evaluate_pairs,
        leaderboard as leaderboard,
        read_results as read_results,
    )
    from stsbench.api.results import Results as Results
    from stsbench.api.trainer_evaluator import StsbenchEvaluator as StsbenchEvaluator
    from stsbench.bench.iteration import iterate as iterate
    from stsbench.core.catalogue import Catalogue as Catalogue
    from stsbench.core.errors import StsbenchError as StsbenchError
    from stsbench.data.task import Task as Task, load_task as load_task
    from stsbench.encoders.base import Encoder as Encoder
    from stsbench.encoders.load import load_encoder as load_encoder
    from stsbench.encoders.pairs import PairScorer as PairScorer
    from stsbench.recipes.train import train as train
    from stsbench.results.record import Result as Result

__version__ = "0.1.0"
_MODULES = {
    "stsbench.api.calls": (
        "compare",
        "evaluate",
        "evaluate_pairs",
        "leaderboard",
        "read_results",
    ),
    "stsbench.api.results": ("Results",),
    "stsbench.api.trainer_evaluator": ("StsbenchEvaluator",),
    "stsbench.bench.iteration": ("iterate",),
    "stsbench.core.catalogue": ("Catalogue",),
    "stsbench.core.errors": ("StsbenchError",),
    "stsbench.data.task": ("Task", "load_task"),
    "stsbench.encoders.base": ("Encoder",),
    "stsbench.encoders.load": ("load_encoder",),
    "stsbench.encoders.pairs": ("PairScorer",),
    "stsbench.recipes.train": ("train",),
    "stsbench.results.record": ("Result",),
}
__all__ = sorted(["__version__", *(name for names in _MODULES.values() for name in names)])


def __getattr__(name: str) -> Any:  # noqa: ANN401 - the type is that of the attribute
    if name == "analysis":
        return import_module("stsbench.analysis")
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'stsbench' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
