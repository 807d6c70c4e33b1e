"""Encoders compared from Python: by name, by folder, or as Results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stsbench.cards.catalogue import Catalogue
from stsbench.compare.comparison import Comparison, Effort, compare
from stsbench.compare.sentences import sentences
from stsbench.data.task import expand_names
from stsbench.errors import StsbenchError
from stsbench.interface.page import layout_html
from stsbench.leaderboard.render.comparison import comparison_layouts, comparison_records, render_comparison
from stsbench.leaderboard.render.figures import comparison_figure
from stsbench.registry.arguments import NAME, NAMES, SEED, SWITCH, checked
from stsbench.results.record import Result

if TYPE_CHECKING:
    import pandas as pd

    from stsbench.plots.chart import Chart


@dataclass(frozen=True, kw_only=True, repr=False)
class EncoderComparison(Comparison):
    """What a comparison found: ``differences`` by task and on means, and ``notes`` on what was left out.

    Its text says which differences are significant; docs/statistics.md says how they are tested.
    """

    @property
    def sentences(self) -> list[str]:
        """For each pair of encoders, which differences are significant."""
        return sentences(self)

    def __repr__(self) -> str:
        """The sentences."""
        return "\n".join([*self.sentences, *self.notes])

    def _repr_html_(self) -> str:
        return "\n".join(map(layout_html, comparison_layouts(self)))

    def to_frame(self) -> pd.DataFrame:
        """The lines of the CSV as a DataFrame of pandas, one a difference; scores are never times 100."""
        import pandas as pd

        return pd.DataFrame.from_records(comparison_records(self))

    def to_markdown(self) -> str:
        """A table a pair of encoders, in markdown."""
        return render_comparison(self, "markdown")

    def to_latex(self) -> str:
        """A table a pair of encoders, in LaTeX."""
        return render_comparison(self, "latex")

    def plot(self) -> Chart:
        """Draw each difference as a dot with its 95% interval, by task; a ring is one that is not significant.

        Raises:
            DataError: no paired test is known for any. StsbenchError: matplotlib is not installed (extra ``plots``).
        """
        return comparison_figure(self)


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
