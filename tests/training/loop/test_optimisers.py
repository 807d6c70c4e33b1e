"""Optimisers and schedules beside literal ones in float64."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from stsbench.core.cards import TrainingSection
from stsbench.core.errors import CardError
from stsbench.training.loop.optimisers import UncorrectedAdamW, make_optimiser, make_schedule


def facts(**options: Any) -> TrainingSection:
    return TrainingSection(**{"batch_size": 8, "learning_rate": 0.1, "steps": 10, **options})


def test_uncorrected_adam_is_the_literal_recurrence():
    rng = np.random.default_rng(0)
    start, grads = rng.normal(size=5), rng.normal(size=(4, 5))
    parameter = torch.nn.Parameter(torch.tensor(start))
    optimiser = UncorrectedAdamW([parameter], lr=0.1, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.2)
    x, m, v = start.copy(), np.zeros(5), np.zeros(5)
    for grad in grads:
        parameter.grad = torch.tensor(grad)
        optimiser.step()
        for i in range(5):
            m[i] = 0.8 * m[i] + 0.2 * grad[i]
            v[i] = 0.9 * v[i] + 0.1 * grad[i] ** 2
            x[i] -= 0.1 * m[i] / (math.sqrt(v[i]) + 1e-3)
            x[i] -= 0.1 * 0.2 * x[i]
    np.testing.assert_allclose(parameter.detach().numpy(), x, rtol=1e-12)


def test_biases_and_normalisations_are_not_decayed():
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.LayerNorm(2))
    groups = make_optimiser(module, facts(weight_decay=0.01)).param_groups
    assert [group["weight_decay"] for group in groups] == [0.01, 0.0]
    assert [len(group["params"]) for group in groups] == [1, 3]


@pytest.mark.parametrize(
    ("options", "steps", "expected"),
    [
        ({"schedule": "linear"}, 4, [1, 0.75, 0.5, 0.25, 0]),
        ({"schedule": "linear", "warmup": 0.5}, 4, [0, 0.5, 1, 0.5, 0]),
        ({"schedule": "constant", "warmup": 0.25}, 4, [0, 1, 1, 1, 1]),
        ({"schedule": "cosine"}, 4, [1, 0.5 + math.sqrt(0.125), 0.5, 0.5 - math.sqrt(0.125), 0]),
        (
            {"schedule": "piecewise", "milestones": [0, 2], "rates": [0.1, 0.05]},
            4,
            [1, 1, 0.5, 0.5, 0.5],
        ),
        ({"schedule": "slanted_triangular"}, 20, [1 / 32, 1 / 64 + 0.5, 1]),
        ({"schedule_steps": 8}, 4, [1, 7 / 8, 6 / 8, 5 / 8, 4 / 8]),
        ({"schedule_steps": 2}, 4, [1, 1 / 2, 0, 0, 0]),
        (
            {"schedule": "constant", "warmup": 0.5, "schedule_steps": 8},
            4,
            [0, 1 / 4, 2 / 4, 3 / 4, 1],
        ),
        ({"schedule": "slanted_triangular", "schedule_steps": 40}, 2, [1 / 32, 35 / 128, 33 / 64]),
    ],
)
def test_schedules(options, steps, expected):
    factor = make_schedule(facts(**options), steps)
    assert [factor(step) for step in range(len(expected))] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"milestones": [0], "rates": [1e-5]},
            "milestones: schedule 'linear' does not use it; leave it out or use piecewise",
        ),
        (
            {"schedule": "slanted_triangular", "warmup": 0.1},
            "warmup: schedule 'slanted_triangular' does not",
        ),
        (
            {"schedule": "piecewise", "milestones": [0], "rates": [1e-5], "warmup": 0.1},
            "warmup: schedule 'piecewise'",
        ),
        (
            {"schedule": "piecewise", "milestones": [0], "rates": [1e-5], "schedule_steps": 9},
            "schedule_steps: schedule 'p",
        ),
        (
            {"schedule": "constant", "schedule_steps": 9},
            "schedule_steps: schedule 'constant' does not",
        ),
        ({"schedule": "piecewise", "milestones": [5], "rates": [0.1]}, "the first at step 0"),
        ({"schedule": "piecewise"}, "the first at step 0"),
        (
            {"schedule": "piecewise", "milestones": [0, 9, 5], "rates": [0.3, 0.2, 0.1]},
            "which must rise",
        ),
    ],
)
def test_a_value_that_would_do_nothing_is_one_line(options, says):
    with pytest.raises(CardError, match=says):
        make_schedule(facts(**options), 100)


@pytest.mark.parametrize("name", ["rmsprop", "sgd"])
def test_betas_are_of_adam_alone(name):
    with pytest.raises(CardError, match=f"optimiser '{name}' has none"):
        make_optimiser(torch.nn.Linear(2, 2), facts(optimiser=name, betas=(0.9, 0.9)))


def test_an_epsilon_that_would_do_nothing_is_one_line():
    with pytest.raises(CardError, match=r"\[training\] epsilon 0.001: optimiser 'sgd' has none"):
        make_optimiser(torch.nn.Linear(2, 2), facts(optimiser="sgd", epsilon=1e-3))


@pytest.mark.parametrize("name", ["adamw", "adamw_uncorrected", "rmsprop", "sgd"])
def test_every_optimiser_of_a_recipe_goes_downhill(name):
    module = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.ones_(module.weight)
    optimiser = make_optimiser(module, facts(optimiser=name))
    for _ in range(20):
        optimiser.zero_grad()
        torch.autograd.backward(module.weight.square().sum())
        optimiser.step()
    assert abs(float(module.weight.detach())) < 0.7


def test_what_a_method_adds_learns_at_its_own_rate():
    learner = torch.nn.ModuleDict(
        {"student": torch.nn.Linear(2, 2), "classifier": torch.nn.Linear(2, 3)}
    )
    optimiser = make_optimiser(
        learner, facts(learning_rate=1e-3, head_rate=50.0, weight_decay=0.01)
    )
    rates = {
        id(p): (g["lr"], g["weight_decay"]) for g in optimiser.param_groups for p in g["params"]
    }
    found = {name: rates[id(p)] for name, p in learner.named_parameters()}
    assert found == {
        "student.weight": (1e-3, 0.01),
        "student.bias": (1e-3, 0.0),
        "classifier.weight": (5e-2, 0.01),
        "classifier.bias": (5e-2, 0.0),
    }
