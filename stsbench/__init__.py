"""Benchmark sentence encoders on STS and SentEval: scores that can be trusted, compared and reproduced.

The names below are the public interface; each is loaded when first used, so that importing
the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stsbench.api.calls import compare_encoders as compare
    from stsbench.api.calls import evaluate, leaderboard, read_results
    from stsbench.api.results import Results
    from stsbench.bench.run import iterate
    from stsbench.core.catalogue import Catalogue
    from stsbench.core.errors import StsbenchError
    from stsbench.data.task import Task, load_task
    from stsbench.encoders.base import Encoder
    from stsbench.encoders.load import load_encoder
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
    "Catalogue": "stsbench.core.catalogue:Catalogue",
    "Encoder": "stsbench.encoders.base:Encoder",
    "Result": "stsbench.results.record:Result",
    "Results": "stsbench.api.results:Results",
    "StsbenchError": "stsbench.core.errors:StsbenchError",
    "Task": "stsbench.data.task:Task",
    "compare": "stsbench.api.calls:compare_encoders",
    "evaluate": "stsbench.api.calls:evaluate",
    "iterate": "stsbench.bench.run:iterate",
    "leaderboard": "stsbench.api.calls:leaderboard",
    "load_encoder": "stsbench.encoders.load:load_encoder",
    "load_task": "stsbench.data.task:load_task",
    "read_results": "stsbench.api.calls:read_results",
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
