"""One encoder on tasks that are read: which embeddings each is scored on and where they lie; then the scores, task by task."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from stsbench.bench.plan import CleanScoreSettings, RunPlan, Store
from stsbench.bench.progress import RunCallbacks
from stsbench.bench.protocols import PlannedTask
from stsbench.core import provenance, settings
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, EncoderError, StsbenchError, UnknownName
from stsbench.core.files import strip_folders
from stsbench.core.provenance import (
    add_texts,
    copy_factory,
    encoder_identity,
    is_own_class,
    is_same_encoder,
    strip_texts,
)
from stsbench.core.wording import format_repr
from stsbench.data.corpora.corpus import TEXT_COLUMNS, load_corpus
from stsbench.data.corpora.overlap import text_key
from stsbench.data.task import Task, load_task
from stsbench.encoders.backends import uses_tf32
from stsbench.encoders.base import (
    Embed,
    Encoder,
    FittableEncoder,
    FloatArray,
    PostProcessor,
    ServedEncoder,
    WordEncoder,
)
from stsbench.encoders.engine.drift import (
    DriftMonitor,
    Origin,
    read_environment,
    short_digest,
)
from stsbench.encoders.engine.embed import (
    Engine,
    StoredEncoder,
    check_embeddings,
    transform_embeddings,
)
from stsbench.encoders.engine.store import EmbeddingStore, StoredEmbeddings
from stsbench.encoders.fitted import (
    TARGET_TASK,
    FittedEncoder,
    PostProcessed,
    VariantEncoder,
    digest_texts,
    find_variant,
    read_fit,
)
from stsbench.encoders.metadata import (
    check_encoder,
    find_base,
    is_served,
    read_metadata,
    read_notes,
    sentences_without_known_words,
)
from stsbench.encoders.named import NamedEncoder
from stsbench.evaluators.base import Evaluator, Scores
from stsbench.numbers.similarity import EMBEDDING_TYPES, FLOAT_TYPE
from stsbench.numbers.statistics import (
    AGGREGATIONS,
    MIN_ITEMS,
    SENTENCE_COLUMNS,
    read_sentence_ids,
    sentence_columns,
    subset_indices,
)
from stsbench.results.folder import encode_result, read_item_columns, read_result
from stsbench.results.record import (
    MIN_SUBSET_PAIRS,
    CleanScore,
    Result,
    cell_id,
    digest_columns,
    result_path,
)


def open_store(
    store: Store,
    encoder: Encoder,
    texts: str = "",
    *,
    read_only: bool = False,
    checked: bool = False,
) -> EmbeddingStore:
    """The encoder's shelf in the store, by the hash of the texts it is fitted on too; in memory where nothing may be kept.

    With ``checked`` another process of this run has seen that the encoder still embeds as it did.
    """
    identified = encoder_identity(encoder)
    if identified is None:
        return EmbeddingStore(None)
    mine = None
    if store is not None:
        identified = add_texts(identified, texts) if texts else identified
        folder = settings.store_folder() if store == "default" else Path(store)
        mine = folder / hashlib.sha256(identified.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    # Nothing here computes what a server embeds: what is paid for stays, whatever machine it is read on.
    watch = None if is_served(encoder) else DriftMonitor(mine, encoder)
    if watch is not None and not read_only and not checked:
        watch.check()
    return EmbeddingStore(mine, watch, read_only=read_only)


UNGRADED = "+ungraded"


def needs_task(fit: str) -> bool:
    """Whether the texts are those of the task that is scored."""
    return fit.removesuffix(UNGRADED).partition(".")[0] == TARGET_TASK


def texts_to_fit(
    fit: str, *, task: Task | None, catalogue: Catalogue, data: Path | None = None
) -> list[str]:
    """Return the texts that a card's ``fit`` names, each as often as it occurs, as in the code of BERT-whitening and BERT-flow.

    ``target`` is all sentences of the task that is scored, ``target.train`` those of one split of it, ``stsb.test`` those of a
    split of the task of this name; ``allnli`` is a corpus, of whose rows all text columns are taken, and ``mine.txt`` a file of
    one's own. ``target+ungraded`` (and so for any task) takes also the sentences of pairs released without a gold score, as
    ConSERT's training does.

    Raises:
        UnknownName: no such split, task, corpus or file; offers the nearest.
        DataError: the data cannot be had or read.
    """
    name, _, split = fit.removesuffix(UNGRADED).partition(".")
    corpora = catalogue.corpora()
    if fit in corpora or (
        name not in (TARGET_TASK, *catalogue.paths("tasks")) and Path(fit).suffix
    ):
        corpus = load_corpus(fit, data=data, catalogue=catalogue)
        columns = [
            corpus.table.column(one).to_pylist() for one in TEXT_COLUMNS if one in corpus.columns
        ]
        return [text for row in zip(*columns, strict=True) for text in row]
    if name != TARGET_TASK and name in catalogue.paths("tasks"):
        task = load_task(name, data=data, catalogue=catalogue)
    elif name != TARGET_TASK or task is None:
        known = [TARGET_TASK, *corpora, *(f"{one}.test" for one in catalogue.paths("tasks"))]
        raise UnknownName(
            "text to fit on", fit, known, hint="give target, a corpus, a task's split or a file"
        )
    return task.texts(
        [split] if split else None, with_ungraded=fit.endswith(UNGRADED), repeated=True
    )


class FittingTexts(NamedTuple):
    """What an encoder is fitted on for one task."""

    sentences: Sequence[str]
    digest: str
    is_target_task: bool


def load_fitting_texts(
    fit: str,
    tasks: Sequence[PlannedTask],
    plan: RunPlan,
    on_failure: Callable[[str, StsbenchError], None],
) -> dict[str, FittingTexts]:
    """The texts to fit on by task; read once where they are the same for all."""
    found: dict[str, FittingTexts] = {}
    shared, keys, digest = list[str](), set[bytes](), ""
    for task in tasks:
        if needs_task(fit) or not shared:
            try:
                shared = texts_to_fit(
                    fit, task=task.task, catalogue=plan.catalogue, data=plan.data_folder
                )
            except StsbenchError as error:
                if not needs_task(fit):
                    on_failure(", ".join(one.name for one in tasks), error)
                    return {}
                on_failure(task.name, error)
                continue
            keys, digest = set(map(text_key, shared)), digest_texts(shared)
        found[task.name] = FittingTexts(
            shared, digest, not keys.isdisjoint(map(text_key, task.texts()))
        )
    return found


@dataclass(eq=False)
class SharedEngine:
    """The engine of one base, for all encoders that are made of its embeddings."""

    engine: Engine
    read_only: bool
    """Whether it may only look into the store."""
    counted_sentences: set[str] = field(default_factory=set)
    """What an encoder before has counted."""
    views: dict[tuple[str, ...], StoredEmbeddings] = field(default_factory=dict)

    def view(self, sentences: Sequence[str]) -> StoredEmbeddings:
        """Return the embeddings of these sentences; where they lie is looked up once."""
        key = tuple(sentences)
        if key not in self.views:
            self.views[key] = self.engine(sentences)
        return self.views[key]


@dataclass
class SharedState:
    """What the encoders of a run share, the last of each: variants of one encoder follow each other, and two may not fit in memory."""

    engine: SharedEngine | None = None
    fitting_texts: tuple[Hashable, Mapping[str, FittingTexts]] = (None, {})


class TaskEmbedder:
    """Gives each task of a run the embeddings that its score is made of.

    One engine embeds for all tasks; of a variant or a post-processor it embeds for the base, and embeddings are changed when
    they are asked for. Any other encoder that is fitted on texts has an engine and a shelf for each state of it.
    """

    tasks: Sequence[PlannedTask]
    """The tasks that it can embed: all whose texts to fit on could be had."""

    def __init__(
        self,
        encoder: NamedEncoder,
        tasks: Sequence[PlannedTask],
        plan: RunPlan,
        callbacks: RunCallbacks,
        *,
        shared_state: SharedState | None = None,
        read_only: bool = False,
    ) -> None:
        """Read texts to fit on and open the store; nothing is embedded yet.

        The listener hears of each task whose texts to fit on cannot be had, and which is then left out. With ``read_only``
        the store is left as it is: such an embedder tells what is missing, and must not embed.
        """
        made, shared_state = encoder.encoder, shared_state or SharedState()
        self.encoder, self.tasks, self._plan, self._callbacks = encoder, tasks, plan, callbacks
        self._only_look = read_only
        self._texts: Mapping[str, FittingTexts] = {}
        self._fits, self._engines = dict[str, Encoder](), dict[str, Engine]()
        self._base: SharedEngine | None = None
        base = base_encoder(made)
        if isinstance(made, FittableEncoder):
            key = (read_fit(made), *tasks)
            if shared_state.fitting_texts[0] != key:
                shared_state.fitting_texts = (
                    key,
                    load_fitting_texts(read_fit(made), tasks, plan, callbacks.on_failure),
                )
            self._texts = shared_state.fitting_texts[1]
            self.tasks = [task for task in tasks if task.name in self._texts]
            if base is made:
                return
        held = shared_state.engine if base is not made else None
        if held is None or held.engine.encoder is not base or held.read_only != read_only:
            held = SharedEngine(
                self._engine_of(base, open_store(plan.store, base, read_only=read_only)), read_only
            )
        # What it has embedded for the encoder before, this one finds.
        held.engine.encoded_keys.clear()
        self._base, shared_state.engine = held, held if base is not made else None

    def _engine_of(self, encoder: Encoder, shelf: EmbeddingStore) -> Engine:
        return Engine(
            encoder,
            shelf,
            on_progress=self._callbacks.on_embedding,
            on_notice=self._callbacks.on_notice,
        )

    @property
    def _known_engine(self) -> SharedEngine | None:
        """What embeds, where that is known before; a post-processor of a user's own may embed when it is fitted."""
        made = self.encoder.encoder
        return (
            None
            if isinstance(made, FittableEncoder) and not isinstance(made, PostProcessed)
            else self._base
        )

    def named_encoder(self, task: PlannedTask) -> NamedEncoder:
        """The encoder as the Result of this task names it."""
        texts = self._texts.get(task.name)
        return (
            self.encoder
            if texts is None
            else replace(
                self.encoder, texts_digest=texts.digest, fitted_on_task=texts.is_target_task
            )
        )

    def count_missing(self, tasks: Sequence[PlannedTask]) -> tuple[int | None, int | None]:
        """How many distinct sentences :meth:`prepare` would embed, None where only fitting tells; and of a server the tokens."""
        if (base := self._known_engine) is None:
            return (0 if self._base is None and not tasks else None), None
        new = set(self._required_texts(tasks)) - base.counted_sentences
        base.counted_sentences.update(new)
        texts, encoder = base.engine.missing_texts(list(new)), base.engine.encoder
        return len(texts), encoder.count_tokens(texts) if isinstance(
            encoder, ServedEncoder
        ) else None

    def plan_shared_embedding(
        self, tasks: Sequence[PlannedTask]
    ) -> tuple[Engine, list[str]] | None:
        """What several workers can embed together: by which engine, and which texts.

        None of what is kept in memory alone or made task by task, and of a server, which has limits of its own.
        """
        if (base := self._known_engine) is None or base.engine.store.folder is None:
            return None
        return (
            None
            if isinstance(base.engine.encoder, ServedEncoder)
            else (base.engine, self._required_texts(tasks))
        )

    def prepare(self, tasks_to_score: Sequence[PlannedTask], tasks: Sequence[PlannedTask]) -> None:
        """Embed what the tasks to do need, in one go; ``tasks`` are all tasks, done ones among them."""
        if self._base is None:
            for task in tasks_to_score:
                self._fitted_engine(task).prepare(task.texts())
            return
        base = self._base.engine
        # Kept in memory alone, embeddings are lost with a stopped run: its batches are planned again as they were.
        base.prepare(
            self._required_texts(tasks_to_score),
            among=self._required_texts(tasks) if base.store.folder is None else (),
        )
        variant = find_variant(self.encoder.encoder)
        if variant is not None and base.store.width is not None:
            # More dimensions than the base has are refused once, rather than task by task.
            variant.check_size(base.store.width)

    def _required_texts(self, tasks: Sequence[PlannedTask]) -> list[str]:
        fits = (
            {self._texts[task.name].digest: self._fit(task) for task in tasks}
            if self._texts
            else {}
        )
        own = [
            text
            for fit in fits.values()
            if isinstance(fit, FittedEncoder)
            for text in fit.texts_to_embed()
        ]
        return [*(text for task in tasks for text in task.texts()), *own]

    def _fit(self, task: PlannedTask) -> Encoder:
        """What is fitted for a task: over the stored embeddings of its base, where it has one."""
        texts, made = self._texts[task.name], self.encoder.encoder
        if texts.digest not in self._fits:
            maker = made if self._base is None else made.over(StoredEncoder(self._base.engine))  # type: ignore[attr-defined]
            if not isinstance(maker, FittableEncoder):
                raise EncoderError(
                    f"what a post-processor's over(base) returned has no fit_texts; it is {format_repr(maker)}"
                )
            what = f"what fit_texts of {type(maker).__name__} returned"
            self._fits[texts.digest] = check_encoder(maker.fit_texts(texts.sentences), what)
        return self._fits[texts.digest]

    def _fitted_engine(self, task: PlannedTask) -> Engine:
        digest = self._texts[task.name].digest
        if digest not in self._engines:
            fitted = self._fit(task)
            copy_factory(fitted, self.encoder.encoder)
            self._engines[digest] = self._engine_of(
                fitted, open_store(self._plan.store, fitted, digest)
            )
        return self._engines[digest]

    def embed_function(self, task: PlannedTask) -> Embed:
        """What embeds this task's sentences."""
        made = self.encoder.encoder
        if self._base is None:
            return self._fitted_engine(task)
        if isinstance(made, VariantEncoder):
            return transform_embeddings(self._base.view, made.transform)
        if not self._texts:
            return self._base.engine
        # Made again in seconds from what the store holds: not stored itself.
        fit = self._fit(task)
        if isinstance(fit, FittedEncoder) and find_variant(made) is not None:
            return transform_embeddings(self._base.view, fit.transform)
        return Engine(fit, EmbeddingStore(None))

    def count_encoded(self, task: PlannedTask) -> int:
        """How many distinct sentences of the task this embedder embedded itself, and did not find in the store."""
        engine = self._fitted_engine(task) if self._base is None else self._base.engine
        return engine.count_encoded(task.texts())

    def drift_monitor(self, task: PlannedTask) -> DriftMonitor | None:
        """Who watches over the stored embeddings of this task, where some are stored."""
        engine = (
            self._engines.get(self._texts[task.name].digest)
            if self._base is None
            else self._base.engine
        )
        return engine.store.monitor if engine is not None else None

    def said(self, task: PlannedTask) -> str:
        """What became of embeddings of this task that were stored before; nothing where they are as they were."""
        watch = self.drift_monitor(task)
        return watch.message if watch is not None else ""

    @cached_property
    def _conditions(self) -> Origin:
        """The environment and code that a Result records."""
        encoder = self.encoder.encoder
        environment = read_environment(encoder)
        code = short_digest(environment["code"]) if "code" in environment else ""
        return Origin(
            environment="" if is_served(encoder) else short_digest(environment), code=code
        )

    def origin(self, task: PlannedTask) -> Origin | None:
        """Return what a Result of this task records of what made its embeddings; None if there is nothing to record."""
        watch, here = self.drift_monitor(task), self._conditions
        if self.encoder.fingerprint is None or here == Origin():
            return None
        stored = watch.origin() if watch is not None else Origin()
        return msgspec.structs.replace(stored, environment=here.environment, code=here.code)

    def is_current(self, result: Result, task: PlannedTask) -> bool | None:
        """Return whether a Result is of the embeddings that the encoder makes now, of which its fingerprint does not say all.

        Results of earlier versions, which do not record what made them, are believed unless embeddings were set aside.

        Returns:
            None if only embedding the sample sentences tells, and the embedder only looks.
        """
        origin, watch, encoder = (
            Origin.from_run(result.run),
            self.drift_monitor(task),
            self.encoder.encoder,
        )
        is_changed_by_own_code = base_encoder(encoder) is not encoder and not is_own_class(
            type(encoder)
        )
        if origin is not None and is_changed_by_own_code and origin.code != self._conditions.code:
            return False
        stored = watch.matches_stored(origin) if watch is not None else None
        if stored is not None or origin is None:
            return stored is not False
        if origin.environment == self._conditions.environment:
            return True
        if not origin.samples or self._only_look:
            return None if origin.samples else False
        if watch is None and self._base is None:
            watch = self._fitted_engine(task).store.monitor
        return watch is not None and watch.still_embeds(origin)

    def notes(self, task: PlannedTask) -> list[str]:
        """What a reader of the task's score should know of its embeddings."""
        if not self._texts:
            return read_notes(self.encoder.encoder)
        count, what = (
            len(self._texts[task.name].sentences),
            strip_folders(read_fit(self.encoder.encoder)),
        )
        return [f"fitted on {count} sentences ({what})", *read_notes(self._fit(task))]


