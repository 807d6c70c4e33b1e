"""Tasks with their evaluators and protocols, as a user requests them."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError, ProtocolError, StsbenchError, UnknownName
from stsbench.core.names import split_names
from stsbench.core.wording import as_one_line
from stsbench.data.splits import Split
from stsbench.data.task import Task, load_task
from stsbench.encoders.pairs import join_pairs_of_items
from stsbench.evaluators.base import Evaluator
from stsbench.evaluators.registry import EVALUATORS, make_evaluator, replace_fields
from stsbench.numbers.similarity import DEFAULT_SIMILARITY
from stsbench.results.record import digest_columns


@dataclass(frozen=True, kw_only=True, eq=False)
class PlannedTask:
    """One task, to be scored by one evaluator under one protocol."""

    task: Task
    evaluator: Evaluator
    requested_protocol: str
    """The protocol as the user wrote it, for example ``senteval(kfold=5)``."""
    protocol: Mapping[str, Any]
    """The name and all fields of the protocol, as a result file holds them."""
    split: str
    """The split whose items are scored."""
    required_splits: Sequence[str]
    """All splits that the evaluator reads, for example those of a probe's training."""
    splits: dict[str, Split] = field(default_factory=dict)
    """The required splits by name; empty before :meth:`load`."""

    @property
    def name(self) -> str:
        """The task's id."""
        return self.task.name

    @property
    def digest(self) -> str:
        """The hash of the data: of the only split, or of all splits that the score needs."""
        digests = [split.digest for split in self.splits.values()]
        return digests[0] if len(digests) == 1 else digest_columns({"splits": digests})

    def load(self) -> None:
        """Read the splits that the score needs.

        Raises:
            DataError: No source has a split, or it differs from its card.
        """
        self.splits.update({name: self.task.load(name) for name in self.required_splits})

    def notes(self) -> list[str]:
        """Return the notes on the data for a reader of the score."""
        return [note for name in self.splits for note in self.task.loaded_split(name).notes]

    @property
    def scores_pairs(self) -> bool:
        """Whether it is planned for a pair scorer."""
        return self.protocol.get("similarity", "") is None

    @cached_property
    def for_pair_scorer(self) -> PlannedTask | None:
        """The same task and data, planned for an encoder that scores pairs of sentences itself.

        Its protocol has the similarity None, because the encoder's scores are the similarities;
        ``scores_pairs`` is true of such a task. It is None if the evaluator needs embeddings, or if
        the user chose another similarity than the default, the cosine.
        """
        if self.scores_pairs:
            return self
        accepts_scores = getattr(self.evaluator, "ACCEPTS_PAIR_SCORES", False)
        if not accepts_scores or self.protocol.get("similarity") != DEFAULT_SIMILARITY:
            return None
        evaluator: Any = self.evaluator
        protocol = dataclasses.replace(evaluator.protocol, similarity=None)
        return dataclasses.replace(
            self,
            evaluator=dataclasses.replace(evaluator, protocol=protocol),
            protocol={**self.protocol, "similarity": None},
        )

    def texts(self) -> list[str]:
        """Return all sentences that the score needs; for a pair scorer, its pairs joined."""
        columns_of_splits = (
            join_pairs_of_items(split.sides) if self.scores_pairs else split.sides
            for split in self.splits.values()
        )
        return [text for columns in columns_of_splits for column in columns for text in column]


def load_tasks(
    tasks: Iterable[PlannedTask], on_failure: Callable[[str, StsbenchError], None]
) -> list[PlannedTask]:
    """Read the data of tasks, and return the tasks whose data could be read.

    Args:
        tasks: The tasks to read; the data are stored in each.
        on_failure: Called with the name of a task and the error if its data cannot be read. The
            task is then omitted, unless this function raises the error.
    """
    loaded_tasks = []
    for task in tasks:
        try:
            task.load()
        except StsbenchError as error:
            on_failure(task.name, error)
        else:
            loaded_tasks.append(task)
    return loaded_tasks


class ProtocolRequest(NamedTuple):
    """A protocol that a user requests."""

    text: str
    """The request as the user wrote it."""
    fields: Mapping[str, Any]
    """The fields of the protocol to replace; empty for the protocol as it is."""


_UNQUOTED_VALUE_PATTERN = re.compile(r"=\s*(?!(?:true|false)\s*(?:,|$))([A-Za-z][\w-]*)\s*(?=,|$)")
"""A word without quotes that is the value of a field, and neither ``true`` nor ``false``."""


