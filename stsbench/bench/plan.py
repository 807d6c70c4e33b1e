"""What a run does: its tasks with their protocols, its encoders and seeds, the cells of it; how far it is, and who hears of it."""

from __future__ import annotations

import dataclasses
import json
import re
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from stsbench.core import settings
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import (
    CardError,
    ProtocolError,
    SourceError,
    StsbenchError,
    UnknownName,
    one_line,
    split_names,
)
from stsbench.data.splits import Split
from stsbench.data.task import Task, expand_names, load_task
from stsbench.encoders.load import each_seed
from stsbench.evaluators import EVALUATORS, made_by, with_fields
from stsbench.evaluators.seams import Evaluator
from stsbench.results.record import Result, columns_digest

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
        """Read the splits that the score needs. Raises DataError: no source has one, or it is not as its card says."""
        self.splits.update({name: self.task.load(name) for name in self.wanted})

    def notes(self) -> list[str]:
        """What a reader of the score must know of the data."""
        return [note for name in self.splits for note in self.task.loaded(name).notes]

    def texts(self) -> list[str]:
        """All sentences the score needs."""
        return [text for split in self.splits.values() for text in split.texts()]


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


Asked = Mapping[str, tuple[str, Mapping[str, Any]]]
"""The protocols a user asked for: how each is written, and the fields to replace, by name."""


def read_protocols(protocol: str | Sequence[str] | None) -> Asked:
    """Read a comma list of protocols: each a name, or a name with fields to replace, ``senteval(kfold=5,nhid=50)``.

    Raises ProtocolError: one cannot be read, or is named twice.
    """
    asked: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for part in split_names(protocol if isinstance(protocol, str) else ",".join(protocol or [])):
        match = re.fullmatch(r"\s*([\w.-]+)\s*(?:\((.*)\))?\s*", part)
        if not match:
            raise ProtocolError(f"--protocol '{part.strip()}': give a name, or name(field=value)")
        # Fields are a TOML inline table whose bare words need no quotes: optimiser=rmsprop.
        quoted = re.sub(r"=\s*(?!(?:true|false)\s*(?:,|$))([A-Za-z][\w-]*)\s*(?=,|$)", r'= "\1"', match[2] or "")
        if match[1] in asked:
            raise ProtocolError(f"--protocol names '{match[1]}' twice; run once for each")
        try:
            asked[match[1]] = part, tomllib.loads(f"fields = {{{quoted}}}")["fields"]
        except ValueError as error:
            raise ProtocolError(f"--protocol '{part.strip()}': cannot be read ({one_line(error)})") from error
    return asked


def scored_by(task: Task, asked: Asked, split: str | None = None) -> ScoredTask:
    """A task with its evaluator, which takes the protocol that it knows of those asked for, else its first.

    Raises CardError: there is no such evaluator. ProtocolError: several protocols fit, or the task cannot be scored on the
    split.
    """
    try:
        factory = EVALUATORS.load(task.card.evaluator)
    except UnknownName as error:
        raise CardError(f"task {task.name}: {error}") from error
    protocols: Mapping[str, Any] = factory.PROTOCOLS
    fitting = [name for name in asked if name in protocols]
    if len(fitting) > 1:
        raise ProtocolError(
            f"{task.name} is scored by one protocol at a time, not by {' and '.join(fitting)}; run once for each"
        )
    name = fitting[0] if fitting else next(iter(protocols))
    text, fields = asked.get(name, (name, {}))
    evaluator = made_by(factory, with_fields(protocols[name], fields), task.card, task.name)
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
    return ScoredTask(task=task, evaluator=evaluator, asked=text, protocol=kept, split=scored, wanted=wanted)


