"""Results put together: by encoder and state, by printed name, and by whether scores compare.

A state is weights, settings, and the versions of the packages that compute.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

from stsbench.core.cards import EncoderCard, task_digest
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, ProtocolError
from stsbench.core.grouping import group_by
from stsbench.core.provenance import read_versions, strip_versions
from stsbench.core.wording import format_some
from stsbench.results.folder import ResultFolder
from stsbench.results.record import OVERLAPS, Result
from stsbench.results.signature import describe_mismatch

TAG_LENGTH = 6
"""The number of characters of a fingerprint in a state tag, or more if states begin alike."""
MIN_TAG_LENGTH = 4
"""A tag of fewer characters is taken for a part of the name."""
UNMATCHED_CARD_SUFFIX = " (not the card's)"
"""Behind a card's or recipe's name: results that carry another hash than the card's, or none."""


class EncoderResults(NamedTuple):
    """All results of one encoder in one state; training seeds belong to the same state."""

    encoder: str
    label: str
    """The encoder's name, with ``UNMATCHED_CARD_SUFFIX`` if the results are not the card's."""
    state_tag: str
    """Distinguishes states with the same label, for example ``3f2a1b`` or ``torch 2.1``.

    Empty if there is only one.
    """
    card: EncoderCard | None
    """The encoder's card; None if no card or recipe belongs to the results."""
    results: Sequence[Result]

    @property
    def name(self) -> str:
        """The encoder's name in tables, for example ``final [3f2a1b]``."""
        return f"{self.label} [{self.state_tag}]" if self.state_tag else self.label

    @property
    def overlap(self) -> str:
        """The overlap of training text with the test sentences: the worst of all results."""
        return max((result.overlap for result in self.results), key=OVERLAPS.index)


class _State(NamedTuple):
    """The results of one state, and all that distinguishes states."""

    fingerprint: str
    """The fingerprint without the versions of packages."""
    card_digest: str | None
    versions: Mapping[str, str]
    """The versions of the packages that compute, by package."""
    results: list[Result]


def group_by_encoder(
    results: Iterable[Result], catalogue: Catalogue | None = None
) -> list[EncoderResults]:
    """Group results by the encoder that made them, and by the state of that encoder.

    An encoder has several states if its weights, its settings, its card (the TOML file that
    describes it) or the versions of the packages that compute it have changed under its name. The
    current results of a folder are of several states if only some tasks were run again. Results
    that differ by the training seed alone are one group.

    Args:
        results: The results of any encoders.
        catalogue: The cards; None for the user's catalogue.

    Returns:
        One group per encoder and state, in the order in which they first occur. A group's label is
        the encoder's name, with a suffix if the results are not those of the card of that name;
        its state tag distinguishes it from the groups with the same label.
    """
    catalogue = catalogue or Catalogue()
    # By an encoder's name and the hash of the card that its results carry: the card, or None if no
    # card has this name and this hash.
    cards: dict[tuple[str, str | None], EncoderCard | None] = {}
    results_by_label: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        name_and_digest = (result.encoder, result.encoder_card)
        if name_and_digest not in cards:
            cards[name_and_digest] = catalogue.find_encoder(*name_and_digest)
        label = result.encoder
        if cards[name_and_digest] is None and catalogue.is_taken(result.encoder):
            # A card has this name, but another hash: the result is of another encoder, or of
            # another version of the card. The suffix reads " (not the card's)".
            label += UNMATCHED_CARD_SUFFIX
        results_by_label.setdefault((result.encoder, label), []).append(result)
    groups: list[EncoderResults] = []
    for (encoder, label), results_of_label in results_by_label.items():
        states = _split_into_states(results_of_label)
        for state in states:
            card = cards[encoder, state.card_digest]
            state_tag = _state_tag(state, states)
            groups.append(EncoderResults(encoder, label, state_tag, card, state.results))
    return groups


