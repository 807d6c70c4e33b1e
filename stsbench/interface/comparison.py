"""Encoders compared from Python: by name, by folder, or as Results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stsbench.cards.catalogue import Catalogue
from stsbench.compare.comparison import Comparison, Difference, Effort, compare
from stsbench.compare.sentences import columns, sentences
from stsbench.data.task import expand_names
from stsbench.errors import DataError, StsbenchError
from stsbench.interface.page import html_table
from stsbench.registry.arguments import NAME, NAMES, SEED, SWITCH, checked
from stsbench.results.record import Result

if TYPE_CHECKING:
    import pandas as pd

    from stsbench.plots.chart import Chart


@dataclass(frozen=True, kw_only=True, repr=False)
class EncoderComparison(Comparison):
    """What a comparison found: ``differences`` by task and on means, and ``notes`` on what was left out.

    Its text says which differences are real; docs/statistics.md says how they are tested.
    """

    @property
    def sentences(self) -> list[str]:
        """For each pair of encoders, which differences are real."""
        return sentences(self)

    def __repr__(self) -> str:
        """The sentences."""
        return "\n".join([*self.sentences, *self.notes])

    def _repr_html_(self) -> str:
        parts = []
        for (first, second, differences), sentence in zip(self.pairs(), self.sentences, strict=True):
            heads, rows = columns(differences)
            parts.append(html_table(heads, rows, [f"A = {first}, B = {second}; in points", sentence]))
        return "\n".join([*parts, *(html_table([], [], [note]) for note in self.notes)])

    def to_frame(self) -> pd.DataFrame:
        """The differences as a DataFrame of pandas, a row a pair and task; scores are never times 100."""
        import pandas as pd

        return pd.DataFrame.from_records([_record(one) for one in self.differences])

    def plot(self) -> Chart:
        """Draw each difference as a dot with its 95% interval, by task; a ring is one that is not real.

        Raises:
            DataError: no paired test is known for any. StsbenchError: matplotlib is not installed (extra ``plots``).
        """
        from stsbench.plots.dots import Dot, draw_dots

        dots = [
            Dot(
                group=one.task,
                series=f"{one.second} − {one.first}",
                value=100 * one.difference,
                interval=(100 * one.interval[0], 100 * one.interval[1]),
                filled=one.real,
            )
            for one in self.differences
            if one.interval is not None
        ]
        if not dots:
            raise DataError("there is no interval to draw: no paired test is known for any of these results")
        title = dots[0].series if len(self.encoders) == 2 else ""
        return draw_dots(dots, axis="difference × 100, with its 95% interval; ○ not real", title=title, zero=True)


def _record(one: Difference) -> dict[str, object]:
    low, high = one.interval or (None, None)
    return {
        "first": one.first,
        "second": one.second,
        "task": one.task,
        "split": one.split,
        "protocol": one.protocol["name"],
        "n": one.n,
        "first_score": one.scores[0],
        "second_score": one.scores[1],
        "difference": one.difference,
        "low": low,
        "high": high,
        "p": one.p,
        "p_williams": one.p_williams,
        "p_corrected": one.p_corrected,
        "real": one.real,
    }


@checked("compare", tasks=NAMES, protocol=NAME, seed=SEED, independent=SWITCH)
def compared(
    encoders: Mapping[str, Sequence[Result]],
    catalogue: Catalogue,
    *,
    tasks: str | Sequence[str] | None = None,
    protocol: str | None = None,
    seed: int = 0,
    independent: bool = False,
) -> EncoderComparison:
    """Compare every two encoders, by what they are called; see :func:`stsbench.compare.comparison.compare`.

    Raises:
        StsbenchError: there are fewer than two.
    """
    if len(encoders) < 2:
        there = f"; there is '{next(iter(encoders))}' alone" if encoders else ""
        raise StsbenchError(f"compare needs at least two encoders{there}")
    effort = Effort(seed=int(seed), dependence="none" if independent else "sentences")
    wanted = expand_names(tasks, catalogue) if tasks is not None else None
    found = compare(encoders, tasks=wanted, protocol=protocol, effort=effort)
    return EncoderComparison(**vars(found))
