"""Optimisers and schedules, as the papers' code had them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, get_args, get_type_hints

import torch

from stsbench.cards.recipe import TrainingFacts
from stsbench.errors import CardError, UnknownName, choose

Schedule = Callable[[int], float]
"""Step to the factor by which the learning rate is multiplied."""


UNUSED = TrainingFacts(batch_size=1, learning_rate=1.0)
"""What a recipe has that says nothing of its optimiser."""


class UncorrectedAdamW(torch.optim.Optimizer):
    """Adam with decoupled decay and without the correction for its zero start.

    BERT's own optimiser, and ``AdamW(correct_bias=False)`` of the transformers library before
    version 4.30: first steps are about three times longer than with the correction. Neither torch's
    optimisers nor today's transformers can leave it out.
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
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take one step."""
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if not params:
                continue
            grads = [p.grad for p in params]
            for param in params:
                if not self.state[param]:
                    self.state[param] = {"exp_avg": torch.zeros_like(param), "exp_avg_sq": torch.zeros_like(param)}
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
        return loss


def make_optimiser(module: torch.nn.Module, facts: TrainingFacts) -> torch.optim.Optimizer:
    """Make a recipe's optimiser over all parameters that are trained.

    Biases and normalisations are not decayed, as in all the papers' code. What the method adds to
    the student (a classifier, a head) learns ``head_rate`` times as fast.
    """
    norms = {id(p) for m in module.modules() if "norm" in type(m).__name__.lower() for p in m.parameters(recurse=False)}
    groups: dict[tuple[bool, bool], list[torch.nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            decayed = not name.endswith("bias") and id(parameter) not in norms
            groups.setdefault((name.startswith("student."), decayed), []).append(parameter)
    if not groups:
        raise CardError(f"method {type(module).__name__} leaves nothing to train")
    return _optimiser(
        [
            {
                "params": params,
                "weight_decay": facts.weight_decay if decayed else 0.0,
                "lr": facts.learning_rate * (1.0 if of_student else facts.head_rate),
            }
            for (of_student, decayed), params in groups.items()
        ],
        facts,
    )


def _optimiser(groups: list[dict[str, Any]], facts: TrainingFacts) -> torch.optim.Optimizer:
    if facts.optimiser in ("rmsprop", "sgd") and facts.betas != UNUSED.betas:
        raise CardError(f"[training] betas {facts.betas}: optimiser '{facts.optimiser}' has none")
    match facts.optimiser:
        case "adamw":
            return torch.optim.AdamW(groups, lr=facts.learning_rate, betas=facts.betas, eps=facts.epsilon, fused=True)
        case "adamw_uncorrected":
            return UncorrectedAdamW(groups, lr=facts.learning_rate, betas=facts.betas, eps=facts.epsilon)
        case "rmsprop":
            return torch.optim.RMSprop(groups, lr=facts.learning_rate, alpha=0.9, eps=facts.epsilon)
        case "sgd":
            return torch.optim.SGD(groups, lr=facts.learning_rate)
        case unknown:
            raise UnknownName("optimiser", unknown, get_args(get_type_hints(TrainingFacts)["optimiser"]))


def make_schedule(facts: TrainingFacts, steps: int) -> Schedule:
    """Make a recipe's schedule over this many steps."""
    if facts.schedule != "piecewise" and (facts.milestones or facts.rates):
        raise CardError(f"[training] milestones and rates are of schedule 'piecewise', not of '{facts.schedule}'")
    if facts.schedule in ("piecewise", "slanted_triangular") and facts.warmup:
        raise CardError(f"[training] warmup {facts.warmup:g}: schedule '{facts.schedule}' has none of its own")
    if facts.schedule == "slanted_triangular":
        return _slanted_triangular(steps)
    if facts.schedule == "piecewise":
        return _piecewise(facts)
    warm, after = math.ceil(facts.warmup * steps), choose("schedule", facts.schedule, AFTER_WARMUP)

    def factor(step: int) -> float:
        if step < warm:
            return step / warm
        return after(min(1.0, (step - warm) / max(1, steps - warm)))

    return factor


AFTER_WARMUP: dict[str, Callable[[float], float]] = {
    "linear": lambda done: 1 - done,
    "constant": lambda done: 1.0,
    "cosine": lambda done: 0.5 * (1 + math.cos(math.pi * done)),
}
"""The share of the steps after the warm-up that are done, to the factor."""


def _slanted_triangular(steps: int, *, cut: float = 0.1, ratio: int = 32) -> Schedule:
    """Howard and Ruder 2018, section 3.2: up over the first tenth, then down to a 32nd."""
    top = max(1, int(steps * cut))

    def factor(step: int) -> float:
        rise = step / top if step < top else 1 - (step - top) / max(1, steps - top)
        return (1 + max(0.0, rise) * (ratio - 1)) / ratio

    return factor


def _piecewise(facts: TrainingFacts) -> Schedule:
    if not facts.rates or len(facts.rates) != len(facts.milestones) or facts.milestones[0] != 0:
        raise CardError("schedule 'piecewise' needs as many rates as milestones, the first at step 0")
    pairs = list(zip(facts.milestones, facts.rates, strict=True))

    def factor(step: int) -> float:
        return [rate for start, rate in pairs if start <= step][-1] / facts.learning_rate

    return factor


def make_scheduler(optimiser: torch.optim.Optimizer, facts: TrainingFacts, steps: int) -> Any:  # noqa: ANN401
    """Tie a recipe's schedule to its optimiser."""
    return torch.optim.lr_scheduler.LambdaLR(optimiser, make_schedule(facts, steps))