def parse_protocols(protocol: str | Sequence[str] | None) -> dict[str, ProtocolRequest]:
    """Parse the protocols (ways of scoring) that a user requests.

    Args:
        protocol: A comma list, or a list, of names of protocols. Each may have fields to replace,
            for example ``senteval(kfold=5,nhid=50)``. None for no request.

    Returns:
        For the name of each protocol the request as it was written, and the fields to replace.

    Raises:
        ProtocolError: A protocol cannot be parsed, or is named twice.
    """
    requests: dict[str, ProtocolRequest] = {}
    comma_list = protocol if isinstance(protocol, str) else ",".join(protocol or [])
    # Commas inside parentheses, brackets or quotes do not separate.
    for text in split_names(comma_list):
        # A name (group 1), and perhaps fields in parentheses (group 2).
        match = re.fullmatch(r"\s*([\w.-]+)\s*(?:\((.*)\))?\s*", text)
        if not match:
            raise ProtocolError(
                "give a name, or name(field=value)", parameter="protocol", value=text.strip()
            )
        name = match[1]
        if name in requests:
            raise ProtocolError(
                "is named twice; run once for each", parameter="protocol", value=name
            )
        # The fields are read as an inline table of TOML. There a word such as rmsprop in
        # optimiser=rmsprop needs quotes, which are added here.
        toml_fields = _UNQUOTED_VALUE_PATTERN.sub(r'= "\1"', match[2] or "")
        try:
            fields = tomllib.loads(f"fields = {{{toml_fields}}}")["fields"]
        except ValueError as error:
            raise ProtocolError(
                f"cannot be read ({as_one_line(error)})", parameter="protocol", value=text.strip()
            ) from error
        requests[name] = ProtocolRequest(text, fields)
    return requests


def plan_task(
    task: Task, requested: Mapping[str, ProtocolRequest], split: str | None = None
) -> PlannedTask:
    """Return a task with its evaluator and the protocol, or way of scoring, to use.

    Args:
        task: The task to score.
        requested: The requested protocols by name, for all tasks. The one that this task's
            evaluator has is used; if it has none of them, its first protocol is.
        split: The split to score; None for the one that the task's card names. An evaluator that
            reads several splits, for example to train, refuses any other.

    Raises:
        CardError: The evaluator that the task's card names does not exist.
        ProtocolError: The evaluator has several of the protocols, a requested field does not exist
            or has no valid value, or the task cannot be scored on the split.
    """
    try:
        factory = EVALUATORS.load(task.card.evaluator)
    except UnknownName as error:
        raise CardError(f"task {task.name}: {error}") from error
    # The protocols that the evaluator's class has, by name.
    protocols: Mapping[str, Any] = factory.PROTOCOLS
    requested_names = [name for name in requested if name in protocols]
    if len(requested_names) > 1:
        raise ProtocolError(
            f"{task.name} is scored by one protocol at a time, "
            f"not by {' and '.join(requested_names)}; run once for each"
        )
    name = requested_names[0] if requested_names else next(iter(protocols))
    request = requested.get(name, ProtocolRequest(name, fields={}))
    evaluator = make_evaluator(
        factory,
        protocol=replace_fields(protocols[name], request.fields),
        card=task.card,
        task=task.name,
    )
    default_split = task.card.score_split
    score_split = split or default_split
    reads_one_split = getattr(factory, "ONE_SPLIT", False)
    if not reads_one_split and score_split != default_split:
        raise ProtocolError(
            f"{task.name} is trained and scored on splits of its own "
            f"('{default_split}' is the one scored); only tasks of the evaluator 'sts' can be "
            "scored on another split",
            parameter="split",
            value=split,
            choices=[default_split],
        )
    # The evaluator's own protocol, not the requested one: an evaluator may fix fields for its task
    # (WordContent has no hidden units). JSON makes tuples lists, as they are in result files.
    protocol_fields = json.loads(json.dumps(dataclasses.asdict(evaluator.protocol)))
    return PlannedTask(
        task=task,
        evaluator=evaluator,
        requested_protocol=request.text,
        protocol=protocol_fields,
        split=score_split,
        required_splits=[score_split] if reads_one_split else list(task.card.splits),
    )


def format_protocol(task: str, protocol: Mapping[str, Any], catalogue: Catalogue) -> str:
    """Return a result's protocol as a user would request it, for example ``senteval(kfold=5)``.

    Args:
        task: The id of the result's task.
        protocol: The fields of the result's protocol, with its ``name``.
        catalogue: Finds task cards, the files that describe tasks.

    Returns:
        The name, and in parentheses the fields that differ from the protocol of this name; the
        name alone if no card describes the task any more.
    """
    name = str(protocol["name"])
    if task not in catalogue.paths("tasks"):
        return name
    # The task with the protocol of this name, of which no field is replaced.
    planned_task = plan_task(load_task(task, catalogue=catalogue), parse_protocols(name))
    default_fields = planned_task.protocol
    replaced_fields = []
    for key, value in protocol.items():
        # None is the similarity of a pair scorer, which nobody requests.
        if key in default_fields and value is not None:
            json_value = json.dumps(value)
            if json_value != json.dumps(default_fields[key]):
                replaced_fields.append(f"{key}={json_value}")
    return f"{name}({', '.join(replaced_fields)})" if replaced_fields else name
