"""Sweeps as records: which values of recipes are tried, and what decides among them."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, field

from stsbench.cards.recipe import Count, Positive
from stsbench.cards.strict import Record

SweepSeed = Annotated[int, Meta(ge=0, lt=1 << 32)]


class Range(Record, frozen=True, kw_only=True, rename={"low": "from", "high": "to"}):
    """Numbers between two, both among them; whole numbers where both are."""

    low: float | int
    high: float | int
    step: Positive | None = None
    """Only so many steps from the first."""
    log: bool = False
    """Drawn evenly over the logarithm."""

    def __post_init__(self) -> None:
        """Refuse what contradicts itself; msgspec makes it an error of the card."""
        if not self.low < self.high:
            raise ValueError(f"from {self.low:g} to {self.high:g}: the first must be below the second")
        if self.log and self.low <= 0:
            raise ValueError(f"from {self.low:g}: what is drawn over the logarithm is above 0")
        if self.log and self.step is not None:
            raise ValueError("step and log: give one of them")

    def points(self) -> list[float | int]:
        """The numbers of a range in steps."""
        step = self.step or 1
        count = int((self.high - self.low) / step + 1e-9) + 1
        return [self.number(self.low + place * step) for place in range(count)]

    def number(self, value: float) -> float | int:
        """A number of the range as names print it: whole, or of four digits."""
        if isinstance(self.low, int) and isinstance(self.high, int) and (self.step is None or self.step % 1 == 0):
            return round(value)
        # What is drawn is cut at four digits, and so may lie a little outside.
        return min(max(float(f"{value:.4g}"), self.low), self.high)


class DecideFacts(Record, frozen=True, kw_only=True):
    """By what score the settings are compared."""

    task: str = "stsb"
    split: str = "validation"
    protocol: str = ""
    """Default the task's first."""
    metric: str = ""
    """One of the scores of a result, as ``pearson.all``; default the protocol's own."""


class BudgetFacts(Record, frozen=True, kw_only=True):
    """How much may be tried."""

    settings: Count | None = None
    """So many, where they are drawn; a grid is tried whole."""
    hours: Positive | None = None
    """Nothing is begun after; the same command goes on."""


class HalvingFacts(Record, frozen=True, kw_only=True):
    """Asynchronous successive halving (arXiv 1810.05934) on the validations of the training: most are stopped early."""

    first_step: Count
    """No training is stopped before."""
    factor: Annotated[int, Meta(ge=2, le=100)] = 4
    """One of so many goes on to so many times the steps."""


class SweepCard(Record, frozen=True, kw_only=True):
    """Recipes, the values that are tried of each of their keys, and what decides."""

    name: str
    recipes: Annotated[list[str], Meta(min_length=1)]
    values: dict[str, Annotated[list[Any], Meta(min_length=1)] | Range]
    """By key, as ``--set`` names it: those to choose from, or a range."""
    set: dict[str, Any] = {}
    """What is replaced in all."""
    base: str = ""
    text: str = ""
    seeds: Annotated[list[SweepSeed], Meta(min_length=1)] = field(default_factory=lambda: [0])
    """Those that every setting is trained for."""
    search: str = "grid"
    """One of the searches of ``studies/searches.py``."""
    search_seed: SweepSeed = 0
    decide: DecideFacts = DecideFacts()
    budget: BudgetFacts = BudgetFacts()
    halving: HalvingFacts | None = None

    def __post_init__(self) -> None:
        """Refuse what contradicts itself; msgspec makes it an error of the card."""
        if both := sorted(self.values.keys() & self.set.keys()):
            raise ValueError(f"'{both[0]}' is in [values] and in [set]; leave out one of them")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds {self.seeds}: one stands there twice")
