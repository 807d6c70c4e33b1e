"""The protocols of probes: each row is a classifier with its settings.

Source: SentEval (arXiv 1803.05449), README and ``senteval/tools`` at 5d6dc11 (2020-09-25).
"""

from __future__ import annotations

from stsbench.evaluators.probe.classifier import ProbeProtocol
from stsbench.evaluators.probe.logreg import ConvergedProtocol
from stsbench.evaluators.probe.minibatch import MinibatchProtocol
from stsbench.evaluators.seams import by_name

PROTOCOLS: dict[str, ProbeProtocol] = by_name(
    # README: "comparable with the literature"; SimCSE's test mode.
    MinibatchProtocol(name="senteval"),
    # The same under the torch of 2018, which summed the loss over a batch.
    MinibatchProtocol(name="senteval-sum", loss="sum"),
    # README: "prototyping"; SimCSE's dev and fasttest modes.
    MinibatchProtocol(name="senteval-fast", kfold=5, optimiser="rmsprop", batch_size=128, tenacity=3, epoch_size=2),
    ConvergedProtocol(name="logreg"),
)
