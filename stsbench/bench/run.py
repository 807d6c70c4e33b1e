"""A run: its work planned, carried out in this process or by another executor, forecast; and encoders that a program hands over."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Literal

import msgspec
import numpy as np

from stsbench.bench.plan import (
    Cell,
    GivenTasks,
    Listener,
    Pace,
    RunPart,
    RunPlan,
    ScoredTask,
    Store,
    TextLeftOut,
    read_tasks,
    seeds_of,
)
from stsbench.bench.score import Embedder, Shared, find_result, holds_another, score_tasks, score_without, what_embeds
from stsbench.core import settings as places
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import (
    DataError,
    EncoderError,
    OutputError,
    SourceError,
    Stopped,
    StsbenchError,
    choose,
    shown,
    split_names,
)
from stsbench.core.files import remove, remove_stale, write_whole
from stsbench.core.provenance import versions_in
from stsbench.core.registry import NAME, NAMES, PLACE, SEED, STORE, Kind, Registry, checked
from stsbench.data.corpora.load import load_corpus
from stsbench.data.corpora.overlap import Held, find_held
from stsbench.data.task import Task
from stsbench.encoders.base import Encoder, KnownEncoder
from stsbench.encoders.engine.embed import Engine
from stsbench.encoders.load import check_loadable, find_encoder, find_given, shared_ends
from stsbench.evaluators import evaluator_of
from stsbench.results.folder import command_again, has_columns, lacking_said, make_current, read_states, write_result
from stsbench.results.record import Result, columns_digest, protocol_key

Before = dict[tuple[str, int | None], set[str | None]]
"""The fingerprints of the encoders so far, by their names and seeds: they themselves are let go."""


def _is_new(known: KnownEncoder, before: Before) -> bool:
    """Whether an encoder is not one of those before, which it joins; raises StsbenchError: nothing tells it from another."""
    same_name = before.setdefault((known.name, known.train_seed), set())
    if same_name and None in {*same_name, known.fingerprint}:
        raise StsbenchError(
            f"two of the encoders are called {shown(known.name)}; name each: by --name, or by a dict, {{'first': …, 'second': …}}"
        )
    is_new = known.fingerprint not in same_name
    same_name.add(known.fingerprint)
    return is_new


@dataclass(frozen=True)
class Work:
    """A plan in this process: its encoders are made one after the other, its tasks are read once."""

    plan: RunPlan
    listener: Listener
    _made: dict[str, KnownEncoder] = field(default_factory=dict)
    """The encoder that was made last: two may not fit in memory together."""
    _shared: Shared = field(default_factory=Shared)

    def parts(self) -> Iterator[RunPart]:
        """Yield the part of each encoder, once under however many names; one that cannot be made is reported and left out."""
        before = Before()
        for spec, cells in groupby(self.plan.cells, key=lambda cell: cell.encoder):
            mine, part = list(cells), None
            with isolated(spec, self.plan.alone, self.listener, expected=(StsbenchError,)):
                encoder = self._named_apart(spec, self._make(spec))
                if _is_new(encoder, before):
                    part = self._part(spec, encoder, mine)
            if part is not None:
                yield part

    def encoder(self, part: RunPart) -> KnownEncoder:
        """The encoder of a part, under the name of its results."""
        return replace(self._make(part.spec), name=part.name)

    def _make(self, spec: str) -> KnownEncoder:
        if spec not in self._made:
            self._made.clear()
            made = find_encoder(spec, params=self.plan.params, catalogue=self.plan.catalogue)
            if made.names and Path(spec).exists():
                way = os.path.relpath(Path(spec).resolve(), self.plan.out.resolve())
                made = replace(made, folder=hashlib.sha256(os.fsencode(way)).hexdigest()[:16])
            self._made[spec] = made
        return self._made[spec]

    def _named_apart(self, spec: str, encoder: KnownEncoder) -> KnownEncoder:
        """The encoder under a name that neither another folder of this run has, nor another encoder's results."""
        plan = self.plan
        called = {one: name for given, name in plan.called.items() for one in seeds_of(given, plan.catalogue)}
        if encoder.notice:
            self.listener.noticed(encoder.notice)
        if spec in called or not encoder.names:
            return replace(encoder, name=called.get(spec, encoder.name))
        others = shared_ends(Path(spec), [Path(other) for other in plan.encoders if other != spec])
        names = [name for name in encoder.names if name.partition("+")[0] not in others] or encoder.names
        name = next((one for one in names if not holds_another(plan.out, one, encoder)), names[-1])
        if name != names[0]:
            self.listener.noticed(
                f"{spec}: its results are called '{name}', for '{names[0]}' is another encoder's name"
            )
        return replace(encoder, name=name)

    def _part(self, spec: str, encoder: KnownEncoder, cells: Sequence[Cell]) -> RunPart:
        embedder = self.embedder(encoder, self.tasks_of(cells))
        mine = {cell: self.tasks[cell.task] for cell in cells if self.tasks.get(cell.task) in embedder.tasks}
        done: dict[Cell, Result] = {}
        for cell, task in mine.items():
            if not self.plan.fresh and (held := find_result(self.plan.out, task, embedder, cell.seed, self.listener)):
                done[cell] = held
        todo = dict.fromkeys(task for cell, task in mine.items() if cell not in done)
        to_embed, tokens = embedder.missing(list(todo))
        return RunPart(
            spec=spec,
            name=encoder.name,
            cells=list(mine),
            done=done,
            to_embed=to_embed,
            tokens=tokens,
            libraries=list(versions_in(encoder.fingerprint or "")),
        )

    @cached_property
    def tasks(self) -> dict[str, ScoredTask]:
        """The tasks by name, read when the first encoder is there; what fails is reported once."""
        return {task.name: task for task in read_tasks(self.plan.scored, self.listener.failed)}

    def tasks_of(self, cells: Iterable[Cell]) -> list[ScoredTask]:
        """The tasks of some cells, each once, whose data could be had."""
        return [self.tasks[name] for name in dict.fromkeys(cell.task for cell in cells) if name in self.tasks]

    def embedder(
        self, encoder: KnownEncoder, tasks: Sequence[ScoredTask], listener: Listener | None = None
    ) -> Embedder:
        """The embedder of an encoder for some tasks; without a listener to its work it only looks into the store."""
        only_look = listener is None
        return Embedder(encoder, tasks, self.plan, listener or self.listener, shared=self._shared, only_look=only_look)