def _split_into_states(results: Sequence[Result]) -> list[_State]:
    """Split the results of one encoder by its card, then weights, then versions of packages.

    Weights are told by the fingerprint, a hash of weights and settings (``none`` without one);
    versions are pairs of a package and its version. Results with the same card stay together if
    their weights, or versions, differ only from training seed to training seed.

    Args:
        results: The results of encoders that share a name in tables.

    Returns:
        One state per card, weights and versions, with its results.
    """
    results_by_card = group_by(results, lambda result: result.encoder_card)
    states: list[_State] = []
    for card_digest, same_card in results_by_card.items():
        for same_weights in _split_unless_only_seeds_differ(same_card, _weights_fingerprint):
            fingerprint = _weights_fingerprint(same_weights[0])
            for same_state in _split_unless_only_seeds_differ(same_weights, _package_versions):
                versions = dict(_package_versions(same_state[0]))
                states.append(_State(fingerprint, card_digest, versions, results=same_state))
    return states


def _weights_fingerprint(result: Result) -> str:
    """Return the fingerprint without texts and versions of packages."""
    return strip_versions(result.state or "none")


def _package_versions(result: Result) -> tuple[tuple[str, str], ...]:
    """Return the packages that compute an encoder, with their versions."""
    return tuple(read_versions(result.state or "").items())


def _split_unless_only_seeds_differ(
    results: Sequence[Result], attribute: Callable[[Result], Hashable]
) -> list[list[Result]]:
    """Split results by a value, unless it differs only because the training seeds differ.

    If all results of the same training seed have the same value, an encoder was trained once per
    seed: then the results are one encoder's, and stay together.

    Args:
        results: The results of one name and card.
        attribute: Returns the value by which to split, such as a fingerprint.

    Returns:
        A list of results per value, or one list of all results.
    """
    results_by_value = group_by(results, attribute)
    results_by_seed = group_by(results, lambda result: result.train_seed)
    n_values_by_seed = [
        len(set(map(attribute, same_seed))) for same_seed in results_by_seed.values()
    ]
    # A training seed of None: nothing was trained, so results with other values are of other
    # encoders.
    only_seeds_differ = None not in results_by_seed and set(n_values_by_seed) == {1}
    return [list(results)] if only_seeds_differ else list(results_by_value.values())


def _state_tag(state: _State, states: Sequence[_State]) -> str:
    """Return a text that distinguishes a state of an encoder from its other states.

    It lists, joined by commas, only what is needed: the first characters of the fingerprint (the
    hash of weights and settings), those of the card's hash, and packages with their versions. For
    example ``3f2a1b, card 77d0e1, torch 2.1``.

    Args:
        state: The state. ``fingerprint`` is without package versions, ``none`` for an encoder
            without one; ``card_digest`` is None without a card; ``versions`` are by package.
        states: All states whose encoder has the same name in tables, among them ``state`` itself.
            If it is the only one, the tag is empty.
    """
    parts: list[str] = []
    # Empty if all states have the same fingerprint.
    prefix = _unique_prefix(state.fingerprint, {each.fingerprint for each in states})
    if prefix:
        parts.append(prefix)
    # Each further part distinguishes the state only from those with the same earlier parts.
    same_weights = [each for each in states if each.fingerprint == state.fingerprint]
    card_digests = {each.card_digest or "none" for each in same_weights}
    prefix = _unique_prefix(state.card_digest or "none", card_digests)
    if prefix:
        parts.append(f"card {prefix}")
    same_card = [each for each in same_weights if each.card_digest == state.card_digest]
    for package in _distinguishing_packages(same_card):
        parts.append(f"{package} {state.versions.get(package, 'unknown')}")
    return ", ".join(parts)


def _unique_prefix(value: str, values: Collection[str]) -> str:
    """Return the first characters of a hash that distinguish it from others.

    They are at least ``TAG_LENGTH`` (6), and the fewest that make the prefixes of all values
    differ; the whole value if no shorter length does.

    Args:
        value: A fingerprint or the hash of a card.
        values: All such values, each once, among them this one.

    Returns:
        The prefix; empty if the value is the only one.
    """
    if len(values) == 1:
        return ""
    for length in range(TAG_LENGTH, max(map(len, values))):
        if len({other_value[:length] for other_value in values}) == len(values):
            return value[:length]
    return value