def protocol_as_asked(task: str, protocol: Mapping[str, Any], catalogue: Catalogue) -> str:
    """A result's protocol as ``--protocol`` names it: with the fields that differ from those of its name.

    Of a task that no card describes any more it is the name alone.
    """
    if task not in catalogue.paths("tasks"):
        return str(protocol["name"])
    usual = scored_by(load_task(task, catalogue=catalogue), read_protocols(str(protocol["name"]))).protocol
    recorded = {key: json.dumps(value) for key, value in protocol.items() if key in usual}
    other = [f"{key}={value}" for key, value in recorded.items() if value != json.dumps(usual[key])]
    return f"{protocol['name']}({', '.join(other)})" if other else str(protocol["name"])


Store = Path | str | None
"""Where embeddings are kept: a folder, ``default`` for the user's cache folder, or None for memory alone."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One score that a run makes: an encoder, a task, a protocol and a seed, as the command line names them."""

    encoder: str
    task: str
    protocol: str
    seed: int


@dataclass(frozen=True, kw_only=True)
class RunPart:
    """One encoder of a run: plain data, that can be counted, shown and sent to another process."""

    spec: str
    """The encoder as the user names it."""
    name: str
    """What its results call it."""
    cells: Sequence[Cell]
    """Those whose data could be had."""
    done: Mapping[Cell, Result]
    """Those that the results folder holds."""
    to_embed: int | None
    """Distinct sentences that the store does not hold; None where only fitting the encoder tells."""
    tokens: int | None = None
    """The tokens, or nearly, that a server would be sent for them; None where the encoder runs here."""
    libraries: Sequence[str] = ()
    """The packages that its fingerprint names: those that compute its embeddings."""

    @property
    def missing(self) -> list[Cell]:
        """Those that are to be scored."""
        return [cell for cell in self.cells if cell not in self.done]


@dataclass(frozen=True)
class TextLeftOut:
    """Training text whose sentences a further score of each cell leaves out."""

    corpora: Sequence[str]
    """Names and files as ``--text`` of training takes them; ``own``: what the encoder's recipe names."""
    near: float | None = None
    """The least similarity of near-duplicates that are left out too."""
    folder: Path | None = None
    """Of training text."""


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """What is scored, and how: encoders on tasks. A command and a program say it alike; ``out`` and after are of runs alone."""

    tasks: GivenTasks
    encoders: Sequence[str] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    protocol: str | Sequence[str] | None = None
    data: Path | str | None = None
    split: str | None = None
    seeds: Sequence[int] = (0,)
    store: Store = "default"
    catalogue: Catalogue = field(default_factory=Catalogue)
    out: Path = Path("results")
    """The results folder."""
    fresh: bool = False
    called: Mapping[str, str] = field(default_factory=dict)
    """What results call an encoder, by what it is given as, where it is not its own name."""
    on: str = "local"
    """Who carries it out: a row of :data:`stsbench.bench.run.EXECUTORS`, or ``ray://HOST:PORT``."""
    gpus_per_encoder: int | None = None
    """How many workers embed for one encoder; None for as many as are free."""
    timeout: float | None = None
    """Seconds after which a worker's piece of work is given up; None for never."""
    clean: TextLeftOut | None = None
    """Where it is given, each Result has a score over the items that this text holds nothing of."""

    @property
    def alone(self) -> bool:
        """Whether it is of a single encoder, whose mistakes are its own."""
        return len(self.encoders) == 1

    @property
    def data_folder(self) -> Path | None:
        """The local data folder: the one given, else the user's usual one."""
        return Path(self.data) if self.data is not None else settings.data_folder()

    @cached_property
    def scored(self) -> list[ScoredTask]:
        """The tasks with their protocols, planned once; no data are read yet. A Task that is given has its own data folder.

        Raises UnknownName: a task, suite or protocol that does not exist, or that no chosen task uses.
        """
        asked, chosen = read_protocols(self.protocol), dict[str, Task]()
        # No task at all is an empty name.
        for one in [self.tasks] if isinstance(self.tasks, str | Task) else self.tasks or [""]:
            if isinstance(one, Task):
                chosen.setdefault(one.name, one)
                continue
            for name in expand_names(one, self.catalogue):
                if name not in chosen:
                    chosen[name] = load_task(name, data=self.data, catalogue=self.catalogue)
        found = [scored_by(task, asked, self.split) for task in chosen.values()]
        used = {one.asked for one in found}
        for name, (text, _) in asked.items():
            if text not in used:
                known = {name: None for one in found for name in EVALUATORS.load(one.task.card.evaluator).PROTOCOLS}
                raise UnknownName("protocol", name, known, hint=f"these tasks have {', '.join(known)}")
        return found

    @cached_property
    def cells(self) -> list[Cell]:
        """The cells of a run in the order encoder, task, seed; no encoder is made.

        A recipe that was trained for several seeds is one encoder a seed, ``recipe@3``. Raises StsbenchError: a task,
        suite, protocol or data folder that does not exist.
        """
        scored = self.scored
        if self.data_folder is not None and not self.data_folder.is_dir():
            raise SourceError(f"data folder '{self.data_folder}' does not exist")
        return [
            Cell(encoder=encoder, task=task.name, protocol=task.asked, seed=seed)
            for encoder in dict.fromkeys(one for spec in self.encoders for one in seeds_of(spec, self.catalogue))
            for task in scored
            for seed in dict.fromkeys(self.seeds)
        ]