def base_encoder(encoder: Encoder) -> Encoder:
    """The encoder whose embeddings are stored: of one that changes those of another, that other."""
    return encoder.base if isinstance(encoder, VariantEncoder | PostProcessor) else encoder


WITHOUT_ORIGIN = (
    "results of an earlier version do not record which code made them: they are believed this once and record it "
    "from now on; a fresh run scores them again"
)
EarlierResults = Mapping[tuple[PlannedTask, int], Result | None]
"""Results that a results folder holds, by task and seed; None if it holds none."""


def select_current(
    embedder: TaskEmbedder, earlier: EarlierResults, listener: RunCallbacks
) -> dict[tuple[PlannedTask, int], Result]:
    """Select the results that still count; those of an earlier version are believed, and record from now on what made them."""
    current: dict[tuple[PlannedTask, int], Result] = {}
    notices = dict[str, None]()
    for (task, seed), result in earlier.items():
        if result is None:
            continue
        if not embedder.is_current(result, task):
            # Where stored embeddings are set aside, that is said.
            if not embedder.said(task):
                notices[
                    f"'{result.encoder}' now embeds otherwise than for earlier results: they are scored again"
                ] = None
            continue
        current[task, seed] = result
        if "origin" not in result.run and (origin := embedder.origin(task)) is not None:
            notices[WITHOUT_ORIGIN] = None
            run = {**result.run, "origin": msgspec.to_builtins(origin)}
            current[task, seed] = msgspec.structs.replace(result, run=run)
    for notice in notices:
        listener.on_notice(notice)
    return current