def _distinguishing_packages(states: Sequence[_State]) -> list[str]:
    """Return the names of the packages whose versions distinguish states of an encoder.

    * For a single state, no package is needed: the list is empty.
    * If a package has another version in each state, it alone is enough. If there are several such
      packages, the last by name is returned (torch rather than numpy).
    * Else all packages are returned that do not have the same version in all states.

    Args:
        states: The states; ``versions`` of each holds a version by package name.
    """
    packages = sorted({package for state in states for package in state.versions})
    n_versions = {
        package: len({state.versions.get(package) for state in states}) for package in packages
    }
    if len(states) > 1:
        sufficient = [package for package in packages if n_versions[package] == len(states)]
        if sufficient:
            return sufficient[-1:]
    return [package for package in packages if n_versions[package] > 1]


class EncoderDirectory:
    """The encoders of a results folder by their names in tables, including older states."""

    def __init__(self, folder: ResultFolder, catalogue: Catalogue | None = None) -> None:
        """Group the results of a folder by encoder, and by the state of the encoder.

        An encoder's state is its weights, settings, card and package versions.

        Args:
            folder: The results of a folder: ``results`` are the current ones, ``older`` those of
                states that the encoders had before.
            catalogue: The cards; None for the user's catalogue.
        """
        self.result_folder = folder
        self.current = group_by_encoder(folder.results, catalogue)
        """The current results, one group per encoder and state."""
        self.groups = self.current
        """The current and older results, one group per encoder and state."""
        if folder.older:
            self.groups = group_by_encoder(folder.all_results, catalogue)

    @property
    def names(self) -> list[str]:
        """The names of the encoders in tables of the current results."""
        return [group.name for group in self.current]

    def resolve(self, spec: str) -> list[Result]:
        """Return the results that a name stands for; empty if no encoder has the name.

        A name without a tag, ``final``, stands for the current results of an encoder. A name with a
        state tag, ``final [3f2a1b]`` or ``final[3f2a1b]``, stands for the current and older results
        of each group in which the fingerprint of one result (the hash of the encoder's weights and
        settings) begins like the tag.

        Args:
            spec: The name of an encoder, with or without a state tag.
        """
        # The ways to read the name, in order; the first that matches any group is taken. A group's
        # label is its encoder's name, with a suffix if its results are not those of the card of
        # that name. A group's name is its label with its state tag.
        matches = [
            [group for group in self.current if group.label == spec],
            [group for group in self.current if group.encoder == spec],
            [group for group in self.groups if group.name == spec],
            [group for group in self.groups if _has_state_called(group, spec)],
        ]
        first_match = next(filter(None, matches), [])
        return [result for group in first_match for result in group.results]

    def select(self, ids: Collection[int]) -> list[Result]:
        """Return the current and older results with these Python ``id``, in the folder's order."""
        return [result for result in self.result_folder.all_results if id(result) in ids]

    def require_one_encoder(self, spec: str, results: Sequence[Result]) -> Sequence[Result]:
        """Return the results, after checking that one encoder in one state made them all.

        An encoder that was trained with several seeds is one encoder. Its state is its weights,
        settings, card and package versions.

        Args:
            spec: What the user has typed for the encoder, for error messages.
            results: Results of this directory.

        Raises:
            DataError: There are no results, or several encoders made them, or one encoder in
                several states. The message lists the encoders or states.
        """
        # By id(), because results cannot be in a set.
        result_ids = {id(result) for result in results}
        groups = [
            group for group in self.groups if not result_ids.isdisjoint(map(id, group.results))
        ]
        encoders = sorted({group.encoder for group in groups})
        if not groups:
            raise DataError(f"'{spec}' holds no results")
        if len(encoders) > 1:
            raise DataError(
                f"'{spec}' holds results of {len(encoders)} encoders "
                f"({', '.join(encoders[:5])}); name one of them"
            )
        if len(groups) > 1:
            names = " or ".join(f"'{name}'" for name in sorted(group.name for group in groups))
            raise DataError(
                f"'{spec}' names encoders of different fingerprints or cards; say {names}"
            )
        return results

    def describe_omitted(self, shown_results: Iterable[Result]) -> str:
        """Return a note on the older results that a table leaves out; empty if there are none.

        For a result that is shown, the older ones are those of the same encoder, task, split,
        protocol and seeds, made when the encoder had other weights, settings or package versions.

        Args:
            shown_results: The results that the table shows, which are not counted. Only for current
                ones among them are older results counted.
        """
        # By id(), because results cannot be in a set.
        shown_ids = {id(result) for result in shown_results}
        cell_keys = {
            result.cell_key for result in self.result_folder.results if id(result) in shown_ids
        }
        omitted_ids = {
            id(result)
            for result in self.result_folder.older
            if result.cell_key in cell_keys and id(result) not in shown_ids
        }
        # By the name of the encoder and its state in tables, for example ``final [3f2a1b]``.
        counts = Counter(
            group.name
            for group in self.groups
            for result in group.results
            if id(result) in omitted_ids
        )
        if not counts:
            return ""
        n_omitted = sum(counts.values())
        subject = "1 result of an older state"
        if n_omitted > 1:
            subject = f"{n_omitted} results of older states"
        # The first three, and how many more there are.
        names = format_some([f"'{name}' ({count})" for name, count in counts.items()])
        return f"{subject} left out: {names}; what a run made or reused last counts"


