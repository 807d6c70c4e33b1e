from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import ClassVar

import msgspec
import pytest

from stsbench.core.errors import CardError, ProtocolError, StsbenchError
from stsbench.evaluators.probe.evaluator import PROTOCOLS, MinibatchProtocol, ProbeEvaluator
from stsbench.evaluators.probe.items import ProbeRun
from stsbench.evaluators.probe.minibatch import CompiledSolver, parse_optimiser
from stsbench.evaluators.probe.stacked import StackedSolver
from stsbench.evaluators.registry import EVALUATORS, make_evaluator, replace_fields
from stsbench.evaluators.relatedness import PROTOCOLS as RELATEDNESS
from stsbench.evaluators.retrieval import PROTOCOLS as RETRIEVAL
from tests.made import CATALOGUE


def test_senteval_is_what_the_papers_used():
    assert asdict(PROTOCOLS["senteval"]) == {
        "name": "senteval",
        "kfold": 10,
        "base_seed": 1111,
        "data_order": "length,label",
        "rounding": 2,
        "optimiser": "adam",
        "batch_size": 64,
        "tenacity": 5,
        "epoch_size": 4,
        "max_epochs": 200,
        "nhid": 0,
        "dropout": 0.0,
        "loss": "mean",
        "weight_decays": (1e-5, 1e-4, 1e-3, 1e-2),
        "holdout": 0.05,
    }


def test_compiled_loops_train_what_is_linear_and_on_the_cpu_and_torch_all_else():
    rules = MinibatchProtocol(name="test")
    on_cpu, on_gpu = ProbeRun(3, 2), ProbeRun(3, 2, device="cuda")
    solvers = [rules.solver(on_cpu), rules.solver(on_gpu), replace(rules, nhid=4).solver(on_cpu)]
    assert [type(solver) for solver in solvers] == [CompiledSolver, StackedSolver, StackedSolver]


def test_presets_differ_from_it_as_named():
    standard, summed, fast = (
        asdict(PROTOCOLS[name]) for name in ("senteval", "senteval-sum", "senteval-fast")
    )
    assert {k: v for k, v in summed.items() if v != standard[k]} == {
        "name": "senteval-sum",
        "loss": "sum",
    }
    assert {k: v for k, v in fast.items() if v != standard[k]} == {
        "name": "senteval-fast",
        "kfold": 5,
        "optimiser": "rmsprop",
        "batch_size": 128,
        "tenacity": 3,
        "epoch_size": 2,
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("adam", ("adam", {"lr": 0.001})),
        ("rmsprop,lr=0.5", ("rmsprop", {"lr": 0.5})),
        ("sgd,lr=0.1", ("sgd", {"lr": 0.1, "momentum": 0.0})),
        ("sgd lr=0.1 momentum=0.9", ("sgd", {"lr": 0.1, "momentum": 0.9})),
    ],
)
def test_optimisers_are_read(text, expected):
    assert parse_optimiser(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("adma", "unknown optimiser 'adma'; did you mean 'adam'"),
        ("", "unknown optimiser ''"),
        ("adam,momentum=0.9", "unknown setting of optimiser 'adam' 'momentum'"),
        ("sgd,momentun=0.9", "'momentum'"),
        ("sgd,lr=fast", "'fast' is not a number"),
        ("sgd", "needs a finite learning rate above 0"),
        ("adam,lr=nan", "needs a finite learning rate above 0"),
        ("sgd,lr=inf", "needs a finite learning rate above 0"),
        ("sgd,lr=0.1,momentum=-1", "momentum must be from 0 to below 1"),
        ("sgd,lr=0.1,momentum=nan", "momentum must be from 0 to below 1"),
    ],
)
def test_wrong_optimisers_are_named(text, message):
    with pytest.raises(StsbenchError, match=message):
        MinibatchProtocol(name="test", optimiser=text)


