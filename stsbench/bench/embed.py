"""Which embeddings each task is scored on: one encoder's for all tasks, or those of one fitted for each; and where they lie."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from stsbench.bench.listener import Listener
from stsbench.bench.plan import RunPlan, ScoredTask, Store
from stsbench.core import settings
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import EncoderError, StsbenchError, UnknownName, shown
from stsbench.core.files import without_folders
from stsbench.core.provenance import fitted_on, identity, inherit_maker
from stsbench.data.corpora.load import TEXT_COLUMNS, load_corpus
from stsbench.data.corpora.overlap import text_key
from stsbench.data.task import Task, load_task
from stsbench.encoders.base import (
    Embed,
    Encoder,
    KnownEncoder,
    PostProcessor,
    ServedEncoder,
    TextFitted,
    check_encoder,
    notes_of,
)
from stsbench.encoders.engine.embed import Engine, StoredEncoder, transformed
from stsbench.encoders.engine.store import Shelf, StoredEmbeddings, Watch
from stsbench.encoders.fitted import (
    TARGET,
    FittedEncoder,
    PostProcessed,
    VariantEncoder,
    fit_of,
    texts_digest,
    variant_of,
)


def open_shelf(
    store: Store, encoder: Encoder, texts: str = "", *, only_look: bool = False, checked: bool = False
) -> Shelf:
    """The encoder's shelf in the store, by the hash of the texts it is fitted on too; in memory where nothing may be kept.

    With ``checked`` another process of this run has seen that the encoder still embeds as it did.
    """
    identified = identity(encoder)
    if store is None or identified is None:
        return Shelf(None)
    identified = fitted_on(identified, texts) if texts else identified
    folder = settings.store_folder() if store == "default" else Path(store)
    mine = folder / hashlib.sha256(identified.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    if isinstance(encoder, ServedEncoder):
        # Nothing here computes: what is paid for stays, whatever machine it is read on.
        return Shelf(mine, only_look=only_look)
    watch = Watch(mine, encoder)
    if not only_look and not checked:
        watch.check()
    return Shelf(watch.folder, watch, only_look=only_look)


UNGRADED = "+ungraded"


def needs_task(fit: str) -> bool:
    """Whether the texts are those of the task that is scored."""
    return fit.removesuffix(UNGRADED).partition(".")[0] == TARGET


def texts_to_fit(fit: str, *, task: Task | None, catalogue: Catalogue, data: Path | None = None) -> list[str]:
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
    if fit in corpora or (name not in (TARGET, *catalogue.paths("tasks")) and Path(fit).suffix):
        corpus = load_corpus(fit, data=data, catalogue=catalogue)
        columns = [corpus.table.column(one).to_pylist() for one in TEXT_COLUMNS if one in corpus.columns]
        return [text for row in zip(*columns, strict=True) for text in row]
    if name != TARGET and name in catalogue.paths("tasks"):
        task = load_task(name, data=data, catalogue=catalogue)
    elif name != TARGET or task is None:
        known = [TARGET, *corpora, *(f"{one}.test" for one in catalogue.paths("tasks"))]
        raise UnknownName("text to fit on", fit, known, hint="give target, a corpus, a task's split or a file")
    return task.texts([split] if split else None, with_ungraded=fit.endswith(UNGRADED), repeated=True)


class FitTexts(NamedTuple):
    """What an encoder is fitted on for one task."""

    sentences: Sequence[str]
    digest: str
    saw_task: bool


def texts_of_tasks(
    fit: str, tasks: Sequence[ScoredTask], plan: RunPlan, failed: Callable[[str, StsbenchError], None]
) -> dict[str, FitTexts]:
    """The texts to fit on by task; read once where they are the same for all."""
    found: dict[str, FitTexts] = {}
    shared, keys, digest = list[str](), set[bytes](), ""
    for task in tasks:
        if needs_task(fit) or not shared:
            try:
                shared = texts_to_fit(fit, task=task.task, catalogue=plan.catalogue, data=plan.data_folder)
            except StsbenchError as error:
                if not needs_task(fit):
                    failed(", ".join(one.name for one in tasks), error)
                    return {}
                failed(task.name, error)
                continue
            keys, digest = set(map(text_key, shared)), texts_digest(shared)
        found[task.name] = FitTexts(shared, digest, not keys.isdisjoint(map(text_key, task.texts())))
    return found


@dataclass(eq=False)
class BaseEngine:
    """The engine of one base, for all encoders that are made of its embeddings."""

    engine: Engine
    only_look: bool
    """Whether it may only look into the store."""
    counted: set[str] = field(default_factory=set)
    prepared: set[str] = field(default_factory=set)
    """What an encoder before has counted, and asked to embed."""
    views: dict[tuple[str, ...], StoredEmbeddings] = field(default_factory=dict)

    def view(self, sentences: Sequence[str]) -> StoredEmbeddings:
        """Return the embeddings of these sentences; where they lie is looked up once."""
        key = tuple(sentences)
        if key not in self.views:
            self.views[key] = self.engine(sentences)
        return self.views[key]


@dataclass
class Shared:
    """What the encoders of a run share, the last of each: variants of one encoder follow each other, and two may not fit in memory."""

    base: BaseEngine | None = None
    texts: tuple[Hashable, Mapping[str, FitTexts]] = (None, {})


def _new(sentences: Sequence[str], before: set[str]) -> list[str]:
    found = [one for one in dict.fromkeys(sentences) if one not in before]
    before.update(found)
    return found


class Embedder:
    """Gives each task of a run the embeddings that its score is made of.

    One engine embeds for all tasks; of a variant or a post-processor it embeds for the base, and embeddings are changed when
    they are asked for. Any other encoder that is fitted on texts has an engine and a shelf for each state of it.
    """

    tasks: Sequence[ScoredTask]
    """The tasks that it can embed: all whose texts to fit on could be had."""

    def __init__(
        self,
        encoder: KnownEncoder,
        tasks: Sequence[ScoredTask],
        plan: RunPlan,
        listener: Listener,
        *,
        shared: Shared | None = None,
        only_look: bool = False,
    ) -> None:
        """Read texts to fit on and open the store; nothing is embedded yet.

        The listener hears of each task whose texts to fit on cannot be had, and which is then left out. With ``only_look``
        the store is left as it is: such an embedder tells what is missing, and must not embed.
        """
        made, shared = encoder.encoder, shared or Shared()
        self.encoder, self.tasks, self._plan, self._listener = encoder, tasks, plan, listener
        self._texts: Mapping[str, FitTexts] = {}
        self._fits, self._engines = dict[str, Encoder](), dict[str, Engine]()
        self._base: BaseEngine | None = None
        base = what_embeds(made)
        if isinstance(made, TextFitted):
            key = (fit_of(made), *tasks)
            if shared.texts[0] != key:
                shared.texts = key, texts_of_tasks(fit_of(made), tasks, plan, listener.failed)
            self._texts = shared.texts[1]
            self.tasks = [task for task in tasks if task.name in self._texts]
            if base is made:
                return
        held = shared.base if base is not made else None
        if held is None or held.engine.encoder is not base or held.only_look != only_look:
            held = BaseEngine(self._engine_of(base, open_shelf(plan.store, base, only_look=only_look)), only_look)
        # What it has embedded for the encoder before, this one finds.
        held.engine.encoded.clear()
        self._base, shared.base = held, held if base is not made else None

    def _engine_of(self, encoder: Encoder, shelf: Shelf) -> Engine:
        return Engine(encoder, shelf, progress=self._listener.encoding, noticed=self._listener.noticed)

    @property
    def _late(self) -> bool:
        """Whether only fitting tells what is embedded: a post-processor of a user's own may embed when it is fitted."""
        made = self.encoder.encoder
        return isinstance(made, TextFitted) and not isinstance(made, PostProcessed)

    def known(self, task: ScoredTask) -> KnownEncoder:
        """The encoder as the Result of this task names it."""
        texts = self._texts.get(task.name)
        return self.encoder if texts is None else replace(self.encoder, fitted_on=texts.digest, saw_task=texts.saw_task)

    def missing(self, todo: Sequence[ScoredTask]) -> tuple[int | None, int | None]:
        """How many distinct sentences :meth:`prepare` would embed, None where only fitting tells; and of a server the tokens."""
        if self._base is None or self._late:
            return (0 if self._base is None and not todo else None), None
        engine = self._base.engine
        texts = engine.missing(_new(self._needed(todo), self._base.counted))
        return len(texts), engine.encoder.count_tokens(texts) if isinstance(engine.encoder, ServedEncoder) else None

    def divisible(self, todo: Sequence[ScoredTask]) -> tuple[Engine, list[str]] | None:
        """What several workers can embed together: by which engine, and which texts.

        None of what is kept in memory alone or made task by task, and of a server, which has limits of its own.
        """
        if self._base is None or self._late:
            return None
        engine = self._base.engine
        alone = engine.shelf.folder is None or isinstance(engine.encoder, ServedEncoder)
        return None if alone else (engine, self._needed(todo))

    def prepare(self, todo: Sequence[ScoredTask], tasks: Sequence[ScoredTask]) -> None:
        """Embed what the tasks to do need, in one go; ``tasks`` are all tasks, done ones among them."""
        if self._base is None:
            for task in todo:
                self._fitted_engine(task).prepare(task.texts())
            return
        base, needed = self._base.engine, self._needed(todo)
        if _new(needed, self._base.prepared):
            # Kept in memory alone, embeddings are lost with a stopped run: its batches are planned again as they were.
            lost = base.shelf.folder is None
            base.prepare(needed, among=self._needed(tasks) if lost else ())
        variant = variant_of(self.encoder.encoder)
        if variant is not None and base.shelf.width is not None:
            # More dimensions than the base has are refused once, rather than task by task.
            variant.check_size(base.shelf.width)

    def _needed(self, tasks: Sequence[ScoredTask]) -> list[str]:
        fits = {self._texts[task.name].digest: self._fit(task) for task in tasks} if self._texts else {}
        own = [text for fit in fits.values() if isinstance(fit, FittedEncoder) for text in fit.texts_to_embed()]
        return [*(text for task in tasks for text in task.texts()), *own]

    def _fit(self, task: ScoredTask) -> Encoder:
        """What is fitted for a task: over the stored embeddings of its base, where it has one."""
        texts, made = self._texts[task.name], self.encoder.encoder
        if texts.digest not in self._fits:
            maker = made if self._base is None else made.over(StoredEncoder(self._base.engine))  # type: ignore[attr-defined]
            if not isinstance(maker, TextFitted):
                raise EncoderError(
                    f"what a post-processor's over(base) returned has no fit_texts; it is {shown(maker)}"
                )
            what = f"what fit_texts of {type(maker).__name__} returned"
            self._fits[texts.digest] = check_encoder(maker.fit_texts(texts.sentences), what)
        return self._fits[texts.digest]

    def _fitted_engine(self, task: ScoredTask) -> Engine:
        digest = self._texts[task.name].digest
        if digest not in self._engines:
            fitted = self._fit(task)
            inherit_maker(fitted, self.encoder.encoder)
            self._engines[digest] = self._engine_of(fitted, open_shelf(self._plan.store, fitted, digest))
        return self._engines[digest]

    def engine(self, task: ScoredTask) -> Embed:
        """What embeds this task's sentences."""
        made = self.encoder.encoder
        if self._base is None:
            return self._fitted_engine(task)
        if isinstance(made, VariantEncoder):
            return transformed(self._base.view, made.transform)
        if not self._texts:
            return self._base.engine
        # Made again in seconds from what the store holds: not stored itself.
        fit = self._fit(task)
        if isinstance(fit, FittedEncoder) and variant_of(made) is not None:
            return transformed(self._base.view, fit.transform)
        return Engine(fit, Shelf(None))

    def encoded(self, task: ScoredTask) -> int:
        """How many distinct sentences of the task this embedder embedded itself, and did not find in the store."""
        engine = self._fitted_engine(task) if self._base is None else self._base.engine
        return engine.encoded_among(task.texts())

    def watch(self, task: ScoredTask) -> Watch | None:
        """Who watches over the stored embeddings of this task, where some are stored."""
        engine = self._engines.get(self._texts[task.name].digest) if self._base is None else self._base.engine
        return engine.shelf.watch if engine is not None else None

    def notes(self, task: ScoredTask) -> list[str]:
        """What a reader of the task's score should know of its embeddings."""
        if not self._texts:
            return notes_of(self.encoder.encoder)
        count, what = len(self._texts[task.name].sentences), without_folders(fit_of(self.encoder.encoder))
        return [f"fitted on {count} sentences ({what})", *notes_of(self._fit(task))]


def what_embeds(encoder: Encoder) -> Encoder:
    """The encoder whose embeddings are stored: of one that changes those of another, that other."""
    return encoder.base if isinstance(encoder, VariantEncoder | PostProcessor) else encoder
