"""Which embeddings each task is scored on: one encoder's for all tasks, or those of one fitted for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from stsbench import settings
from stsbench.bench.fit_texts import FitTexts, texts_of_tasks
from stsbench.bench.shared import Divisible, Missing, Shared, SharedEngine
from stsbench.bench.shelf import Store, open_shelf
from stsbench.bench.tasks import ScoredTask
from stsbench.cards.catalogue import Catalogue
from stsbench.encoders.engine.embed import Engine, Noticed, Progress, StoredEncoder
from stsbench.encoders.engine.store import Shelf, Watched
from stsbench.encoders.engine.transformed import TransformedEngine
from stsbench.encoders.facts import check_encoder, notes_of
from stsbench.encoders.fitted.fitted import FittedEncoder, PostProcessed, fit_of
from stsbench.encoders.fitted.variants import Ranges, VariantEncoder, variant_of
from stsbench.encoders.known import KnownEncoder
from stsbench.encoders.seams import Embed, Encoder, PostProcessor, TextFitted
from stsbench.errors import EncoderError, StsbenchError, shown
from stsbench.provenance.identity import inherit_maker


class Embedder(Protocol):
    """Gives each task of a run the embeddings that its score is made of."""

    @property
    def tasks(self) -> Sequence[ScoredTask]:
        """The tasks that it can embed: all whose texts to fit on could be had."""
        ...

    def known(self, task: ScoredTask) -> KnownEncoder:
        """The encoder as the Result of this task names it."""
        ...

    def missing(self, todo: Sequence[ScoredTask]) -> Missing | None:
        """What :meth:`prepare` would embed; None where only fitting tells."""
        ...

    def divisible(self, todo: Sequence[ScoredTask]) -> Divisible | None:
        """What :meth:`prepare` would embed; None where it cannot be divided: kept in memory, or made task by task."""
        ...

    def prepare(self, todo: Sequence[ScoredTask], tasks: Sequence[ScoredTask]) -> None:
        """Embed what the tasks to do need, in one go; ``tasks`` are all tasks, done ones among them."""
        ...

    def engine(self, task: ScoredTask) -> Embed:
        """What embeds this task's sentences."""
        ...

    def encoded(self, task: ScoredTask) -> int:
        """How many distinct sentences of the task this embedder embedded itself, and did not find in the store."""
        ...

    def watch(self, task: ScoredTask) -> Watched | None:
        """Who watches over the stored embeddings of this task, where some are stored."""
        ...

    def notes(self, task: ScoredTask) -> list[str]:
        """What a reader of the task's score should know of its embeddings."""
        ...


def make_embedder(
    encoder: KnownEncoder,
    tasks: Sequence[ScoredTask],
    *,
    store: Store,
    catalogue: Catalogue,
    data: Path | None,
    progress: Progress,
    failed: Callable[[str, StsbenchError], None],
    shared: Shared | None = None,
    noticed: Noticed | None = None,
    only_look: bool = False,
) -> Embedder:
    """Return the embedder that an encoder needs; texts to fit on are read, and nothing is embedded yet.

    ``failed`` is told each task whose texts to fit on cannot be had; unless it raises, the task is left out.
    With ``only_look`` the store stays as it is: such an embedder tells what is missing, and must not embed.
    """
    made, shared = encoder.encoder, shared or Shared()
    embeds = what_embeds(made)
    base = embeds if embeds is not made else None
    texts: Mapping[str, FitTexts] = {}
    if isinstance(made, TextFitted):
        fit = fit_of(made)
        texts = shared.texts((fit, *tasks), lambda: texts_of_tasks(fit, tasks, catalogue, data, failed))
        tasks = [task for task in tasks if task.name in texts]
        if base is None:
            return _Fitted(encoder, tasks, texts, store, progress, noticed)

    def make_engine() -> Engine:
        shelf = open_shelf(store, embeds, only_look=only_look)
        return Engine(embeds, shelf, progress=progress, noticed=noticed)

    if base is None:
        shared.let_go()
        return _Plain(encoder, tasks, make_engine())
    held = shared.engine(base, make_engine, only_look=only_look)
    if isinstance(made, VariantEncoder):
        return _Derived(encoder, tasks, held.engine, held)
    return _Over(encoder, tasks, texts, held.engine, held)


