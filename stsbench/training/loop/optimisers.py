"""Optimisers and schedules as in the code of the papers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from stsbench.core.cards import TrainingSection
from stsbench.core.errors import CardError, look_up

Schedule = Callable[[int], float]
"""A function from a step to the factor by which the learning rate is multiplied."""


class UncorrectedAdamW(torch.optim.Optimizer):
    """Adam with decoupled decay and without the correction for its zero start.

    This is BERT's own optimiser, and ``AdamW(correct_bias=False)`` of transformers before version
    4.30: the first steps are about three times longer than with the correction. Neither torch's
    optimisers nor today's transformers can omit it.
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
        """Store the settings, which have the names of those of :class:`torch.optim.AdamW`.

        Args:
            params: Parameters, or groups of them with settings of their own.
            lr: The learning rate.
            betas: The factors by which the running mean of gradients, and that of squared
                gradients, decay at each step.
            eps: A number added to the root of the mean of squared gradients.
            weight_decay: The share of a weight, times the learning rate, that is subtracted at each
                step.
        """
        super().__init__(
            params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        )

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient, as the Adam of BERT's code.

        With w a parameter, g its gradient, and the running means m of g and v of g^2: m = beta1 m +
        (1 - beta1) g; v = beta2 v + (1 - beta2) g^2; w = w - lr m / (sqrt(v) + eps). Unlike Adam's
        paper, m and v are not corrected for their start at 0.

        Args:
            closure: Not used; all optimisers of torch have it.
        """
        # The functions ``torch._foreach_..._`` change a list of tensors in place.
        for group in self.param_groups:
            params = [param for param in group["params"] if param.grad is not None]
            if not params:
                continue
            grads = [param.grad for param in params]
            for param in params:
                if not self.state[param]:
                    self.state[param] = {
                        "exp_avg": torch.zeros_like(param),
                        "exp_avg_sq": torch.zeros_like(param),
                    }
            first_moments = [self.state[param]["exp_avg"] for param in params]
            second_moments = [self.state[param]["exp_avg_sq"] for param in params]
            beta1, beta2 = group["betas"]
            torch._foreach_lerp_(first_moments, grads, 1 - beta1)
            torch._foreach_mul_(second_moments, beta2)
            torch._foreach_addcmul_(second_moments, grads, grads, 1 - beta2)
            divisors = torch._foreach_sqrt(second_moments)
            torch._foreach_add_(divisors, group["eps"])
            torch._foreach_addcdiv_(params, first_moments, divisors, -group["lr"])
            # After the step, as in BERT's code; torch's AdamW decays before it.
            if group["weight_decay"]:
                torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])


def make_optimiser(module: torch.nn.Module, section: TrainingSection) -> torch.optim.Optimizer:
    """Make a recipe's optimiser over all parameters that are trained.

    Biases and the weights of normalisations have no weight decay, as in all the papers' code. The
    learning rate of modules that the method adds to the student (a classifier, a head) is
    multiplied by ``head_rate``.

    Args:
        module: The method; its attribute ``student`` is the encoder that is trained.
        section: The recipe's section ``[training]``.

    Raises:
        CardError: No parameter is trained, or the recipe sets ``betas`` or ``epsilon`` for an
            optimiser that has none.
        UnknownName: There is no such optimiser.
    """
    # Python's ids of the weights of normalisation layers.
    norm_ids = {
        id(weight)
        for submodule in module.modules()
        if "norm" in type(submodule).__name__.lower()
        for weight in submodule.parameters(recurse=False)
    }
    # The keys are pairs of learning rate and weight decay.
    parameters_by_settings: dict[tuple[float, float], list[torch.nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            continue
        is_undecayed = name.endswith("bias") or id(parameter) in norm_ids
        decay = 0.0 if is_undecayed else section.weight_decay
        is_of_student = name.startswith("student.")
        rate = section.learning_rate * (1.0 if is_of_student else section.head_rate)
        parameters_by_settings.setdefault((rate, decay), []).append(parameter)
    if not parameters_by_settings:
        raise CardError(f"method {type(module).__name__} leaves nothing to train")
    param_groups = [
        {"params": parameters, "lr": rate, "weight_decay": decay}
        for (rate, decay), parameters in parameters_by_settings.items()
    ]
    # A function from groups of parameters and the section to the optimiser.
    make = look_up("optimiser", section.optimiser, OPTIMISERS)
    optimiser = make(param_groups, section)
    # A value that is not the default was set by the recipe; an optimiser without it would ignore
    # it. The default is that of any section.
    default_section = TrainingSection(batch_size=1, learning_rate=1.0)
    for key, name in (("betas", "betas"), ("epsilon", "eps")):
        value = getattr(section, key)
        if name not in optimiser.defaults and value != getattr(default_section, key):
            raise CardError(f"[training] {key} {value}: optimiser '{section.optimiser}' has none")
    return optimiser


OPTIMISERS: Mapping[
    str, Callable[[list[dict[str, Any]], TrainingSection], torch.optim.Optimizer]
] = {
    "adamw": lambda groups, section: torch.optim.AdamW(
        groups, betas=section.betas, eps=section.epsilon, fused=True
    ),
    "adamw_uncorrected": lambda groups, section: UncorrectedAdamW(
        groups, lr=section.learning_rate, betas=section.betas, eps=section.epsilon
    ),
    "rmsprop": lambda groups, section: torch.optim.RMSprop(groups, alpha=0.9, eps=section.epsilon),
    "sgd": lambda groups, section: torch.optim.SGD(groups),
}
"""Functions that make an optimiser over groups of parameters, by name."""


def make_schedule(section: TrainingSection, steps: int) -> Schedule:
    """Make the schedule of the learning rate that a recipe's section ``[training]`` names.

    Args:
        section: The section; its ``schedule_steps``, if set, is the length of the schedule.
        steps: The number of steps of the run, the length of the schedule otherwise.

    Returns:
        A function from a step, counted from 0, to the factor of the learning rate.

    Raises:
        CardError: The recipe sets a field that its schedule does not use.
        UnknownName: There is no such schedule.
    """
    # ``kind.make`` makes the schedule, from the fields ``kind.fields`` of the section;
    # ``kind.is_flat``: only a warm-up changes its rate.
    kind = look_up("schedule", section.schedule, SCHEDULES)
    # A constant rate needs no length, unless there is a warm-up, which is a share of the length.
    needs_no_length = kind.is_flat and not section.warmup
    for key in ("milestones", "rates", "warmup", "schedule_steps"):
        is_unused = key not in kind.fields or (key == "schedule_steps" and needs_no_length)
        is_set = bool(getattr(section, key))
        if is_set and is_unused:
            alternatives = " or ".join(
                name
                for name, schedule in SCHEDULES.items()
                if key in schedule.fields and name != section.schedule
            )
            problem = f"[training] {key}: schedule '{section.schedule}' does not use it"
            raise CardError(f"{problem}; leave it out or use {alternatives}")
    return kind.make(section, section.schedule_steps or steps)


def _rise_then(
    factor_after: Callable[[float], float],
) -> Callable[[TrainingSection, int], Schedule]:
    """Return a maker of schedules that rise linearly from 0 to 1, then follow ``factor_after``.

    The rise, the warm-up, takes the share ``warmup`` of the steps, from the recipe.

    Args:
        factor_after: A function from the finished share of the steps after the warm-up, 0 to 1, to
            the factor of the learning rate.

    Returns:
        A function from the recipe's section ``[training]`` and the number of steps of the schedule
        to the schedule.
    """

    def make_schedule_with_warmup(section: TrainingSection, steps: int) -> Schedule:
        """Make a schedule: a function from a step to the factor of the learning rate.

        The factor rises linearly from 0 to 1 over the warm-up, the share ``section.warmup`` of all
        ``steps``. Then ``factor_after``, an argument of the outer function, computes it from the
        finished share of the other steps.
        """
        warmup_steps = math.ceil(section.warmup * steps)

        def factor(step: int) -> float:
            if step < warmup_steps:
                return step / warmup_steps
            finished_share = (step - warmup_steps) / max(1, steps - warmup_steps)
            return factor_after(min(1.0, finished_share))

        return factor

    return make_schedule_with_warmup


def _slanted_triangular(section: TrainingSection, steps: int) -> Schedule:
    """Make the schedule of ULMFiT (Howard and Ruder 2018, arXiv 1801.06146, section 3.2).

    The learning rate rises linearly from a 32nd over the first tenth of the steps, then falls
    linearly to a 32nd.

    Args:
        section: Not used; the functions that make a schedule all have this argument.
        steps: The number of steps of the schedule.

    Returns:
        A function from a step, counted from 0, to the factor of the learning rate.
    """
    peak_step = max(1, int(steps * 0.1))  # the paper's cut

    def factor(step: int) -> float:
        if step < peak_step:
            height = step / peak_step
        else:
            height = 1 - (step - peak_step) / max(1, steps - peak_step)
        # The paper's (1 + p * (ratio - 1)) / ratio, with a ratio of 32.
        return (1 + max(0.0, height) * (32 - 1)) / 32

    return factor


def _piecewise(section: TrainingSection, steps: int) -> Schedule:
    """Make the schedule of the recipe's learning rates ``rates``, each from a milestone on.

    Args:
        section: The recipe's section ``[training]``: ``milestones`` are the steps at which each of
            the ``rates`` begins.
        steps: Not used: milestones are steps, not shares of them.

    Returns:
        A function from a step, counted from 0, to the factor of the recipe's ``learning_rate``.

    Raises:
        CardError: There are not as many rates as milestones, or these do not rise from step 0.
    """
    milestones = section.milestones
    rises_from_0 = milestones[:1] == [0] and milestones == sorted(set(milestones))
    if not rises_from_0 or len(section.rates) != len(milestones):
        raise CardError(
            "schedule 'piecewise' needs as many rates as milestones, "
            "which must rise, the first at step 0"
        )
    starts_and_rates = list(zip(milestones, section.rates, strict=True))

    def factor(step: int) -> float:
        """Return the rate in force at a step, as a factor of the recipe's ``learning_rate``."""
        rates_so_far = [rate for start, rate in starts_and_rates if start <= step]
        return rates_so_far[-1] / section.learning_rate

    return factor


class ScheduleKind(NamedTuple):
    """A schedule of recipes: its factory for a number of steps, and the settings that it uses."""

    make: Callable[[TrainingSection, int], Schedule]
    fields: Sequence[str] = ("warmup", "schedule_steps")
    """The fields of the ``[training]`` section that it uses."""
    is_flat: bool = False
    """Whether only a warm-up changes the rate."""


SCHEDULES: Mapping[str, ScheduleKind] = {
    "linear": ScheduleKind(_rise_then(lambda done: 1 - done)),
    "constant": ScheduleKind(_rise_then(lambda done: 1.0), is_flat=True),
    "cosine": ScheduleKind(_rise_then(lambda done: 0.5 * (1 + math.cos(math.pi * done)))),
    "slanted_triangular": ScheduleKind(_slanted_triangular, ["schedule_steps"]),
    "piecewise": ScheduleKind(_piecewise, ["milestones", "rates"]),
}
