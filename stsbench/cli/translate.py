"""``stsbench data back-translate``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from stsbench.cards.catalogue import Catalogue
from stsbench.cli.options.catalogue import BackTranslateOptions
from stsbench.cli.printing import console, say
from stsbench.data.corpora.load import load_corpus
from stsbench.training.augmentation.back_translation import DirectionProgress, check_output, write_back_translations
from stsbench.training.augmentation.translation import Decoding, Mode, Translator


def back_translate_command(options: BackTranslateOptions) -> None:
    """Write pairs of a sentence and its back-translation, and say what came of it."""
    check_output(options.output)
    corpus = load_corpus(
        options.source,
        corpora=options.corpora,
        data=options.data,
        limit=options.limit,
        catalogue=Catalogue(options.cards),
    )
    # Decoding itself refuses any other mode.
    chosen = Decoding(
        mode=cast(Mode, options.mode), temperature=options.temperature, seed=options.seed, max_tokens=options.max_tokens
    )
    forward, backward = (
        Translator(model, revision=revision, decoding=chosen, batch_size=options.batch_size, device=options.device)
        for model, revision in zip((options.forward, options.backward), options.revisions, strict=True)
    )
    with _progress() as told:
        written = write_back_translations(corpus, options.output, forward, backward, told)
    say(f"{options.output}: {written.rows} pairs of {written.distinct} distinct sentences")
    say(f"unchanged: {written.same}; cut at {chosen.max_tokens} tokens: {written.cut}")
    say(f"models and settings: {written.record}")


@contextmanager
def _progress() -> Iterator[DirectionProgress]:
    """Show sentences done and ETA, on stderr and only where someone watches."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    screen = console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bars:
        rows = {direction: bars.add_task(f"translating {direction}", total=None) for direction in ("there", "back")}

        def told(direction: str, done: int, total: int) -> None:
            bars.update(rows[direction], completed=done, total=total)

        yield told