def find_current_result(
    folder: Path, task: PlannedTask, embedder: TaskEmbedder, seed: int, listener: RunCallbacks
) -> Result | None:
    """The Result of a cell that a results folder holds, if it is of the same data, cards, encoder and embeddings.

    Whether it is believed is not yet looked at. The listener hears why one is refused: it is not as
    results must be.
    """
    encoder = embedder.named_encoder(task)
    if encoder.fingerprint is None:
        return None
    cell = cell_id(task.protocol, encoder.fingerprint, encoder.train_seed, seed)
    path = result_path(folder, encoder.name, task.name, task.split, cell)
    if not path.is_file():
        return None
    try:
        result = read_result(path)
    except DataError as error:
        listener.on_notice(f"scored again: {error}")
        return None
    same = (encoder.name, task.name, task.digest, task.task.card_digest, encoder.card_digest)
    held = (result.encoder, result.task, result.data, result.task_card, result.encoder_card)
    return result if held == same and embedder.is_current(result, task) is not False else None


def is_name_taken(folder: Path, name: str, named_encoder: NamedEncoder) -> bool:
    """Whether a results folder holds results of this name, and none of this encoder, nor of what lay in its place."""
    found = []
    for path in sorted(result_path(folder, name, "task", "split", "cell").parent.glob("*.json")):
        with suppress(StsbenchError):
            found.append(read_result(path))
    own = named_encoder.fingerprint and strip_texts(named_encoder.fingerprint)
    # Another version of a library makes no other encoder of it.
    return bool(found) and not any(
        one.state == own
        or is_same_encoder(one.state, own)
        or (
            named_encoder.folder_digest is not None
            and one.run.get("folder") == named_encoder.folder_digest
        )
        for one in found
        if one.encoder == name
    )