@contextmanager
def isolated(
    name: str, alone: bool, listener: Listener, expected: tuple[type[StsbenchError], ...] = (EncoderError, SourceError)
) -> Iterator[None]:
    """Report what fails of one encoder, so that the others continue; what the only one's code raises is raised."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, expected) and (alone or isinstance(error, OutputError | Stopped)):
            raise
        listener.failed(name, error)


Executor = Callable[[Work, Sequence[RunPart]], Iterator[Result]]
"""Carries out parts: yields the Result of each cell, in their order; what the folder holds is not done again. A cell that
fails is reported to the listener, and the others continue.
"""


EXECUTORS = Registry(
    "executor",
    {"local": "stsbench.bench.run:local", "ray": "stsbench.bench.on_ray:on_ray"},
    group="executors",
    wanted="a function of work and parts, see stsbench.bench.run:Executor",
)


def local(work: Work, parts: Sequence[RunPart]) -> Iterator[Result]:
    """Carry out parts in this process: each task is read once, each encoder's sentences embedded once."""
    pace = Pace(parts)
    for place, part in enumerate(parts):
        with isolated(part.name, work.plan.alone, work.listener):
            pace.turn(parts[place:])
            listener = work.listener.following(pace, part, f"{place + 1}/{len(parts)} {part.name}")
            embedder = work.embedder(work.encoder(part), work.tasks_of(part.cells), listener)
            wanted = {(work.tasks[cell.task], cell.seed): part.done.get(cell) for cell in part.cells}
            for result in score_tasks(embedder, wanted, listener=listener):
                if all(result is not known for known in part.done.values()):
                    write_result(result, work.plan.out)
                yield result


OWN = "own"
"""Stands for the training text that an encoder's recipe names."""