def what_embeds(encoder: Encoder) -> Encoder:
    """The encoder whose embeddings are stored: of one that changes those of another, that other."""
    return encoder.base if isinstance(encoder, VariantEncoder | PostProcessor) else encoder


def chosen_data_folder(given: Path | str | None) -> Path | None:
    """The local data folder: the one given, else the user's usual one."""
    return Path(given) if given is not None else settings.data_folder()


def _all_texts(tasks: Iterable[ScoredTask]) -> list[str]:
    return [text for task in tasks for text in task.texts()]


@dataclass(frozen=True)
class _Plain:
    """An encoder that is what it is: one engine for all tasks."""

    encoder: KnownEncoder
    tasks: Sequence[ScoredTask]
    shared: Engine

    def known(self, task: ScoredTask) -> KnownEncoder:
        return self.encoder

    def missing(self, todo: Sequence[ScoredTask]) -> Missing | None:
        return Missing.of(self.shared, _all_texts(todo))

    def divisible(self, todo: Sequence[ScoredTask]) -> Divisible | None:
        return Divisible.of(self.shared, _all_texts(todo))

    def prepare(self, todo: Sequence[ScoredTask], tasks: Sequence[ScoredTask]) -> None:
        # Kept in memory alone, embeddings are lost with a stopped run: its batches are planned again as they were.
        lost = self.shared.shelf.folder is None
        self.shared.prepare(_all_texts(todo), among=_all_texts(tasks) if lost else ())

    def engine(self, task: ScoredTask) -> Embed:
        return self.shared

    def encoded(self, task: ScoredTask) -> int:
        return self.shared.encoded_among(task.texts())

    def watch(self, task: ScoredTask) -> Watched | None:
        return self.shared.shelf.watch

    def notes(self, task: ScoredTask) -> list[str]:
        return notes_of(self.encoder.encoder)


@dataclass(frozen=True)
class _Derived(_Plain):
    """A variant: the shared engine embeds for its base, and embeddings are changed when they are asked for."""

    common: SharedEngine

    def missing(self, todo: Sequence[ScoredTask]) -> Missing | None:
        return Missing.of(self.shared, self.common.uncounted(_all_texts(todo)))

    def prepare(self, todo: Sequence[ScoredTask], tasks: Sequence[ScoredTask]) -> None:
        if self.common.uncounted(_all_texts(todo)):
            super().prepare(todo, tasks)
        _check_size(self.encoder.encoder, self.shared)

    def engine(self, task: ScoredTask) -> Embed:
        variant: VariantEncoder = self.encoder.encoder  # type: ignore[assignment]
        return TransformedEngine(self.common.view, variant.transform)


def _check_size(encoder: Encoder, base: Engine) -> None:
    """Refuse a variant of more dimensions than its base has, once rather than task by task; raises EncoderError."""
    variant = variant_of(encoder)
    if variant is not None and base.shelf.width is not None:
        variant.check_size(base.shelf.width)


def _fitted(encoder: object, texts: FitTexts) -> Encoder:
    if not isinstance(encoder, TextFitted):
        raise EncoderError(f"what a post-processor's over(base) returned has no fit_texts; it is {shown(encoder)}")
    return check_encoder(encoder.fit_texts(texts.sentences), f"what fit_texts of {type(encoder).__name__} returned")


