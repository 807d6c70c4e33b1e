"""Benchmark sentence encoders on STS and SentEval: scores that can be trusted, compared and reproduced.

The names below are the public interface; each is loaded when first used, so that importing
the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stsbench.bench.run import evaluate
    from stsbench.cards.catalogue import Catalogue
    from stsbench.data.task import Task, load_task
    from stsbench.encoders.loading import load_encoder
    from stsbench.encoders.seams import Encoder
    from stsbench.errors import StsbenchError
    from stsbench.recipes.train import train
    from stsbench.results.folder import read_results
    from stsbench.results.record import Result

__version__ = "0.1.0"
__all__ = [
    "Catalogue",
    "Encoder",
    "Result",
    "StsbenchError",
    "Task",
    "__version__",
    "evaluate",
    "load_encoder",
    "load_task",
    "read_results",
    "train",
]

_HOMES = {
    "Catalogue": "stsbench.cards.catalogue",
    "Encoder": "stsbench.encoders.seams",
    "Result": "stsbench.results.record",
    "StsbenchError": "stsbench.errors",
    "Task": "stsbench.data.task",
    "evaluate": "stsbench.bench.run",
    "load_encoder": "stsbench.encoders.loading",
    "load_task": "stsbench.data.task",
    "read_results": "stsbench.results.folder",
    "train": "stsbench.recipes.train",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - the type is that of the name asked for
    if name not in _HOMES:
        raise AttributeError(f"module 'stsbench' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