def _has_state_called(group: EncoderResults, spec: str) -> bool:
    """Return whether a name stands for the state of at least one result of a group."""
    names = (group.encoder, group.label)
    return any(matches_name(spec, names, result.state) for result in group.results)


def matches_name(spec: str, names: Sequence[str], state: str | None) -> bool:
    """Return whether a name that a user has typed stands for an encoder in a state.

    The state of an encoder is its weights, settings and package versions. A name without a tag
    stands for the encoder in any state. A tag in brackets names one state. Commas separate the
    parts of a tag. Each part must be the beginning of the state's fingerprint (a hash), at least
    ``MIN_TAG_LENGTH`` characters, or a package with its version.

    Args:
        spec: The name that a user has typed, for example ``final [3f2a1b, torch 2.1]``.
        names: The names of the encoder.
        state: The fingerprint of its state, which ends with its package versions. None if the
            encoder has no fingerprint; its tag is ``none``.
    """
    # A name may itself end like a tag.
    if spec in names:
        return True
    name, bracket, state_tag = spec.removesuffix("]").rpartition("[")
    has_tag = bool(bracket) and spec.endswith("]")
    if not has_tag or name.removesuffix(" ") not in names:
        return False
    # The versions of packages in the fingerprint, written as in a tag: "torch 2.1".
    versions = [f"{package} {version}" for package, version in read_versions(state or "").items()]
    fingerprint_prefixes = [part for part in state_tag.split(", ") if part not in versions]
    return all(
        len(prefix) >= MIN_TAG_LENGTH and (state or "none").startswith(prefix)
        for prefix in fingerprint_prefixes
    )


class ComparableResults(NamedTuple):
    """Results whose scores may share a column, and notes on those that are omitted."""

    results: list[Result]
    omitted: list[str]
    """One note per task with omitted results."""


def select_comparable(results: Iterable[Result], catalogue: Catalogue) -> ComparableResults:
    """Select the results whose scores may share a column of a table, for each task and split.

    A task is described by a card, a TOML file that may change between versions of stsbench. If
    some results of a task were scored by the card in the catalogue and some by another version of
    it, the latter are omitted. If none was scored by the card in the catalogue, all are kept.

    Args:
        results: The results of any encoders and tasks.
        catalogue: The cards of tasks.

    Returns:
        The selected results, and one note per task with omitted results.

    Raises:
        ProtocolError: Two of the selected results differ in their data or their task card.
    """
    results = list(results)
    columns = group_by(results, lambda result: (result.task, result.split))
    notes: list[str] = []
    # By id(), because results cannot be in a set.
    omitted_ids: set[int] = set()
    for (task, _), column in columns.items():
        omitted = _results_of_other_cards(task, column, catalogue)
        if omitted:
            names = ", ".join(dict.fromkeys(result.encoder for result in omitted))
            card_digest = task_digest(catalogue.task(task))
            notes.append(
                f"{task}: {names}: task card's hash differs: {omitted[0].task_card[:12]} against "
                f"{card_digest[:12]} of the card here; run the task again"
            )
            omitted_ids |= {id(result) for result in omitted}
        _check_same_data_and_card(
            task, [result for result in column if id(result) not in omitted_ids]
        )
    selected = [result for result in results if id(result) not in omitted_ids]
    return ComparableResults(selected, notes)


