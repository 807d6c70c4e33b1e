"""A task with the protocol that scores it, and the splits that the score needs."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from stsbench.cards.catalogue import Catalogue
from stsbench.cards.names import split_names
from stsbench.data.splits import Split
from stsbench.data.task import Task, expand_names, load_task
from stsbench.errors import CardError, ProtocolError, StsbenchError, UnknownName, did_you_mean, one_line
from stsbench.evaluators import EVALUATORS
from stsbench.evaluators.seams import Evaluator
from stsbench.registry.names import call_with_params, fit
from stsbench.results.record import columns_digest

GivenTasks = str | Task | Sequence[str | Task]
"""What a program may hand over as tasks: names of tasks and suites, comma lists of them, Tasks, and lists of these."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoredTask:
    """One task, to be scored by one evaluator under one protocol."""

    task: Task
    evaluator: Evaluator
    asked: str
    """The protocol as ``--protocol`` names it."""
    protocol: Mapping[str, Any]
    split: str
    wanted: Sequence[str]
    splits: dict[str, Split] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The task's id."""
        return self.task.name

    @property
    def digest(self) -> str:
        """The hash of the data: that of the split, or of all splits that the score needs."""
        digests = [split.digest for split in self.splits.values()]
        return digests[0] if len(digests) == 1 else columns_digest({"splits": digests})

    def load(self) -> None:
        """Read the splits that the score needs.

        Raises:
            DataError: no source has one, or it is not as its card says.
        """
        self.splits.update({name: self.task.load(name) for name in self.wanted})

    def notes(self) -> list[str]:
        """What a reader of the score must know of the data."""
        return [note for name in self.splits for note in self.task.loaded(name).notes]

    def texts(self) -> list[str]:
        """All sentences the score needs."""
        return [text for split in self.splits.values() for text in split.texts()]


def plan_tasks(
    tasks: GivenTasks,
    catalogue: Catalogue,
    *,
    protocol: str | Sequence[str] | None = None,
    data: Path | str | None = None,
    split: str | None = None,
) -> list[ScoredTask]:
    """Give each task its protocol; no data are read yet. A Task that is given has its own data folder.

    Raises:
        UnknownName: a task, suite or protocol that does not exist, or that no chosen task uses.
    """
    choice = ProtocolChoice(protocol)
    # No task at all is an empty name.
    given = [tasks] if isinstance(tasks, str | Task) else tasks or [""]
    chosen: dict[str, Task] = {}
    for one in given:
        for name in [one.name] if isinstance(one, Task) else expand_names(one, catalogue):
            if name not in chosen:
                chosen[name] = one if isinstance(one, Task) else load_task(name, data=data, catalogue=catalogue)
    found = [choice.scored(task, split) for task in chosen.values()]
    choice.check_all_used()
    return found


def read_tasks(tasks: Iterable[ScoredTask], failed: Callable[[str, StsbenchError], None]) -> list[ScoredTask]:
    """Read every task's data; one whose data cannot be had goes to ``failed`` and, unless that raises, is left out."""
    found = []
    for task in tasks:
        try:
            task.load()
        except StsbenchError as error:
            failed(task.name, error)
        else:
            found.append(task)
    return found


