"""Benchmark sentence encoders on STS and SentEval: scores that can be trusted, compared and reproduced.

The names below are the public interface; each is loaded when first used, so that importing
the package costs nothing.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stsbench.bench.iterate import iterate
    from stsbench.cards.catalogue import Catalogue
    from stsbench.data.task import Task, load_task
    from stsbench.encoders.loading import load_encoder
    from stsbench.encoders.seams import Encoder
    from stsbench.errors import StsbenchError
    from stsbench.interface.reading import compare_encoders as compare
    from stsbench.interface.reading import read_results
    from stsbench.interface.results import Results
    from stsbench.interface.scoring import evaluate
    from stsbench.interface.tables import leaderboard
    from stsbench.recipes.train import train
    from stsbench.results.record import Result

__version__ = "0.1.0"
__all__ = [
    "Catalogue",
    "Encoder",
    "Result",
    "Results",
    "StsbenchError",
    "Task",
    "__version__",
    "compare",
    "evaluate",
    "iterate",
    "leaderboard",
    "load_encoder",
    "load_task",
    "read_results",
    "train",
]

_HOMES = {
    "Catalogue": "stsbench.cards.catalogue:Catalogue",
    "Encoder": "stsbench.encoders.seams:Encoder",
    "Result": "stsbench.results.record:Result",
    "Results": "stsbench.interface.results:Results",
    "StsbenchError": "stsbench.errors:StsbenchError",
    "Task": "stsbench.data.task:Task",
    "compare": "stsbench.interface.reading:compare_encoders",
    "evaluate": "stsbench.interface.scoring:evaluate",
    "iterate": "stsbench.bench.iterate:iterate",
    "leaderboard": "stsbench.interface.tables:leaderboard",
    "load_encoder": "stsbench.encoders.loading:load_encoder",
    "load_task": "stsbench.data.task:load_task",
    "read_results": "stsbench.interface.reading:read_results",
    "train": "stsbench.recipes.train:train",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - the type is that of the name asked for
    if name == "analysis":
        return import_module("stsbench.analysis")
    if name not in _HOMES:
        raise AttributeError(f"module 'stsbench' has no attribute '{name}'")
    module, _, attribute = _HOMES[name].partition(":")
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted(__all__)


class _Face(ModuleType):
    """This module: rooms inside it that have a public function's name do not take that name when they are imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _HOMES:
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Face