def score_tasks(
    embedder: TaskEmbedder, current_results: EarlierResults, *, callbacks: RunCallbacks
) -> Iterator[Result]:
    """Embed what all tasks need, then yield the Result of each task and seed that is ``current_results``, in their order.

    The listener hears of each task that cannot be scored. A Result that is there already is not made again, unless the
    encoder now embeds otherwise.
    """
    tasks = list(embedder.tasks)
    done = select_current(embedder, current_results, callbacks)
    todo = {task for task, seed in current_results if (task, seed) not in done}
    embedder.prepare([task for task in tasks if task in todo], tasks)
    for line in dict.fromkeys(filter(None, map(embedder.said, tasks))):
        callbacks.on_notice(line)
    for task, keys in groupby(
        (key for key in current_results if key[0] in tasks), key=itemgetter(0)
    ):
        embed, first = None, True
        for key in keys:
            if (result := done.get(key)) is None:
                callbacks.on_scoring(task.name)
                try:
                    embed = embed or embedder.embed_function(task)
                    result = _score(embedder, task, embed, key[1], first=first)
                    encode_result(result)
                except StsbenchError as error:
                    callbacks.on_failure(
                        f"{embedder.named_encoder(task).name} on {task.name}", error
                    )
                    continue
                # The next seed takes embeddings as they are.
                first = False
                callbacks.on_result(result)
            yield result