@pytest.mark.parametrize(
    ("protocols", "name", "value"),
    [
        *((PROTOCOLS, *changed) for changed in [
            ("kfold", 1), ("batch_size", 0), ("epoch_size", 0), ("nhid", -1), ("dropout", 1.0), ("holdout", 0.0),
            ("loss", "median"), ("weight_decays", ()), ("tenacity", -1), ("optimiser", "adma"),
            ("base_seed", -1), ("base_seed", 1 << 32), ("rounding", 400),
        ]),
        *((RELATEDNESS, *changed) for changed in [("metric", "kendall"), ("batch_size", 0), ("learning_rate", 0.0), ("base_seed", -1)]),
        *((RETRIEVAL, *changed) for changed in [("margin", 0.0), ("folds", 0), ("optimiser", "sgd"), ("max_epochs", -1), ("base_seed", 1 << 32)]),
    ],
)  # fmt: skip
def test_fields_of_no_sense_are_refused(protocols, name, value):
    with pytest.raises(
        StsbenchError, match=f"protocol 'senteval': {name}: .*{value!r}|unknown {name} '{value}'"
    ):
        replace_fields(protocols["senteval"], {name: value})


def test_another_name_is_no_field():
    with pytest.raises(ProtocolError, match="'senteval' has no .*'name'"):
        replace_fields(PROTOCOLS["senteval"], {"name": "mine"})


class Stopwatch:
    """An evaluator of one protocol."""

    PROTOCOLS: ClassVar[Mapping[str, MinibatchProtocol]] = {"only": MinibatchProtocol(name="only")}

    def __call__(self) -> None:
        """Score nothing."""


def test_an_evaluator_of_one_protocol_is_one_and_of_none_is_not(monkeypatch):
    assert EVALUATORS.load(f"{__name__}:Stopwatch") is Stopwatch
    monkeypatch.setattr(Stopwatch, "PROTOCOLS", {})
    with pytest.raises(StsbenchError, match="evaluators, whose PROTOCOLS"):
        EVALUATORS.load(f"{__name__}:Stopwatch")


def test_a_converged_protocol_needs_positive_penalties():
    with pytest.raises(StsbenchError, match="'logreg': penalties: .* > 0.0"):
        replace_fields(PROTOCOLS["logreg"], {"penalties": (1.0, 0.0)})


def test_a_task_may_fix_fields_and_the_result_sees_them():
    snli = ProbeEvaluator(
        PROTOCOLS["senteval"],
        features="concat_mul_abs",
        epoch_size=1,
        max_epochs=15,
        weight_decays=(1e-9,),
    ).protocol
    assert isinstance(snli, MinibatchProtocol)
    assert (snli.epoch_size, snli.max_epochs, snli.weight_decays) == (1, 15, (1e-9,))
    hidden = replace(PROTOCOLS["senteval"], nhid=50)  # type: ignore[call-arg]
    assert ProbeEvaluator(hidden, nhid=0).protocol == PROTOCOLS["senteval"]
    assert (
        ProbeEvaluator(PROTOCOLS["logreg"], epoch_size=1, weight_decays=(1e-9,)).protocol
        == PROTOCOLS["logreg"]
    )


def test_a_card_chooses_no_protocol():
    sts = EVALUATORS.load("sts")
    options = {"protocol": {"name": "simcse", "metric": "kendall", "aggregation": "all"}}
    card = msgspec.structs.replace(CATALOGUE.task("stsb"), options=options)
    with pytest.raises(CardError, match=r"own: \[options\]: key 'protocol' is no option"):
        make_evaluator(sts, sts.PROTOCOLS["simcse"], card, "own")


def test_protocols_are_known_without_importing_anything_heavy():
    code = (
        "import sys, stsbench.evaluators.probe.evaluator as p; p.ProbeEvaluator(p.PROTOCOLS['senteval']); "
        "print(*sorted({'torch', 'numba', 'sklearn', 'scipy', 'pandas'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""
