"""Tasks with their evaluators and protocols, as a user requests them."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError, ProtocolError, StsbenchError, UnknownName
from stsbench.core.names import split_names
from stsbench.core.wording import join_lines
from stsbench.data.splits import Split
from stsbench.data.task import Task, load_task
from stsbench.evaluators.base import Evaluator
from stsbench.evaluators.registry import EVALUATORS, make_evaluator, replace_fields
from stsbench.results.record import digest_columns


@dataclass(frozen=True, kw_only=True, eq=False)
class PlannedTask:
    """One task, to be scored by one evaluator under one protocol."""

    task: Task
    evaluator: Evaluator
    requested_protocol: str
    """The protocol as ``--protocol`` names it."""
    protocol: Mapping[str, Any]
    split: str
    required_splits: Sequence[str]
    splits: dict[str, Split] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The task's id."""
        return self.task.name

    @property
    def digest(self) -> str:
        """The hash of the data: that of the split, or of all splits that the score needs."""
        digests = [split.digest for split in self.splits.values()]
        return digests[0] if len(digests) == 1 else digest_columns({"splits": digests})

    def load(self) -> None:
        """Read the splits that the score needs. Raises DataError: no source has one, or it is not as its card says."""
        self.splits.update({name: self.task.load(name) for name in self.required_splits})

    def notes(self) -> list[str]:
        """What a reader of the score must know of the data."""
        return [note for name in self.splits for note in self.task.loaded(name).notes]

    def texts(self) -> list[str]:
        """All sentences the score needs."""
        return [text for split in self.splits.values() for text in split.texts()]


def load_tasks(
    tasks: Iterable[PlannedTask], on_failure: Callable[[str, StsbenchError], None]
) -> list[PlannedTask]:
    """Read every task's data; one whose data cannot be had goes to ``on_failure`` and, unless that raises, is left out."""
    found = []
    for task in tasks:
        try:
            task.load()
        except StsbenchError as error:
            on_failure(task.name, error)
        else:
            found.append(task)
    return found


RequestedProtocols = Mapping[str, tuple[str, Mapping[str, Any]]]
"""The protocols a user asked for: how each is written, and the fields to replace, by name."""


def parse_protocols(protocol: str | Sequence[str] | None) -> RequestedProtocols:
    """Read a comma list of protocols: each a name, or a name with fields to replace, ``senteval(kfold=5,nhid=50)``.

    Raises ProtocolError: one cannot be read, or is named twice.
    """
    asked: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for part in split_names(protocol if isinstance(protocol, str) else ",".join(protocol or [])):
        match = re.fullmatch(r"\s*([\w.-]+)\s*(?:\((.*)\))?\s*", part)
        if not match:
            raise ProtocolError(f"--protocol '{part.strip()}': give a name, or name(field=value)")
        # Fields are a TOML inline table whose bare words need no quotes: optimiser=rmsprop.
        quoted = re.sub(
            r"=\s*(?!(?:true|false)\s*(?:,|$))([A-Za-z][\w-]*)\s*(?=,|$)", r'= "\1"', match[2] or ""
        )
        if match[1] in asked:
            raise ProtocolError(f"--protocol names '{match[1]}' twice; run once for each")
        try:
            asked[match[1]] = part, tomllib.loads(f"fields = {{{quoted}}}")["fields"]
        except ValueError as error:
            raise ProtocolError(
                f"--protocol '{part.strip()}': cannot be read ({join_lines(error)})"
            ) from error
    return asked


def plan_task(task: Task, requested: RequestedProtocols, split: str | None = None) -> PlannedTask:
    """A task with its evaluator, which takes the protocol that it knows of those asked for, else its first.

    Raises CardError: there is no such evaluator. ProtocolError: several protocols fit, or the task cannot be scored on the
    split.
    """
    try:
        factory = EVALUATORS.load(task.card.evaluator)
    except UnknownName as error:
        raise CardError(f"task {task.name}: {error}") from error
    protocols: Mapping[str, Any] = factory.PROTOCOLS
    fitting = [name for name in requested if name in protocols]
    if len(fitting) > 1:
        raise ProtocolError(
            f"{task.name} is scored by one protocol at a time, not by {' and '.join(fitting)}; run once for each"
        )
    name = fitting[0] if fitting else next(iter(protocols))
    text, fields = requested.get(name, (name, {}))
    evaluator = make_evaluator(
        factory, replace_fields(protocols[name], fields), task.card, task.name
    )
    scored = split or task.card.score_split
    one_split = getattr(factory, "ONE_SPLIT", False)
    if not one_split and scored != task.card.score_split:
        raise ProtocolError(
            f"{task.name} is trained and scored on splits of its own ('{task.card.score_split}' is the one scored); "
            f"--split is for tasks of the evaluator 'sts'"
        )
    wanted = [scored] if one_split else list(task.card.splits)
    # An evaluator may fix fields for its task (WordContent has no hidden units): its word counts.
    # As a Result's file holds it, so that what is read back is equal: a tuple is a list.
    kept = json.loads(json.dumps(dataclasses.asdict(evaluator.protocol)))
    return PlannedTask(
        task=task,
        evaluator=evaluator,
        requested_protocol=text,
        protocol=kept,
        split=scored,
        required_splits=wanted,
    )


def format_protocol(task: str, protocol: Mapping[str, Any], catalogue: Catalogue) -> str:
    """A result's protocol as ``--protocol`` names it: with the fields that differ from those of its name.

    Of a task that no card describes any more it is the name alone.
    """
    if task not in catalogue.paths("tasks"):
        return str(protocol["name"])
    usual = plan_task(
        load_task(task, catalogue=catalogue), parse_protocols(str(protocol["name"]))
    ).protocol
    recorded = {key: json.dumps(value) for key, value in protocol.items() if key in usual}
    other = [f"{key}={value}" for key, value in recorded.items() if value != json.dumps(usual[key])]
    return f"{protocol['name']}({', '.join(other)})" if other else str(protocol["name"])