def _score(
    embedder: TaskEmbedder, task: PlannedTask, embed: Embed, seed: int, *, first: bool
) -> Result:
    started, encoder = time.perf_counter(), embedder.named_encoder(task)
    scores: Scores = task.evaluator(task.splits, embed, seed=seed)
    notes = [
        *encoder.assumptions,
        *scores.notes,
        *task.notes(),
        *encoder.notes(),
        *embedder.notes(task),
    ]
    # Also of an encoder of words under a variant.
    own = (
        encoder.encoder
        if find_variant(encoder.encoder) is None
        else find_base(encoder.encoder) or encoder.encoder
    )
    if isinstance(own, WordEncoder):
        texts = sorted(set(task.texts()))
        if count := len(sentences_without_known_words(own, texts)):
            notes.append(
                f"{count} of {len(texts)} distinct sentences have no word that the encoder knows"
            )
    return Result(
        encoder=encoder.name,
        task=task.name,
        split=task.split,
        score=scores.score,
        protocol=dict(task.protocol),
        scores=dict(scores.scores),
        per_subset={name: dict(values) for name, values in scores.per_subset.items()},
        interval=scores.interval,
        interval_method=scores.interval_method,
        n=scores.n,
        zero_vectors=scores.zero_vectors,
        overlap=encoder.overlap_with(task.name),
        train_seed=encoder.train_seed,
        eval_seed=seed,
        encoder_card=encoder.card_digest,
        fingerprint=encoder.fingerprint,
        revision=read_metadata(encoder.encoder).revision,
        task_card=task.task.card_digest,
        data=task.digest,
        items=digest_columns(scores.per_item),
        notes=notes,
        run=_run_facts(embedder, task, embed, time.perf_counter() - started, first=first),
        per_item=dict(scores.per_item),
    )