def seeds_of(spec: str, catalogue: Catalogue) -> list[str]:
    """The encoders that a name stands for: of a recipe trained for several seeds one a seed."""
    try:
        return each_seed(spec, catalogue)
    except StsbenchError:
        # It fails when it is loaded, and takes no other encoder with it.
        return [spec]


STILL_SECONDS = 300.0
"""So long nothing may move before it is said; then twice as long, and so on."""


@dataclass(frozen=True, kw_only=True)
class Doing:
    """What one worker does: of ``what`` the share ``done``, in [0, 1]; the sentences that it embeds, or the cells it scores."""

    worker: str = ""
    """None is this process."""
    what: str
    done: float = 0.0
    sentences: int = 0
    cells: int = 0


class Pace:
    """What the workers of a run do, how fast they are together, how long the rest takes, and how long nothing has moved."""

    def __init__(self, parts: Sequence[RunPart] = (), clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing of these encoders is done yet."""
        self.clock = clock
        self.doing: dict[int, Doing] = {}
        """What is under way, by the number of the piece of work."""
        self.began: dict[int, float] = {}
        """When each piece was first reported."""
        self.cells, self.scored, self.failed = sum(len(part.missing) for part in parts), 0, 0
        self.to_embed, self.embedded = float(sum(part.to_embed or 0 for part in parts)), 0.0
        """Sentences in all, and those of pieces that have ended."""
        self.embedding = self.scoring = 0.0
        """Seconds in which something was embedded, and scored."""
        self.counted = self.moved = clock()
        self.said = 0.0
        """Up to when these seconds are counted, when anything last moved, and after how many seconds that was last said."""

    def turn(self, later: Sequence[RunPart]) -> None:
        """It is the turn of the first of these encoders: what is not done of those before has failed."""
        self.failed = self.cells - self.scored - sum(len(part.missing) for part in later)
        self.to_embed = self.embedded + sum(part.to_embed or 0 for part in later)

    def tell(self, piece: int, doing: Doing) -> None:
        """A worker has begun a piece, or continues with it."""
        self._count()
        if doing != self.doing.get(piece):
            self.moved, self.said = self.counted, 0.0
        self.began.setdefault(piece, self.counted)
        self.doing[piece] = doing

    def end(self, piece: int, *, well: bool = True) -> None:
        """A piece has ended; of what has failed, nothing counts."""
        self._count()
        self.moved, self.said = self.counted, 0.0
        ended = self.doing.pop(piece, None)
        if ended is not None and well:
            self.embedded += ended.sentences

    def over(self, pieces: Iterable[int], seconds: float | None) -> list[int]:
        """Those of some pieces that have been under way for longer."""
        now = self.clock()
        return [] if seconds is None else [one for one in pieces if now - self.began.get(one, now) > seconds]

    def still(self) -> int | None:
        """For how many minutes nothing has moved, where that is to be said now; else None."""
        waited = self.clock() - self.moved
        if waited < max(STILL_SECONDS, 2 * self.said):
            return None
        self.said = waited
        return int(waited // 60)

    @property
    def running(self) -> int:
        """How many cells are scored now."""
        return sum(one.cells for one in self.doing.values())

    @property
    def sentences(self) -> float:
        """How many are embedded so far, those of the work under way among them."""
        return self.embedded + sum(one.done * one.sentences for one in self.doing.values())

    def speed(self) -> float | None:
        """Sentences a second, of all workers together; None as long as nothing tells."""
        self._count()
        return self.sentences / self.embedding if self.embedding and self.sentences else None

    def left(self) -> float | None:
        """Seconds until the run ends; None where nothing tells yet.

        One worker embeds and scores in turn; of several, which do so side by side, the longer one counts.
        """
        speed, waiting, ended = self.speed(), max(0.0, self.to_embed - self.sentences), self.scored + self.failed
        cells = max(0, self.cells - ended)
        if (waiting and speed is None) or (cells and not ended and not waiting):
            return None
        embedding = waiting / speed if speed is not None else 0.0
        scoring = cells * self.scoring / max(ended, 1)
        several = any(one.worker for one in self.doing.values())
        return max(embedding, scoring) if several else embedding + scoring

    def _count(self) -> None:
        """Count the time that has passed for what was under way in it."""
        now, under_way = self.clock(), self.doing.values()
        self.embedding += (now - self.counted) * any(one.sentences for one in under_way)
        self.scoring += (now - self.counted) * any(one.cells for one in under_way)
        self.counted = now


@dataclass(frozen=True, kw_only=True)
class Listener:
    """Who hears how a run goes; every part may be left out."""

    planned: Callable[[Sequence[RunPart]], None] = lambda parts: None
    """Hears all that is to be done, before the first batch."""
    working: Callable[[Pace], None] = lambda pace: None
    """Hears how far the workers of a run are, or this process alone; of others ``encoding`` and ``scoring`` hear nothing."""
    encoding: Callable[[int, int], None] = lambda done, total: None
    scoring: Callable[[str], None] = lambda task: None
    scored: Callable[[Result], None] = lambda result: None
    """Hears each Result that was made, and not found in the results folder."""
    failed: Callable[[str, Exception], None] = lambda what, error: None
    noticed: Callable[[str], None] = lambda line: None
    """Hears what is no failure and should be known."""

    def raising(self) -> Listener:
        """The same, which raises what fails: nothing is left to do."""

        def failed(what: str, error: Exception) -> None:
            raise error

        return replace(self, failed=failed)

    def following(self, pace: Pace, part: RunPart, name: str) -> Listener:
        """The same, which keeps the pace of an encoder in this process, and tells it; ``name`` is what is shown of it."""

        def tell(what: str, done: float = 0.0, *, sentences: int = 0, cells: int = 0) -> None:
            pace.tell(0, Doing(what=f"{name}: {what}", done=done, sentences=sentences, cells=cells))
            self.working(pace)

        def encoding(done: int, total: int) -> None:
            tell("embedding", done / total, sentences=part.to_embed or 0)
            self.encoding(done, total)
            if done == total:
                pace.end(0)

        def scoring(task: str) -> None:
            tell(f"scoring {task}", cells=1)
            self.scoring(task)

        def scored(result: Result) -> None:
            pace.end(0)
            pace.scored += 1
            self.scored(result)
            self.working(pace)

        tell("loading")
        return replace(self, encoding=encoding, scoring=scoring, scored=scored)