def _results_of_other_cards(
    task: str, column: Sequence[Result], catalogue: Catalogue
) -> list[Result]:
    """Return the results of a task that were scored by another version of its card.

    A task's card is the TOML file that describes it. The list is empty

    * if all results were scored by the same version of the card,
    * if the catalogue has no card of this task,
    * or if no result was scored by the card in the catalogue.

    Args:
        task: The name of the task.
        column: Its results; ``task_card`` of each is the hash of the card that it was scored by.
        catalogue: The cards of tasks.
    """
    card_digests = {result.task_card for result in column}
    if len(card_digests) == 1 or task not in catalogue.paths("tasks"):
        return []
    # The hash of the catalogue's card, as results scored by it carry it.
    current_digest = task_digest(catalogue.task(task))
    if current_digest not in card_digests:
        return []
    return [result for result in column if result.task_card != current_digest]


def _check_same_data_and_card(task: str, column: Sequence[Result]) -> None:
    """Raise ProtocolError if two results of a task differ in their data or their task card.

    Args:
        task: The name of the task, for the message.
        column: The results that share a column of a table, at least one.
    """
    first = column[0]
    for result in column:
        # The first difference in split, data, number of items or card; None if there is none.
        mismatch = describe_mismatch(first, result, ignore_protocol=True)
        if mismatch is not None:
            names = f"'{first.encoder}' and '{result.encoder}'"
            raise ProtocolError(
                f"{task}: the scores of {names} cannot stand in one column: {mismatch}",
                hint="run the task again with one of them, or choose encoders",
            )


def suite_mean(
    terms: Sequence[str | Sequence[str]], score: Callable[[str], float | None]
) -> float | None:
    """Compute the mean score over the tasks of a suite (a named list of tasks).

    Args:
        terms: What the mean is over: names of tasks, and lists of names. A list counts as one
            term, by the mean over its tasks.
        score: Called with a task's name, returns its score; None if it is missing.

    Returns:
        The mean over the terms. None if the score of any task is missing, if a list is empty, or
        if there are no terms.
    """
    term_means = []
    for term in terms:
        tasks = [term] if isinstance(term, str) else term
        task_scores = [score(task) for task in tasks]
        scores = [task_score for task_score in task_scores if task_score is not None]
        if len(scores) < len(task_scores) or not scores:
            return None
        term_means.append(statistics.fmean(scores))
    return statistics.fmean(term_means) if term_means else None


def seed_means(tasks: Sequence[Sequence[Result]]) -> list[float]:
    """Compute the mean score over tasks for each seed.

    Args:
        tasks: For each task its results, one per seed.

    Returns:
        One mean per seed, in the order of the seeds as text. The list is empty if there are no
        tasks, or if not all tasks have results of the same seeds.
    """
    # For each task, its scores by (training seed, evaluation seed).
    scores_by_seed = [{result.seeds: result.score for result in results} for results in tasks]
    if not scores_by_seed:
        return []
    # A mean over tasks with different seeds would compare runs that no task has in common.
    seeds = scores_by_seed[0].keys()
    if any(scores_of_task.keys() != seeds for scores_of_task in scores_by_seed):
        return []
    return [
        statistics.fmean(scores_of_task[seed] for scores_of_task in scores_by_seed)
        for seed in sorted(seeds, key=str)
    ]