@dataclass(frozen=True)
class _Over:
    """A post-processor: one engine embeds for its base, what is fitted changes embeddings in memory."""

    encoder: KnownEncoder
    tasks: Sequence[ScoredTask]
    texts: Mapping[str, FitTexts]
    base: Engine
    common: SharedEngine
    fits: dict[str, Encoder] = field(default_factory=dict)

    def known(self, task: ScoredTask) -> KnownEncoder:
        return self.texts[task.name].told(self.encoder)

    def missing(self, todo: Sequence[ScoredTask]) -> Missing | None:
        # Another class may embed when it is fitted.
        lazy = isinstance(self.encoder.encoder, PostProcessed)
        return Missing.of(self.base, self.common.uncounted(self._needed(todo))) if lazy else None

    def divisible(self, todo: Sequence[ScoredTask]) -> Divisible | None:
        lazy = isinstance(self.encoder.encoder, PostProcessed)
        return Divisible.of(self.base, self._needed(todo)) if lazy else None

    def prepare(self, todo: Sequence[ScoredTask], tasks: Sequence[ScoredTask]) -> None:
        lost = self.base.shelf.folder is None
        if self.common.uncounted(self._needed(todo)):
            self.base.prepare(self._needed(todo), among=self._needed(tasks) if lost else ())
        _check_size(self.encoder.encoder, self.base)

    def _needed(self, tasks: Sequence[ScoredTask]) -> list[str]:
        fits = {self.texts[task.name].digest: self._fit(task) for task in tasks}
        own = [text for fit in fits.values() if isinstance(fit, FittedEncoder) for text in fit.texts_to_embed()]
        return [*_all_texts(tasks), *own]

    def _fit(self, task: ScoredTask) -> Encoder:
        texts = self.texts[task.name]
        if texts.digest not in self.fits:
            made: PostProcessor = self.encoder.encoder  # type: ignore[assignment]
            self.fits[texts.digest] = _fitted(made.over(StoredEncoder(self.base)), texts)
        return self.fits[texts.digest]

    def engine(self, task: ScoredTask) -> Embed:
        # Made again in seconds from what the store holds: not stored itself.
        fit = self._fit(task)
        if isinstance(fit, FittedEncoder) and isinstance(fit.fitted, Ranges):
            return TransformedEngine(self.common.view, fit.fitted.transform)
        return Engine(fit, Shelf(None))

    def encoded(self, task: ScoredTask) -> int:
        return self.base.encoded_among(task.texts())

    def watch(self, task: ScoredTask) -> Watched | None:
        return self.base.shelf.watch

    def notes(self, task: ScoredTask) -> list[str]:
        return self.texts[task.name].notes(self._fit(task))


@dataclass(frozen=True)
class _Fitted:
    """Any other text-fitted encoder: an engine and a shelf for each state of it."""

    encoder: KnownEncoder
    tasks: Sequence[ScoredTask]
    texts: Mapping[str, FitTexts]
    store: Store
    progress: Progress
    noticed: Noticed | None
    engines: dict[str, Engine] = field(default_factory=dict)

    def known(self, task: ScoredTask) -> KnownEncoder:
        return self.texts[task.name].told(self.encoder)

    def missing(self, todo: Sequence[ScoredTask]) -> Missing | None:
        return None if todo else Missing(0)

    def divisible(self, todo: Sequence[ScoredTask]) -> Divisible | None:
        return None

    def prepare(self, todo: Sequence[ScoredTask], tasks: Sequence[ScoredTask]) -> None:
        for task in todo:
            self.engine(task).prepare(task.texts())

    def engine(self, task: ScoredTask) -> Engine:
        texts = self.texts[task.name]
        if texts.digest not in self.engines:
            made: TextFitted = self.encoder.encoder  # type: ignore[assignment]
            fitted = _fitted(made, texts)
            inherit_maker(fitted, made)
            shelf = open_shelf(self.store, fitted, texts.digest)
            self.engines[texts.digest] = Engine(fitted, shelf, progress=self.progress, noticed=self.noticed)
        return self.engines[texts.digest]

    def encoded(self, task: ScoredTask) -> int:
        return self.engine(task).encoded_among(task.texts())

    def watch(self, task: ScoredTask) -> Watched | None:
        engine = self.engines.get(self.texts[task.name].digest)
        return engine.shelf.watch if engine is not None else None

    def notes(self, task: ScoredTask) -> list[str]:
        return self.texts[task.name].notes(self.engine(task).encoder)
