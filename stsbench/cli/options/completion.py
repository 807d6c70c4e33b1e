"""What a shell offers while a word is typed: names of cards, tables and lists."""

from collections.abc import Callable, Iterable, Iterator


def _names(kinds: Iterable[str], *more: Callable[[], Iterable[str]]) -> Callable[[str], Iterator[str]]:
    """A completion of the last name of a comma list; only the names of files are read."""

    def complete(incomplete: str) -> Iterator[str]:
        from stsbench.cards.catalogue import Catalogue

        catalogue = Catalogue()
        known = [name for kind in kinds for name in catalogue.paths(kind)]
        known += [name for names in more for name in names()]
        before, comma, last = incomplete.rpartition(",")
        yield from (f"{before}{comma}{name}" for name in dict.fromkeys(known) if name.startswith(last))

    return complete


def _suites() -> Iterable[str]:
    from stsbench.cards.catalogue import Catalogue

    return Catalogue().suites()


def _tables() -> Iterable[str]:
    from stsbench.leaderboard.published.specs import table_names

    return table_names()


def _analyses() -> Iterable[str]:
    from stsbench.analysis.seams import ANALYSES

    return ANALYSES.names()


encoder_names = _names(["baselines", "trainers"])
recipe_names = _names(["trainers"])
task_names = _names(["tasks"], _suites)
ablation_names = _names(["trainers/tables"])
suites = _names([], _suites)
tables = _names([], _tables)
all_names = _names(["tasks", "baselines", "trainers"], _suites)
analyses = _names([], _analyses)