def cleaner(asked: TextLeftOut, work: Work, parts: Sequence[RunPart]) -> Callable[[Result], Result]:
    """What puts a clean score into each Result of a run, those among them that the results folder held already.

    The training text is read, and the tasks' sentences looked for in it, before anything is embedded. Raises StsbenchError:
    the text cannot be had, or an encoder has none of its own.
    """
    plan, catalogue = work.plan, work.plan.catalogue
    texts = {(task.name, task.split): task.splits[task.split].texts() for task in work.tasks.values()}

    def asked_of(encoder: str) -> TextLeftOut:
        stem = encoder.partition("+")[0]
        own = [catalogue.recipe(stem).data.corpus] if stem in catalogue.paths("trainers") else []
        if OWN in asked.corpora and not own:
            raise StsbenchError(
                f"--clean {OWN}: '{encoder}' is of no recipe, which would name its training text; give --clean CORPUS"
            )
        names = dict.fromkeys(name for one in asked.corpora for name in (own if one == OWN else [one]))
        return replace(asked, corpora=tuple(names))

    @cache
    def find(one: TextLeftOut) -> tuple[str, Held]:
        load = partial(load_corpus, corpora=one.folder, data=plan.data_folder, catalogue=catalogue)
        corpora = list(map(load, one.corpora))
        held = find_held(corpora, (text for mine in texts.values() for text in mine), near=asked.near)
        hashes = [corpus.sha256 for corpus in corpora]
        return hashes[0] if len(hashes) == 1 else columns_digest({"corpora": hashes}), held

    found = {part.name: (mine := asked_of(part.name), *find(mine)) for part in parts}

    def clean(result: Result) -> Result:
        """The Result with its clean score, which is written; without, where it cannot be made, which is reported."""
        mine, text, held = found[result.encoder]
        seen = [one for one in texts[result.task, result.split] if one in held.how]
        try:
            if not has_columns(result):
                raise DataError(f"{lacking_said([result])}; run: {command_again([result])}")
            evaluator = evaluator_of(result.task, catalogue.task(result.task), result.protocol)
            made = score_without(result, seen, evaluator, mine, text)
        except StsbenchError as error:
            work.listener.failed(f"clean score of {result.encoder} on {result.task}", error)
            return result
        others = [one for one in result.clean if one.name != made.name]
        cleaned = msgspec.structs.replace(result, clean=[*others, made])
        if cleaned.clean != result.clean:
            # Its per-item columns lie there already.
            write_result(msgspec.structs.replace(cleaned, per_item={}), plan.out)
        return cleaned

    return clean


FIRST_SAMPLE, LAST_SAMPLE = 16, 1024
"""Sentences that tell an encoder's speed: four times as many as long as they take less than ..."""
PROBE_SECONDS = 0.5
"""... this."""


@dataclass(frozen=True, kw_only=True)
class EncoderForecast:
    """What a run would do for one encoder."""

    part: RunPart
    embedding: float | None
    """Seconds of embedding by one worker, as a sample of its sentences took here; None where only fitting tells."""
    seconds: float | None
    """Of scoring what is missing, as earlier results took; None where one of its tasks has no earlier result."""


def forecast_run(plan: RunPlan, listener: Listener) -> Iterator[EncoderForecast]:
    """Yield what a run would do, an encoder at a time; data are read, and nothing is scored or written.

    Each encoder that has sentences to embed embeds a few of them, for its speed; one that fails is reported.

    Raises:
        StsbenchError: as :func:`stsbench.bench.run.run`.
    """
    work = Work(plan, listener)
    # How long earlier results took to score, whichever encoder's.
    earlier: dict[tuple[str, str, str], list[float]] = {}
    for one in read_states(plan.out).results if plan.out.is_dir() else ():
        if isinstance(seconds := one.run.get("seconds"), int | float):
            earlier.setdefault((one.task, one.split, protocol_key(one.protocol)), []).append(float(seconds))
    for part in work.parts():
        todo = [work.tasks[cell.task] for cell in part.missing]
        took = [earlier.get((one.name, one.split, protocol_key(one.protocol)), []) for one in todo]
        embedding = 0.0 if part.to_embed == 0 else None
        # What a server is sent is paid for: nothing is sent for a forecast.
        if part.to_embed and part.tokens is None:
            with isolated(part.name, plan.alone, listener):
                embedding = _seconds_to_embed(work, part)
        scoring = sum(map(median, took)) if all(took) else None
        yield EncoderForecast(part=part, embedding=embedding, seconds=scoring)


def _seconds_to_embed(work: Work, part: RunPart) -> float:
    """How long one worker takes for what is missing: the time of a sample that is as long and as short as all of it."""
    base, size = what_embeds(work.encoder(part).encoder), FIRST_SAMPLE
    texts = {text for task in work.tasks_of(part.missing) for text in task.texts()}
    by_length = sorted(texts, key=lambda text: (len(text), text))
    # The first call loads the model.
    Engine(base)(by_length[:1])
    while True:
        sample = [by_length[i] for i in np.linspace(0, len(by_length) - 1, min(size, len(by_length))).astype(int)]
        started = time.perf_counter()
        Engine(base)(sample)
        took = time.perf_counter() - started
        if took > PROBE_SECONDS or size >= min(LAST_SAMPLE, len(by_length)):
            return took * (part.to_embed or 0) / len(sample)
        size *= 4


def run(plan: RunPlan, listener: Listener, *, executor: Executor | None = None) -> Iterator[Result]:
    """Carry out a run, writing each Result as soon as it is there; what the folder holds is not done again.

    All encoders are found and all data read before the first batch, and the listener hears what is to be done.
    An encoder or task that fails is reported to the listener, and the run continues. The plan names the executor, unless one is given.

    Raises:
        StsbenchError: nothing at all can be done (unknown task, no data), or results cannot be written.
    """
    executor = executor or EXECUTORS.load_at(plan.on)
    work = Work(plan, listener)
    plan.cells  # noqa: B018 - unknown names come first
    check_writable(plan.out)
    parts = list(work.parts())
    clean = cleaner(plan.clean, work, parts) if plan.clean is not None else None
    listener.planned(parts)
    for result in executor(work, parts):
        make_current(result, plan.out)
        yield result if clean is None else clean(result)


