"""Optimisers and schedules, as the papers' code had them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from stsbench.core.cards import TrainingSection
from stsbench.core.errors import CardError, look_up

Schedule = Callable[[int], float]
"""Step to the factor by which the learning rate is multiplied."""


class UncorrectedAdamW(torch.optim.Optimizer):
    """Adam with decoupled decay and without the correction for its zero start.

    BERT's own optimiser, and ``AdamW(correct_bias=False)`` of transformers before version 4.30: first steps are about
    three times longer than with the correction. Neither torch's optimisers nor today's transformers can leave it out.
    """

    def __init__(
        self,
        params: Iterable[Any],
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float = 0.0,
    ) -> None:
        """As :class:`torch.optim.AdamW`."""
        super().__init__(
            params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        )

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take one step."""
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if not params:
                continue
            grads = [p.grad for p in params]
            for param in params:
                if not self.state[param]:
                    self.state[param] = {
                        "exp_avg": torch.zeros_like(param),
                        "exp_avg_sq": torch.zeros_like(param),
                    }
            first = [self.state[p]["exp_avg"] for p in params]
            second = [self.state[p]["exp_avg_sq"] for p in params]
            beta1, beta2 = group["betas"]
            torch._foreach_lerp_(first, grads, 1 - beta1)
            torch._foreach_mul_(second, beta2)
            torch._foreach_addcmul_(second, grads, grads, 1 - beta2)
            scale = torch._foreach_sqrt(second)
            torch._foreach_add_(scale, group["eps"])
            torch._foreach_addcdiv_(params, first, scale, -group["lr"])
            if group["weight_decay"]:
                torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])


def make_optimiser(module: torch.nn.Module, facts: TrainingSection) -> torch.optim.Optimizer:
    """Make a recipe's optimiser over all parameters that are trained.

    Biases and normalisations are not decayed, as in all the papers' code. What the method adds to
    the student (a classifier, a head) learns ``head_rate`` times as fast.
    """
    norms = {
        id(p)
        for m in module.modules()
        if "norm" in type(m).__name__.lower()
        for p in m.parameters(recurse=False)
    }
    groups: dict[tuple[float, float], list[torch.nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            decay = 0.0 if name.endswith("bias") or id(parameter) in norms else facts.weight_decay
            rate = facts.learning_rate * (1.0 if name.startswith("student.") else facts.head_rate)
            groups.setdefault((rate, decay), []).append(parameter)
    if not groups:
        raise CardError(f"method {type(module).__name__} leaves nothing to train")
    each = [
        {"params": params, "lr": rate, "weight_decay": decay}
        for (rate, decay), params in groups.items()
    ]
    made = look_up("optimiser", facts.optimiser, OPTIMISERS)(each, facts)
    if (
        "betas" not in made.defaults
        and facts.betas != TrainingSection(batch_size=1, learning_rate=1.0).betas
    ):
        raise CardError(f"[training] betas {facts.betas}: optimiser '{facts.optimiser}' has none")
    return made


OPTIMISERS: Mapping[
    str, Callable[[list[dict[str, Any]], TrainingSection], torch.optim.Optimizer]
] = {
    "adamw": lambda groups, facts: torch.optim.AdamW(
        groups, betas=facts.betas, eps=facts.epsilon, fused=True
    ),
    "adamw_uncorrected": lambda groups, facts: UncorrectedAdamW(
        groups, lr=facts.learning_rate, betas=facts.betas, eps=facts.epsilon
    ),
    "rmsprop": lambda groups, facts: torch.optim.RMSprop(groups, alpha=0.9, eps=facts.epsilon),
    "sgd": lambda groups, facts: torch.optim.SGD(groups),
}


def make_schedule(facts: TrainingSection, steps: int) -> Schedule:
    """Make a recipe's schedule over this many steps, or as many as it says itself."""
    kind = look_up("schedule", facts.schedule, SCHEDULES)
    for key in ("milestones", "rates", "warmup", "schedule_steps"):
        flat = key == "schedule_steps" and kind.is_flat and not facts.warmup
        if getattr(facts, key) and (flat or key not in kind.takes):
            others = " or ".join(
                name
                for name, one in SCHEDULES.items()
                if key in one.takes and name != facts.schedule
            )
            what = f"[training] {key}: schedule '{facts.schedule}' does not use it"
            raise CardError(f"{what}; leave it out or use {others}")
    return kind.make(facts, facts.schedule_steps or steps)


def _after_warmup(after: Callable[[float], float]) -> Callable[[TrainingSection, int], Schedule]:
    """A linear warm-up, then a function of the share of the other steps that are done."""

    def make(facts: TrainingSection, steps: int) -> Schedule:
        warm = math.ceil(facts.warmup * steps)
        return lambda step: (
            step / warm if step < warm else after(min(1.0, (step - warm) / max(1, steps - warm)))
        )

    return make


def _slanted_triangular(facts: TrainingSection, steps: int) -> Schedule:
    """Howard and Ruder 2018, section 3.2: up over the first tenth, then down to a 32nd."""
    top = max(1, int(steps * 0.1))

    def factor(step: int) -> float:
        rise = step / top if step < top else 1 - (step - top) / max(1, steps - top)
        return (1 + max(0.0, rise) * (32 - 1)) / 32

    return factor


def _piecewise(facts: TrainingSection, steps: int) -> Schedule:
    if not facts.rates or len(facts.rates) != len(facts.milestones) or facts.milestones[0] != 0:
        raise CardError(
            "schedule 'piecewise' needs as many rates as milestones, the first at step 0"
        )
    pairs = list(zip(facts.milestones, facts.rates, strict=True))
    return lambda step: [rate for start, rate in pairs if start <= step][-1] / facts.learning_rate


class ScheduleKind(NamedTuple):
    """A schedule of recipes: what makes it for so many steps, and which settings it uses."""

    make: Callable[[TrainingSection, int], Schedule]
    takes: Sequence[str] = ("warmup", "schedule_steps")
    is_flat: bool = False
    """Whether nothing but a warm-up changes the rate."""


SCHEDULES: Mapping[str, ScheduleKind] = {
    "linear": ScheduleKind(_after_warmup(lambda done: 1 - done)),
    "constant": ScheduleKind(_after_warmup(lambda done: 1.0), is_flat=True),
    "cosine": ScheduleKind(_after_warmup(lambda done: 0.5 * (1 + math.cos(math.pi * done)))),
    "slanted_triangular": ScheduleKind(_slanted_triangular, ["schedule_steps"]),
    "piecewise": ScheduleKind(_piecewise, ["milestones", "rates"]),
}
