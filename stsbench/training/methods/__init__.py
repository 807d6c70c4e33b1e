"""Methods by name: one file and one row of this table each."""

from __future__ import annotations

from stsbench.registry import Registry

METHODS = Registry(
    "method",
    {
        "simcse": "stsbench.training.methods.simcse:SimCSE",
        "simcse_positives": "stsbench.training.methods.simcse_positives:SimCSEPositives",
        "infersent": "stsbench.training.infersent:InferSentTraining",
        "skip_thoughts": "stsbench.training.skip_thoughts:SkipThoughtsTraining",
        "quick_thoughts": "stsbench.training.quick_thoughts:QuickThoughtsTraining",
        "fastsent": "stsbench.training.fastsent:FastSentTraining",
    },
    group="methods",
)