def _run_facts(
    embedder: TaskEmbedder, task: PlannedTask, embed: Embed, seconds: float, *, first: bool
) -> dict[str, Any]:
    encoder, card, texts = embedder.named_encoder(task), task.task.card, task.texts()
    runs, variant = read_metadata(encoder.encoder), find_variant(encoder.encoder)
    commit, dirty = provenance.commit()
    encoded = embedder.count_encoded(task) if first else 0
    source = task.task.loaded(next(iter(task.splits)))
    # Of a text which has been embedded.
    size = embed(texts[:1]).shape[1] if texts else None
    kept = EMBEDDING_TYPES[variant.embeddings if variant is not None else FLOAT_TYPE]
    facts = {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 3),
        "dimensions": size,
        "vector_bytes": None if size is None else kept.bytes(size),
        "encoded": encoded,
        "from_store": len(set(texts)) - encoded,
        "source": source.source,
        "data_revision": source.revision,
        "device": runs.device_used,
        "dtype": runs.dtype,
        "versions": provenance.versions(),
        "commit": commit,
        "dirty": dirty,
    }
    where_known = {
        # Which release of its data a task holds, and what replaces it, where its card says so.
        "task_version": card.version,
        "task_superseded_by": card.superseded_by,
        "tf32": uses_tf32(),
        "folder": encoder.folder_digest,
        "set_aside": embedder.said(task),
        "origin": msgspec.to_builtins(embedder.origin(task)),
    }
    return facts | {name: value for name, value in where_known.items() if value}


MAX_COMPARED = 20_000
"""So many of the tasks' sentences are compared."""


class EncoderMeasurement(NamedTuple):
    """What was measured: Results, embeddings (n, d) of the sentences asked for, and the type of their numbers."""

    results: Sequence[Result]
    embeddings: FloatArray
    embedding_type: str


