"""The embeddings that the tasks of a run are scored on: the texts to fit on, stores and engines."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec

from stsbench.bench.plan import RunPlan, Store
from stsbench.bench.progress import RunCallbacks
from stsbench.bench.protocols import PlannedTask
from stsbench.core import settings
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import EncoderError, SourceError, StsbenchError, UnknownName
from stsbench.core.files import strip_folders
from stsbench.core.provenance import add_texts, copy_factory, encoder_identity, is_own_class
from stsbench.core.wording import format_count, format_repr, format_some
from stsbench.data.corpora.corpus import TEXT_COLUMNS, load_corpus
from stsbench.data.corpora.overlap import letters_and_digits
from stsbench.data.task import Task, load_task
from stsbench.encoders.base import (
    Embed,
    Encoder,
    FittableEncoder,
    FixedTextsEncoder,
    PostProcessor,
    ServedEncoder,
)
from stsbench.encoders.engine.drift import DriftMonitor, Origin, read_environment, short_json_hash
from stsbench.encoders.engine.embed import Engine, StoredEncoder, transform_embeddings
from stsbench.encoders.engine.store import EmbeddingStore, StoredEmbeddings
from stsbench.encoders.fitted import (
    TARGET_TASK,
    FittedEncoder,
    PostProcessed,
    VariantEncoder,
    find_variant,
    name_of_fitting_texts,
    texts_sha256,
)
from stsbench.encoders.metadata import check_encoder, is_computed_on_this_machine, read_notes
from stsbench.encoders.named import NamedEncoder
from stsbench.encoders.pairs import PairScorer
from stsbench.encoders.similarity_file import SimilarityFile
from stsbench.results.record import Result


def open_store(
    store: Store,
    encoder: Encoder,
    texts_digest: str = "",
    *,
    read_only: bool = False,
    checked: bool = False,
) -> EmbeddingStore:
    """Open the store of an encoder's embeddings, after a check that the encoder has not changed.

    The store is a folder named by a hash of the encoder's identity: class, parameters, weights. If
    the encoder no longer computes what is stored there, the stored embeddings are archived.

    Args:
        store: The folder of all stores, ``default`` for that of the user's settings; None to store
            in memory only.
        encoder: The encoder. Its embeddings are in memory only if nothing identifies it, or if they
            are in a file already (a FixedTextsEncoder).
        texts_digest: The hash of the texts that the encoder is fitted on; empty if there are none.
        read_only: Neither write nor check the store.
        checked: Another process of this run has checked the store already.
    """
    identity = encoder_identity(encoder)
    if identity is None or isinstance(encoder, FixedTextsEncoder):
        # Without a folder, embeddings are stored in memory.
        return EmbeddingStore(folder=None)
    encoder_folder = None
    if store is not None:
        if texts_digest:
            identity = add_texts(identity, texts_digest)
        folder_name = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        root = settings.store_folder() if store == "default" else Path(store)
        encoder_folder = root / folder_name
    # The monitor checks; without a folder it keeps what it needs in memory. A server's embeddings
    # do not depend on this machine, and are paid for: they are never archived, so they have none.
    monitor = (
        DriftMonitor(encoder_folder, encoder) if is_computed_on_this_machine(encoder) else None
    )
    if monitor is not None and not read_only and not checked:
        monitor.check()
    return EmbeddingStore(encoder_folder, monitor, read_only=read_only)


UNGRADED_SUFFIX = "+ungraded"
"""Ends the name of texts that include the sentences of pairs without a gold score."""


def is_of_scored_task(texts_name: str) -> bool:
    """Return whether the texts to fit on are those of the task that is scored."""
    return texts_name.removesuffix(UNGRADED_SUFFIX).partition(".")[0] == TARGET_TASK


def read_texts_to_fit(
    texts_name: str, *, task: Task | None, catalogue: Catalogue, data: Path | None = None
) -> list[str]:
    """Read the texts that an encoder is fitted on before it embeds a task.

    A text that occurs twice is returned twice, as BERT-whitening and BERT-flow count texts.

    Args:
        texts_name: Which texts. ``target``: all sentences of the task that is scored.
            ``target.train``: one split of it. ``stsb.test``: a split of the task with this name.
            ``allnli``: all text columns of the corpus with this name. ``mine.txt``: a file. A task
            with ``+ungraded``: also its pairs without a gold score, as in ConSERT's training.
        task: The task that is scored; None if there is none.
        catalogue: Finds the cards that describe tasks and corpora.
        data: The local data folder.

    Raises:
        UnknownName: There is no such split, task, corpus or file; suggests the nearest.
        DataError: The data are not available, or cannot be read.
    """
    task_name, _, split = texts_name.removesuffix(UNGRADED_SUFFIX).partition(".")
    corpora = catalogue.corpora()
    task_names = catalogue.paths("tasks")
    # Any other name with a suffix, such as .txt, is that of a file.
    is_file = task_name not in (TARGET_TASK, *task_names) and bool(Path(texts_name).suffix)
    if texts_name in corpora or is_file:
        corpus = load_corpus(texts_name, data=data, catalogue=catalogue)
        # The texts of a row, such as a sentence and its translation, follow each other.
        columns = [
            corpus.table.column(column).to_pylist()
            for column in TEXT_COLUMNS
            if column in corpus.columns
        ]
        return [text for row in zip(*columns, strict=True) for text in row]
    if task_name != TARGET_TASK and task_name in task_names:
        task = load_task(task_name, data=data, catalogue=catalogue)
    elif task_name != TARGET_TASK or task is None:
        raise UnknownName(
            "text to fit on",
            texts_name,
            [TARGET_TASK, *corpora, *(f"{name}.test" for name in task_names)],
            hint="give target, a corpus, a task's split or a file",
        )
    return task.texts(
        [split] if split else None,
        with_ungraded=texts_name.endswith(UNGRADED_SUFFIX),
        repeated=True,
    )


class FittingTexts(NamedTuple):
    """The texts that an encoder is fitted on for one task."""

    sentences: Sequence[str]
    digest: str
    has_task_sentences: bool
    """Whether at least one of them is a sentence of the task."""


def load_fitting_texts(
    texts_name: str,
    tasks: Sequence[PlannedTask],
    plan: RunPlan,
    on_failure: Callable[[str, StsbenchError], None],
) -> dict[str, FittingTexts]:
    """Load the texts that an encoder is fitted on for each task.

    They are the same for all tasks unless they are sentences of the task itself.

    Args:
        texts_name: The texts, as :func:`read_texts_to_fit` describes.
        tasks: The tasks, whose data are read already.
        plan: The run.
        on_failure: Called if texts are not available, with the name of the task that they are for
            (empty if the texts are the same for all) and with the error.

    Returns:
        For the name of each task the texts, their hash, and whether sentences of the task are among
        them; tasks without texts are omitted.
    """
    differ_by_task = is_of_scored_task(texts_name)
    texts_by_task: dict[str, FittingTexts] = {}
    sentences: list[str] = []
    sentence_keys: set[bytes] = set()
    digest = ""
    for index, task in enumerate(tasks):
        # Texts that are the same for all tasks are read for the first one only.
        if differ_by_task or index == 0:
            try:
                sentences = read_texts_to_fit(
                    texts_name, task=task.task, catalogue=plan.catalogue, data=plan.data_folder
                )
            except StsbenchError as error:
                on_failure(task.name if differ_by_task else "", error)
                if differ_by_task:
                    continue
                return {}
            # Sentences that differ only in case, blanks and punctuation have the same key.
            sentence_keys = set(map(letters_and_digits, sentences))
            digest = texts_sha256(sentences)
        has_task_sentences = not sentence_keys.isdisjoint(map(letters_and_digits, task.texts()))
        texts_by_task[task.name] = FittingTexts(
            sentences=sentences, digest=digest, has_task_sentences=has_task_sentences
        )
    return texts_by_task


@dataclass(eq=False)
class SharedEngine:
    """The engine of a base encoder, for all encoders that change its embeddings."""

    engine: Engine
    read_only: bool
    """Whether it may only read the store."""
    counted_sentences: set[str] = field(default_factory=set)
    """The sentences that are counted for an earlier encoder, if embeddings are in memory only."""
    views: dict[tuple[str, ...], StoredEmbeddings] = field(default_factory=dict)
    """The embeddings of sentences, by these sentences."""

    def view(self, sentences: Sequence[str]) -> StoredEmbeddings:
        """Return the embeddings of sentences; their positions in the store are looked up once."""
        key = tuple(sentences)
        if key not in self.views:
            self.views[key] = self.engine(sentences)
        return self.views[key]


@dataclass
class SharedState:
    """The state that the encoders of a run share.

    Only the last engine and the last texts are stored: variants of an encoder follow each other,
    and two encoders may not fit in memory.
    """

    engine: SharedEngine | None = None
    counted_by_store: dict[Path, set[str]] = field(default_factory=dict)
    """The sentences that are counted for earlier encoders, by the folder of embeddings."""
    fitting_texts_key: Hashable = None
    """The name of the texts and the tasks that ``fitting_texts`` is for."""
    fitting_texts: Mapping[str, FittingTexts] = field(default_factory=dict)
    """The texts to fit on, by task."""


class MissingSentences(NamedTuple):
    """How many sentences of an encoder are to be embedded."""

    sentences: int | None
    """The number of distinct sentences; None if it is unknown before the encoder is fitted."""
    tokens: int | None
    """The number of tokens that a server would be sent; None if the encoder runs locally."""


class SharedEmbedding(NamedTuple):
    """The texts that several workers can embed together, and the engine that embeds them."""

    engine: Engine
    texts: list[str]


class TaskEmbedder:
    """Provides the embeddings that each task of a run is scored on.

    One engine embeds for all tasks. For a variant or a post-processor the engine embeds with the
    base encoder, and the embeddings are changed when they are used. Any other encoder that is
    fitted on texts has an engine and a store for each state of it.
    """

    tasks: Sequence[PlannedTask]
    """The tasks that can be embedded: all those whose texts to fit on are available."""

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
        """Prepare to embed the sentences of tasks with an encoder; nothing is embedded yet.

        The texts that the encoder is fitted on, if it is, are read, and the store of embeddings is
        opened. ``self.tasks`` are the tasks that the encoder can be scored on. The base of an
        encoder that changes another one's embeddings is that other one.

        Args:
            encoder: The encoder under its name in results.
            tasks: The tasks, whose data are read already.
            plan: The run.
            callbacks: Called for each task that is omitted because its texts to fit on are not
                available, and with the progress of embedding.
            shared_state: What encoders of one run share: the last engine and texts to fit on.
            read_only: Only count missing sentences, and neither change the store nor embed.
        """
        self._shared_state = shared_state = shared_state or SharedState()
        self.encoder = encoder
        self._plan = plan
        self._callbacks = callbacks
        self._read_only = read_only
        self.tasks = tasks = self._select_suitable(tasks)
        self._texts_by_task: Mapping[str, FittingTexts] = {}
        """The texts to fit on, by the task's name; empty if the encoder is not fitted on texts."""
        self._fitted_by_digest: dict[str, Encoder] = {}
        """The fitted encoders, by the digest of the texts that each was fitted on."""
        self._engines_by_digest: dict[str, Engine] = {}
        """The engines of those fitted encoders that have a store of their own, by this digest."""
        self._base_engine: SharedEngine | None = None
        """The engine (it embeds and stores) for all tasks; None if each fitted encoder has one."""
        base = base_encoder(encoder.encoder)
        has_base = base is not encoder.encoder
        # A file of similarities may lack sentences: its rows are then the pairs of the only task.
        # With several tasks that is an error.
        if isinstance(base, SimilarityFile):
            base.align({task.name: self.planned_task(task).texts() for task in tasks})
        if isinstance(encoder.encoder, FittableEncoder):
            self._texts_by_task = self._load_fitting_texts(encoder.encoder, shared_state)
            self.tasks = [task for task in tasks if task.name in self._texts_by_task]
            # Nothing can be embedded before it is fitted: then each fitted encoder gets an engine.
            if not has_base:
                shared_state.engine = None
                return
        # Only variants and post-processors can use the engine of an earlier encoder's base.
        self._base_engine = self._open_base_engine(
            base, shared_state=shared_state if has_base else None
        )
        # What it has embedded for an earlier encoder counts as found in the store.
        self._base_engine.engine.encoded_keys.clear()
        shared_state.engine = self._base_engine if has_base else None

    def planned_task(self, task: PlannedTask) -> PlannedTask:
        """Return a task as the encoder is scored on it: by its pairs if it is a pair scorer."""
        is_pair_scorer = isinstance(self.encoder.encoder, PairScorer)
        return (task.for_pair_scorer if is_pair_scorer else None) or task

    def _select_suitable(self, tasks: Sequence[PlannedTask]) -> list[PlannedTask]:
        """Return the tasks that the encoder can be scored on; the others are reported.

        An encoder that scores pairs itself can only be scored on tasks that need no embeddings. If
        the user requested all available tasks, the others are a notice, otherwise a failure.

        Args:
            tasks: The tasks of the run.

        Raises:
            EncoderError: There are tasks, but none of them is suitable.
        """
        if not isinstance(self.encoder.encoder, PairScorer):
            return list(tasks)
        # It is None for a task that needs embeddings, or whose similarity the user has changed.
        suitable_tasks = [task for task in tasks if task.for_pair_scorer is not None]
        unsuitable = [task.name for task in tasks if task.for_pair_scorer is None]
        if unsuitable and suitable_tasks and self._plan.has_available_tasks:
            count = format_count(len(unsuitable), "task")
            self._callbacks.on_notice(f"{self.encoder.name}: {count} left out: embeddings needed")
        elif unsuitable:
            error = EncoderError(
                f"'{self.encoder.name}' scores pairs and has no embeddings, which are needed for "
                f"{format_some(unsuitable)}"
            )
            if not suitable_tasks:
                raise error
            self._callbacks.on_failure(self.encoder.name, error)
        return suitable_tasks

    def _load_fitting_texts(
        self, encoder: FittableEncoder, shared_state: SharedState
    ) -> Mapping[str, FittingTexts]:
        """Return the texts to fit the encoder on, by the name of the task.

        They are not read again if the last encoder of the run was fitted on the same texts.

        Args:
            encoder: The encoder, which names the texts.
            shared_state: Holds the texts that the last encoder was fitted on; it is updated.
        """
        texts_name = name_of_fitting_texts(encoder)
        texts_key = (texts_name, *self.tasks)

        def report(task: str, error: StsbenchError) -> None:
            """Report that texts are not available; say for a variant what they are needed for."""
            if find_variant(encoder) is not None and isinstance(error, SourceError):
                error = SourceError(
                    f"int8 and uint8 take their ranges from '{texts_name}': {error.reason}",
                    hint="give these data, `data=DIR`, or take others: for all encoders by "
                    f"`params=calibration=target`, for one by its name, "
                    f"{self.encoder.name}+calibration=target",
                )
            on_task = f" on {task}" if task else ""
            self._callbacks.on_failure(f"{self.encoder.name}{on_task}", error)

        # Texts that were not available are missing for this encoder too, which is to be reported.
        if not shared_state.fitting_texts or shared_state.fitting_texts_key != texts_key:
            shared_state.fitting_texts = load_fitting_texts(
                texts_name, self.tasks, self._plan, report
            )
            shared_state.fitting_texts_key = texts_key
        return shared_state.fitting_texts

    def _open_base_engine(self, base: Encoder, shared_state: SharedState | None) -> SharedEngine:
        """Return the engine that embeds with a base encoder and stores the embeddings.

        The base is the encoder itself, or the one whose embeddings it changes. Encoders with the
        same base share one engine.

        Args:
            base: The encoder whose embeddings are stored.
            shared_state: Has the engine of the last encoder of the run, and is not changed here;
                None if this encoder is its own base, so that no other one can use its engine.
        """
        last_engine = shared_state.engine if shared_state is not None else None
        if last_engine is not None:
            has_same_encoder = last_engine.engine.encoder is base
            if has_same_encoder and last_engine.read_only == self._read_only:
                return last_engine
        store = open_store(self._plan.store, base, read_only=self._read_only)
        return SharedEngine(self._make_engine(base, store), self._read_only)

    def _make_engine(self, encoder: Encoder, store: EmbeddingStore) -> Engine:
        """Return an engine, which embeds with an encoder and stores the embeddings.

        Its progress and notices go to the run's callbacks.
        """
        return Engine(
            encoder,
            store,
            # The base of a variant has a name of its own.
            name=self.encoder.name if encoder is self.encoder.encoder else "",
            on_progress=self._callbacks.on_embedding,
            on_notice=self._callbacks.on_notice,
        )

    @property
    def _plannable_engine(self) -> SharedEngine | None:
        """The engine for all tasks, if the texts to embed are known before an encoder is fitted.

        They are known for an encoder that is not fitted, and for the package's own post-processors.
        None for any other encoder, and if there is no engine for all tasks.
        """
        encoder = self.encoder.encoder
        # PostProcessed is fitted on stored embeddings of the base, so it embeds only known texts.
        # A user's own class may embed any texts with its base while it is fitted.
        if isinstance(encoder, FittableEncoder) and not isinstance(encoder, PostProcessed):
            return None
        return self._base_engine

    def named_encoder(self, task: PlannedTask) -> NamedEncoder:
        """Return the encoder under its name, as results of a task record it.

        If it is fitted on texts, the hash of the texts is added, and whether sentences of the task
        are among them; otherwise it is unchanged. It is not fitted here.
        """
        texts = self._texts_by_task.get(task.name)
        if texts is None:
            return self.encoder
        return replace(
            self.encoder, texts_digest=texts.digest, fitted_on_task=texts.has_task_sentences
        )

    def count_missing(self, tasks: Sequence[PlannedTask]) -> MissingSentences:
        """Count the distinct sentences of tasks that have no stored embeddings.

        Sentences that were counted for an earlier encoder of the run with the same base (the
        encoder that embeds for both) are not counted again: they will be stored by then.

        Args:
            tasks: The tasks that are to be scored.

        Returns:
            The number of sentences; None if it is unknown before the encoder is fitted. And the
            number of tokens that a server would be sent; None if the encoder runs locally.
        """
        shared = self._plannable_engine
        if shared is None:
            # Without tasks an encoder with a store of its own is not even fitted, so the number is
            # known to be 0.
            is_never_fitted = self._base_engine is None and not tasks
            return MissingSentences(0 if is_never_fitted else None, tokens=None)
        store_folder = shared.engine.store.folder
        counted = shared.counted_sentences
        if store_folder is not None:
            counted = self._shared_state.counted_by_store.setdefault(store_folder, set())
        uncounted = set(self._required_texts(tasks)) - counted
        counted.update(uncounted)
        encoder = shared.engine.encoder
        missing_texts = shared.engine.missing_texts(list(uncounted))
        tokens = None
        if isinstance(encoder, ServedEncoder):
            tokens = encoder.count_tokens(missing_texts)
        return MissingSentences(len(missing_texts), tokens)

    def plan_shared_embedding(self, tasks: Sequence[PlannedTask]) -> SharedEmbedding | None:
        """Plan how several workers divide the sentences of tasks among them.

        Args:
            tasks: The tasks that are to be scored.

        Returns:
            The engine that knows what is stored, and all texts to embed. None if workers cannot
            divide them: if embeddings are in memory only, if the texts are unknown before the
            encoder is fitted, or if a server embeds, which has limits of its own.
        """
        # The engine for all tasks, with its encoder and its store; None if each task has its own,
        # because the texts are unknown. A store without a folder is in memory.
        shared = self._plannable_engine
        if shared is None or shared.engine.store.folder is None:
            return None
        if isinstance(shared.engine.encoder, ServedEncoder):
            return None
        return SharedEmbedding(shared.engine, self._required_texts(tasks))

    def prepare(self, tasks_to_score: Sequence[PlannedTask], tasks: Sequence[PlannedTask]) -> None:
        """Embed those sentences of tasks that have no stored embeddings, and store them.

        Sentences that the encoder is fitted on are embedded too.

        Args:
            tasks_to_score: The tasks whose sentences are embedded.
            tasks: All tasks of the run, including those that already have results.
        """
        if self._base_engine is None:
            for task in tasks_to_score:
                self._fitted_engine(task).prepare(task.texts())
            return
        engine = self._base_engine.engine
        # Embeddings on disk outlast a stop. Those in memory are lost: if its batches are planned
        # among the sentences of all tasks, a resumed run has the same batches as one not stopped.
        is_in_memory = engine.store.folder is None
        texts_of_all_tasks = self._embeddable_texts(tasks) if is_in_memory else ()
        engine.prepare(self._embeddable_texts(tasks_to_score), among=texts_of_all_tasks)
        variant = find_variant(self.encoder.encoder)
        # ``width`` is the number of dimensions of the stored embeddings; None if none are stored.
        if variant is not None and engine.store.width is not None:
            # A variant with more dimensions than its base has raises its error here, once, rather
            # than for each task.
            variant.check_size(engine.store.width)

    def _embeddable_texts(self, tasks: Sequence[PlannedTask]) -> list[str]:
        """Return the sentences of tasks that the encoder can embed, with those that fitting needs.

        An encoder that reads embeddings from a file (FixedTextsEncoder) may lack the sentences of
        some tasks; these tasks fail when they are scored.
        """
        texts = self._required_texts(tasks)
        encoder = base_encoder(self.encoder.encoder)
        if not isinstance(encoder, FixedTextsEncoder):
            return texts
        missing_texts = set(encoder.missing_texts(texts))
        return [text for text in texts if text not in missing_texts]

    def _required_texts(self, tasks: Sequence[PlannedTask]) -> list[str]:
        """Return the sentences of tasks, and those that must be embedded to fit the encoder.

        An encoder that is fitted on texts is fitted for each task here. A post-processor (a
        FittedEncoder) names sentences that its base must embed for that.
        """
        texts = [text for task in tasks for text in self.planned_task(task).texts()]
        if not self._texts_by_task:
            return texts
        # One encoder for tasks with the same texts to fit on.
        fitted_by_digest = {
            self._texts_by_task[task.name].digest: self._fit(task) for task in tasks
        }
        for fitted in fitted_by_digest.values():
            if isinstance(fitted, FittedEncoder):
                texts += fitted.texts_to_embed()
        return texts

    def _fit(self, task: PlannedTask) -> Encoder:
        """Return the encoder fitted on the texts for a task.

        A post-processor, which changes the embeddings of its base encoder, is fitted on stored
        embeddings of the base. Any other encoder is fitted on the texts themselves. It is fitted
        once for all tasks with the same texts, which ``digest``, a hash, identifies.

        Args:
            task: The task, which has texts to fit on.

        Raises:
            EncoderError: A method of a user's class returns no encoder.
        """
        texts = self._texts_by_task[task.name]
        if texts.digest not in self._fitted_by_digest:
            fittable = self.encoder.encoder
            if self._base_engine is not None:
                # The same post-processor, with a base that reads embeddings from the store.
                stored_base = StoredEncoder(self._base_engine.engine)
                fittable = fittable.over(stored_base)  # type: ignore[attr-defined]
            if not isinstance(fittable, FittableEncoder):
                raise EncoderError(
                    "what a post-processor's over(base) returned has no fit_texts; "
                    f"it is {format_repr(fittable)}"
                )
            fitted = fittable.fit_texts(texts.sentences)
            label = f"what fit_texts of {type(fittable).__name__} returned"
            self._fitted_by_digest[texts.digest] = check_encoder(fitted, label)
        return self._fitted_by_digest[texts.digest]

    def _fitted_engine(self, task: PlannedTask) -> Engine:
        """Return the engine that embeds with the encoder fitted for a task.

        Each fitted encoder has an engine and a store of embeddings of its own. Tasks with the same
        texts to fit on, which ``digest``, a hash, identifies, share them.

        Args:
            task: The task, which has texts to fit on.
        """
        digest = self._texts_by_task[task.name].digest
        if digest not in self._engines_by_digest:
            fitted = self._fit(task)
            # The store is named by the encoder's identity, of which the factory is a part: how the
            # encoder was made. A fitted encoder gets that of the unfitted one.
            copy_factory(fitted, self.encoder.encoder)
            store = open_store(self._plan.store, fitted, digest)
            self._engines_by_digest[digest] = self._make_engine(fitted, store)
        return self._engines_by_digest[digest]

    def embed_function(self, task: PlannedTask) -> Embed:
        """Return the function that embeds the sentences of a task.

        An encoder that is fitted on texts is fitted for the task first.

        - An encoder without a base that is fitted: the engine of the fitted encoder, which has a
          store of its own.
        - A variant, which shortens embeddings, and a variant of a post-processor: a function that
          changes the stored embeddings of the base encoder.
        - An encoder that is not fitted: the engine, which embeds and stores.
        - A post-processor: an engine whose embeddings are not stored.

        Args:
            task: One of the tasks of this embedder.
        """
        encoder = self.encoder.encoder
        base = base_encoder(encoder)
        # An encoder that reads embeddings from a file raises an error if the file lacks sentences.
        if isinstance(base, FixedTextsEncoder):
            base.require_texts(self.planned_task(task).texts())
        # None: each fitted encoder has an engine of its own.
        if self._base_engine is None:
            return self._fitted_engine(task)
        # ``view`` is a function from sentences to the base's stored embeddings of them.
        if isinstance(encoder, VariantEncoder):
            return transform_embeddings(self._base_engine.view, encoder.transform)
        if not self._texts_by_task:
            return self._base_engine.engine
        # Embeddings of a post-processor are not stored: they are computed in seconds from the
        # stored embeddings of its base.
        fitted = self._fit(task)
        if isinstance(fitted, FittedEncoder) and find_variant(encoder) is not None:
            return transform_embeddings(self._base_engine.view, fitted.transform)
        return Engine(fitted, EmbeddingStore(folder=None))

    def count_encoded(self, task: PlannedTask) -> int:
        """Count the distinct sentences of a task that were embedded, not found in the store."""
        if self._base_engine is None:
            return self._fitted_engine(task).count_encoded(task.texts())
        return self._base_engine.engine.count_encoded(self.planned_task(task).texts())

    def milliseconds_per_sentence(self) -> float | None:
        """Return how long a sentence took to embed, in batches; None if that was not measured.

        The first batch of a request is not measured, because it loads the model; nor are stored
        embeddings, or encoders that have no engine before they are fitted. Embeddings that were
        read from a file have no time: what computed them is not known.
        """
        engine = self._base_engine.engine if self._base_engine is not None else None
        if engine is None or not engine.timed_texts:
            return None
        if isinstance(base_encoder(self.encoder.encoder), FixedTextsEncoder):
            return None
        return round(1000 * engine.timed_seconds / engine.timed_texts, 3)

    def drift_monitor(self, task: PlannedTask) -> DriftMonitor | None:
        """Return the monitor of a task's stored embeddings; None if there is none."""
        if self._base_engine is not None:
            return self._base_engine.engine.store.monitor
        engine = self._engines_by_digest.get(self._texts_by_task[task.name].digest)
        return engine.store.monitor if engine is not None else None

    def drift_message(self, task: PlannedTask) -> str:
        """Return the message on a task's archived embeddings; empty if they are still valid."""
        monitor = self.drift_monitor(task)
        return monitor.message if monitor is not None else ""

    @cached_property
    def _current_origin(self) -> Origin:
        """The hashes that a new Result records: of the environment and of the user's code.

        The hash of the environment (versions and device) is empty if a server embeds. The hash of
        the code is empty if the encoder is not of a class of the user's own.
        """
        encoder = self.encoder.encoder
        # It has the key "code" only if the class of the encoder, or of its base, is a user's own.
        environment = read_environment(encoder)
        code = short_json_hash(environment["code"]) if "code" in environment else ""
        environment_digest = (
            short_json_hash(environment) if is_computed_on_this_machine(encoder) else ""
        )
        return Origin(environment=environment_digest, code=code)

    def origin(self, task: PlannedTask) -> Origin | None:
        """Return the origin of a task's embeddings, which a Result records to be checked later.

        Args:
            task: The task.

        Returns:
            The hashes of the code and of the environment that embeds now, and a sketch of the
            stored embeddings of some fixed sentences. None if the encoder has no fingerprint, or if
            there is nothing to record.
        """
        monitor = self.drift_monitor(task)
        current = self._current_origin
        is_empty = current == Origin()
        if self.encoder.fingerprint is None or is_empty:
            return None
        # An empty Origin has no generation and no sketch.
        stored = monitor.origin() if monitor is not None else Origin()
        return msgspec.structs.replace(stored, environment=current.environment, code=current.code)

    def is_current(self, result: Result, task: PlannedTask) -> bool | None:
        """Return whether a Result was computed from the embeddings that the encoder gives now.

        The fingerprint, a hash that identifies the encoder, does not cover everything that
        embeddings depend on. So their recorded origin is compared too: the hashes of environment
        and user's code, and a sketch of the embeddings of fixed "probe" sentences. Results of
        earlier versions, which record no origin, count as current unless stored embeddings were
        archived.

        Args:
            result: A Result of the task with the encoder's fingerprint.
            task: The task.

        Returns:
            None if the probe sentences would have to be embedded to know it, but the embedder is
            read-only, so that it must not embed.
        """
        origin = Origin.from_run(result.run)
        # It compares with the probe sentences' stored embeddings; None if they are not monitored.
        monitor = self.drift_monitor(task)
        encoder = self.encoder.encoder
        # If a user's class changes the embeddings of a base encoder, the base's stored embeddings
        # do not show a change of that class.
        has_base = base_encoder(encoder) is not encoder
        is_changed_by_user_code = has_base and not is_own_class(type(encoder))
        if origin is not None and is_changed_by_user_code:
            if origin.code != self._current_origin.code:
                return False
        # None if unknown: nothing is stored, or it is not compared yet on this machine with these
        # versions. Without an origin: False if stored embeddings were archived, else None.
        matches_stored = monitor.matches_stored(origin) if monitor is not None else None
        if matches_stored is not None:
            return matches_stored
        if origin is None:
            return True
        # Nothing is stored, but the same code on the same machine embeds as it did.
        if origin.environment == self._current_origin.environment:
            return True
        # No embeddings of probe sentences were recorded with which new ones could be compared.
        if not origin.probe_sketch:
            return False
        if self._read_only:
            return None
        # The encoder is not fitted yet, so that its engine, with the monitor, is made here.
        if monitor is None and self._base_engine is None:
            monitor = self._fitted_engine(task).store.monitor
        # This embeds the probe sentences, and compares them with the sketch.
        return monitor is not None and monitor.still_embeds(origin)

    def notes(self, task: PlannedTask) -> list[str]:
        """Return the notes on a task's embeddings for a reader of the score, one sentence each.

        For an encoder that is fitted on texts, the first note has the number and the name of these.
        """
        if not self._texts_by_task:
            return read_notes(self.encoder.encoder)
        n_sentences = len(self._texts_by_task[task.name].sentences)
        texts_name = strip_folders(name_of_fitting_texts(self.encoder.encoder))
        fitted_note = f"fitted on {n_sentences} sentences ({texts_name})"
        return [fitted_note, *read_notes(self._fit(task))]


def base_encoder(encoder: Encoder) -> Encoder:
    """Return the encoder whose embeddings are stored: the base of a variant or post-processor."""
    return encoder.base if isinstance(encoder, VariantEncoder | PostProcessor) else encoder