class ProtocolChoice:
    """The protocols a user asked for; each evaluator takes the one it knows, else its first.

    A protocol is a name, or a name with fields to replace: ``senteval(kfold=5,nhid=50)``.
    """

    def __init__(self, protocol: str | Sequence[str] | None) -> None:
        """Read a comma list of protocols."""
        text = protocol if isinstance(protocol, str) else ",".join(protocol or [])
        self.asked: dict[str, dict[str, Any]] = {}
        self.texts: dict[str, str] = {}
        for part in split_names(text):
            name, values = _parse(part)
            if name in self.asked:
                raise ProtocolError(f"--protocol names '{name}' twice; run once for each")
            self.asked[name], self.texts[name] = values, part
        self.used: set[str] = set()
        self.seen: dict[str, None] = {}

    def scored(self, task: Task, split: str | None) -> ScoredTask:
        """Return the task with its evaluator, made with the protocol that was asked for."""
        try:
            factory = EVALUATORS.load(task.card.evaluator)
        except UnknownName as error:
            raise CardError(f"task {task.name}: {error}") from error
        protocols: Mapping[str, Any] = factory.PROTOCOLS
        self.seen.update(dict.fromkeys(protocols))
        asked = [name for name in self.asked if name in protocols]
        if len(asked) > 1:
            raise ProtocolError(
                f"{task.name} is scored by one protocol at a time, not by {' and '.join(asked)}; run once for each"
            )
        self.used.update(asked)
        name = asked[0] if asked else next(iter(protocols))
        chosen = _replace(protocols[name], self.asked.get(name, {}))
        where = f"task {task.name}: [options]"
        evaluator = call_with_params(factory, {"protocol": chosen, **task.card.options}, where=where)
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
        protocol = json.loads(json.dumps(dataclasses.asdict(evaluator.protocol)))
        text = self.texts.get(name, name)
        return ScoredTask(task=task, evaluator=evaluator, asked=text, protocol=protocol, split=scored, wanted=wanted)

    def check_all_used(self) -> None:
        """Raise UnknownName for a protocol that no task's evaluator knows."""
        for name in self.asked:
            if name not in self.used:
                raise UnknownName("protocol", name, self.seen, hint=f"these tasks have {', '.join(self.seen)}")


def protocol_as_asked(task: str, protocol: Mapping[str, Any], catalogue: Catalogue) -> str:
    """A result's protocol as ``--protocol`` names it: with the fields that differ from those of its name.

    Of a task that no card describes any more it is the name alone.
    """
    if task not in catalogue.paths("tasks"):
        return str(protocol["name"])
    usual = ProtocolChoice(str(protocol["name"])).scored(load_task(task, catalogue=catalogue), None).protocol
    told = {key: json.dumps(value) for key, value in protocol.items() if key in usual}
    other = [f"{key}={value}" for key, value in told.items() if value != json.dumps(usual[key])]
    return f"{protocol['name']}({', '.join(other)})" if other else str(protocol["name"])


def _parse(text: str) -> tuple[str, dict[str, Any]]:
    """Read ``name`` or ``name(field=value,...)``."""
    match = re.fullmatch(r"\s*([\w.-]+)\s*(?:\((.*)\))?\s*", text)
    if not match:
        raise ProtocolError(f"--protocol '{text.strip()}': give a name, or name(field=value)")
    # Fields are a TOML inline table whose bare words need no quotes: optimiser=rmsprop.
    quoted = re.sub(r"=\s*([A-Za-z][\w-]*)\s*(?=,|$)", _quote_word, match[2] or "")
    try:
        values = tomllib.loads(f"fields = {{{quoted}}}")["fields"]
    except ValueError as error:
        raise ProtocolError(f"--protocol '{text.strip()}': cannot be read ({one_line(error)})") from error
    return match[1], values


def _quote_word(match: re.Match[str]) -> str:
    word = match[1]
    return f"= {word}" if word in ("true", "false") else f'= "{word}"'


def _replace(protocol: Any, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - protocols are dataclasses
    hints = get_type_hints(type(protocol))
    known = [f.name for f in dataclasses.fields(protocol) if f.name != "name"]
    fitted = {}
    for key, value in values.items():
        if key not in known:
            raise ProtocolError(f"protocol '{protocol.name}' has no field '{key}'{did_you_mean(key, known)}")
        try:
            fitted[key] = fit(value, hints[key], where=f"protocol '{protocol.name}': {key}")
        except CardError as error:
            raise ProtocolError(str(error)) from error
    return dataclasses.replace(protocol, **fitted)
