"""``leaderboard --add NAME:LABEL``: which results are meant, and what their row is to be called."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from stsbench.cards.catalogue import Catalogue
from stsbench.cli.names import Names, results_called
from stsbench.errors import StsbenchError, UnknownName
from stsbench.leaderboard.tables.added import Added
from stsbench.results.groups import Runs, gather_runs
from stsbench.results.record import Result


def added_rows(given: Sequence[str], results: Sequence[Result], catalogue: Catalogue, where: Path) -> list[Added]:
    """The encoders to be added, each with its label and its results.

    Args:
        given: names of encoders of the results, each alone or before a colon and a label, as a comma list is cut.
        results: all results there are.
        catalogue: cards of the project and of the user.
        where: the folder of the results.

    Raises:
        UnknownName: there are no results of one.
        StsbenchError: nothing stands behind a colon.
    """
    if not given:
        return []
    runs, names = gather_runs(results, catalogue), Names(catalogue)
    found: list[Added] = []
    at = 0
    while at < len(given):
        # A title may have a comma in it, and a label only within quotes, where no list is cut.
        joined = ((end, "".join(f"{part}, " for part in given[at : end - 1])) for end in range(len(given), at, -1))
        whole = ((end, one) for end, start in joined if (one := _added(start, given[end - 1], runs, names)))
        at, one = next(whole, (at, None))
        if one is None:
            name = given[at].rpartition(":")[0] or given[at]
            if not name:
                raise StsbenchError(f"--add '{given[at]}': no name stands before the colon; give NAME:LABEL")
            quoted = "; a label with a comma stands within quotes: NAME:'Ours, small'" if at and found[-1].label else ""
            hint = f"{where} has no results of it{quoted}"
            raise UnknownName("encoder", name, [run.name for run in runs], hint=hint)
        found.append(one)
    return found


def _added(start: str, text: str, runs: Sequence[Runs], names: Names) -> Added | None:
    """What a text adds, of which the name is as long as it can be: names may have colons, and so may labels.

    ``start`` belongs to the name.
    """
    for name, label in _cuts(text):
        if results := results_called(start + name, runs, names):
            if name != text and not label:
                raise StsbenchError(f"--add '{text}': no label stands behind the colon; leave it out or write one")
            return Added(start + name, label, results)
    return None


def _cuts(text: str) -> Iterator[tuple[str, str]]:
    """A text as a name alone, then cut at each colon, the last first, into a name and a label without its quotes."""
    yield text, ""
    for place in reversed([place for place, sign in enumerate(text) if sign == ":"]):
        name, label = text[:place].strip(), text[place + 1 :].strip()
        is_quoted = len(label) > 1 and label[0] == label[-1] and label[0] in "'\""
        yield name, label[1:-1] if is_quoted else label