def check_writable(folder: Path) -> None:
    """Fail before the work rather than after it."""
    remove(write_whole(folder / ".stsbench-writable", b""))
    # Also what this run will not write beside: other encoders' results, stores and fits.
    remove_stale(folder, "*.partial", "*/*.partial")
    remove_stale(places.cache_folder(), "*/*.partial", "*/*/*.partial")


GivenEncoder = Encoder | KnownEncoder | Callable[[list[str]], object] | str | Path
"""What a program may hand over as an encoder: one that is loaded, a name, a SentenceTransformer, a function."""
GivenEncoders = GivenEncoder | Sequence[GivenEncoder] | Mapping[str, GivenEncoder]
"""The same, a list of them, or a dict of them by what results are to call them."""


def _are_tasks(given: object) -> bool:
    return all(isinstance(one, str | Task) for one in (given if isinstance(given, Sequence) else [given]))


@checked(
    tasks=Kind(_are_tasks, "a name, a Task or a list of them"),
    protocol=NAMES, data=PLACE, seed=SEED, split=NAME, store=STORE, name=NAME, on_error=NAME, catalogue=Catalogue,
    listener=Listener,
)  # fmt: skip
def iterate(
    encoder: GivenEncoders,
    tasks: GivenTasks,
    *,
    protocol: str | Sequence[str] | None = None,
    data: Path | str | None = None,
    seed: int = 0,
    split: str | None = None,
    store: Store = "default",
    on_error: Literal["raise", "skip"] = "raise",
    name: str | None = None,
    catalogue: Catalogue | None = None,
    listener: Listener | None = None,
) -> Iterator[Result]:
    """Score encoders on tasks, yielding each Result as soon as it is there: encoder by encoder, in the order of the tasks.

    Names and arguments are checked at the call. When the first Result is asked for, all data are read. Of each encoder
    all sentences of all tasks are embedded before its first score, each distinct sentence once.

    The arguments are those of :func:`stsbench.evaluate`; the listener hears what fails where ``on_error`` is ``skip``. Of several
    encoders one that is given by its name is made when it is its turn.

    Raises:
        StsbenchError: data or encoder cannot be used; see :mod:`stsbench.core.errors`.
    """
    choose("on_error", on_error, {"raise": None, "skip": None})
    catalogue, listener = catalogue or Catalogue(), listener or Listener()
    plan = RunPlan(
        tasks=tasks, protocol=protocol, data=data, split=split, seeds=(int(seed),), store=store, catalogue=catalogue
    )
    _ = plan.scored
    found = _encoders(encoder, name, catalogue)
    return _scored(plan, found, listener if on_error == "skip" else listener.raising())


def _encoders(given: GivenEncoders, name: str | None, catalogue: Catalogue) -> list[KnownEncoder | str]:
    """Encoders that are there already, and the names of those to be made; of one alone nothing is put off."""
    # What is too long for a file's name is none, which Path would raise.
    if isinstance(given, str) and not os.path.exists(given):  # noqa: PTH110
        given = split_names(given)
    listed: Sequence[object] = given if isinstance(given, list | tuple) else [given]
    called = [*given.items()] if isinstance(given, Mapping) else [(name, one) for one in listed]
    if not called:
        raise StsbenchError("no encoder is given; give a name such as minilm, an encoder, or a list of them")
    if name is not None and (len(called) > 1 or isinstance(given, Mapping)):
        raise StsbenchError(f"name='{name}' is for one encoder; name several by a dict, {{'first': …, 'second': …}}")
    found, before = list[KnownEncoder | str](), Before()
    for own, one in called:
        if len(called) > 1 and own is None and isinstance(one, str | Path):
            check_loadable(str(one), catalogue)
            found.append(str(one))
        else:
            found.append(known := find_given(one, catalogue, name=own))
            _is_new(known, before)
    return found


def _scored(plan: RunPlan, found: Sequence[KnownEncoder | str], listener: Listener) -> Iterator[Result]:
    work, before = Work(plan, listener), Before()
    tasks = list(work.tasks.values())
    for one in found:
        # The only one's mistake is the caller's.
        with isolated(one if isinstance(one, str) else one.name, len(found) == 1, listener, expected=()):
            known = find_given(one, plan.catalogue)
            if _is_new(known, before):
                wanted = dict.fromkeys((task, seed) for task in tasks for seed in plan.seeds)
                yield from score_tasks(work.embedder(known, tasks, listener), wanted, listener=listener)