def select_sentences(tasks: Sequence[PlannedTask]) -> list[str]:
    """The distinct sentences of all tasks, evenly spaced ones where there are more than ``MOST``."""
    texts = list(dict.fromkeys(text for task in tasks for text in task.texts()))
    at = np.unique(np.linspace(0, len(texts) - 1, min(MAX_COMPARED, len(texts))).astype(np.int64))
    return [texts[place] for place in at]


def measure_encoder(
    named_encoder: NamedEncoder,
    tasks: Sequence[PlannedTask],
    sentences: Sequence[str],
    plan: RunPlan,
    callbacks: RunCallbacks,
) -> EncoderMeasurement:
    """Score an encoder on at least one task that is read, and embed sentences, which may be others than the tasks'.

    Raises:
        StsbenchError: it cannot be scored, or its embeddings are not as they must be.
    """
    callbacks = callbacks.with_raised_failures()
    embedder = TaskEmbedder(named_encoder, tasks, plan, callbacks)
    results = list(
        score_tasks(embedder, dict.fromkeys((task, 0) for task in tasks), callbacks=callbacks)
    )
    # Each sentence as for the first task that holds it, the others as for the first task.
    of_task = {text: task for task in reversed(tasks) for text in task.texts()}
    rows: dict[str, FloatArray] = {}
    for task in tasks:
        if mine := [text for text in sentences if of_task.get(text, tasks[0]) is task]:
            rows.update(
                zip(
                    mine,
                    np.asarray(embedder.embed_function(task)(mine), dtype=np.float32),
                    strict=True,
                )
            )
    embeddings = np.array([rows[text] for text in sentences])
    check_embeddings(embeddings, sentences, named_encoder.name)
    variant = find_variant(named_encoder.encoder)
    return EncoderMeasurement(
        results, embeddings, FLOAT_TYPE if variant is None else variant.embeddings
    )


def compute_clean_score(
    result: Result,
    excluded_sentences: Sequence[str],
    evaluator: Evaluator,
    settings: CleanScoreSettings,
    text_digest: str,
) -> CleanScore:
    """The score over the items that hold none of these sentences, which are those of the training text ``settings`` for.

    The score of a probe is the share of right answers, where that of all items is a mean over folds. A mean over subsets
    is of those alone that keep ``FEW_PAIRS`` pairs: in the others nothing is left to correlate. ``text_digest`` is the hash of the
    training text.

    Raises:
        DataError: the per-item columns are missing or broken, or tell no sentences; the evaluator cannot score a part.
    """
    columns = read_item_columns(result)
    held = read_sentence_ids(columns)
    if held is None or not hasattr(evaluator, "recompute"):
        lacking = (
            f"its per-item columns lack {SENTENCE_COLUMNS[0]}"
            if "recall" not in columns
            else "the items are no sentences"
        )
        why = lacking if held is None else "its evaluator cannot make scores again from items"
        raise DataError(
            f"{result.encoder} on {result.task}: no part of the items has a score: {why}"
        )
    corpora = [str(strip_folders(name)) for name in settings.corpora]
    of_none = CleanScore(
        corpora=corpora,
        text=text_digest,
        near=settings.min_similarity,
        n=0,
        score=None,
        interval=None,
    )
    kept = np.array(
        [
            not any(item)
            for item in np.isin(held, sentence_columns(excluded_sentences)[SENTENCE_COLUMNS[0]])
        ]
    )
    if kept.all():
        return msgspec.structs.replace(
            of_none, n=result.n, score=result.score, interval=result.interval
        )
    left_out = list[str]()
    if AGGREGATIONS.get(str(result.protocol.get("aggregation"))) is not None:
        golds = {
            name: columns["gold"][at][kept[at]]
            for name, at in subset_indices(columns["subset"].tolist()).items()
        }
        left_out = [
            name
            for name, gold in golds.items()
            if len(gold) < MIN_SUBSET_PAIRS or np.ptp(gold) == 0
        ]
        kept &= ~np.isin(columns["subset"].astype(str), left_out)
    made = msgspec.structs.replace(of_none, n=int(kept.sum()), left_out=left_out)
    # Where nothing is left to correlate, there is no score.
    with suppress(DataError, EncoderError):
        if made.n >= MIN_ITEMS:
            found = evaluator.recompute({name: column[kept] for name, column in columns.items()})
            return msgspec.structs.replace(made, score=found.score, interval=found.interval)
    return made
