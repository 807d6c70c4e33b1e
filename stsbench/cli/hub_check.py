"""A check that data and a checkpoint come from the Hub, and score as published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from stsbench.boards.published.rows import published_row
from stsbench.cli.wording import describe_error_line
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, EncoderError, StsbenchError
from stsbench.data.task import load_task
from stsbench.encoders.base import TokenEncoder
from stsbench.encoders.load import load_named
from stsbench.encoders.metadata import read_metadata
from stsbench.encoders.named import NamedEncoder
from stsbench.results.record import Result

POINTS = 0.05
"""How far a score may be from the published one, of 100: libraries multiply in other orders."""
NEEDS: Mapping[str, tuple[str, ...]] = {
    "Hub": (),
    "data": ("Hub",),
    "checkpoint": ("Hub",),
    "cache": ("checkpoint",),
    "tokenizer": ("checkpoint",),
    "device": ("data", "checkpoint"),
    "store": ("device",),
    "score": ("device",),
}
"""The steps in their order, each a method of the trial, and which of them must have gone well before."""


@dataclass(kw_only=True)
class HubCheck:
    """What is fetched, and what it must give; each step says what it has found, or raises StsbenchError."""

    model: str
    revision: str
    sentence: str
    ids: tuple[int, ...]
    """The token ids of the sentence, special ones included."""
    published: Mapping[str, float]
    """The score of each task, of 100."""
    catalogue: Catalogue = field(default_factory=Catalogue)
    folder: Path = Path()
    """For a store, and data of nobody's."""

    @cached_property
    def encoder(self) -> NamedEncoder:
        """The checkpoint as any run would load it."""
        return load_named(self.model, params={"revision": self.revision}, catalogue=self.catalogue)

    def _hub(self) -> str:
        from huggingface_hub import get_token

        from stsbench.data.hub.repository import Repository

        found = Repository(
            self.model, revision="main", kind="model", offline_hint=""
        ).request_listing()
        return f"answers, with{'' if get_token() else 'out'} a token; {self.model} is at {found.commit[:12]}"

    def _data(self) -> str:
        # Without the user's folder, whatever it holds.
        tasks = [
            replace(load_task(name, catalogue=self.catalogue), data=None) for name in self.published
        ]
        loaded = [(task.name, task.loaded(task.card.score_split)) for task in tasks]
        return ", ".join(
            f"{name} {one.split.n} pairs ({(one.revision or one.source)[:12]})"
            for name, one in loaded
        )

    def _checkpoint(self) -> str:
        from stsbench.encoders.checkpoint import find_checkpoint

        size = sum(
            path.stat().st_size
            for path in find_checkpoint(self.model, revision=self.revision).weights
        )
        return f"{self.model} ({self.revision[:12]}), weights of {size / 1e6:.0f} MB"

    def _cache(self) -> str:
        from huggingface_hub import try_to_load_from_cache

        if not isinstance(
            try_to_load_from_cache(self.model, "config.json", revision=self.revision), str
        ):
            raise DataError(
                f"{self.model} is not in the Hub's cache; is HF_HOME or HF_HUB_CACHE set?"
            )
        return "the checkpoint is kept in the Hub's cache, for a run without a network"

    def _tokenizer(self) -> str:
        encoder = self.encoder.encoder
        if not isinstance(encoder, TokenEncoder):
            raise EncoderError(
                f"{self.model} is run by sentence-transformers; its files say other than expected"
            )
        ids = tuple(encoder.tokenize([self.sentence]).ids.tolist())
        if ids != self.ids:
            raise EncoderError(
                f"'{self.sentence}' gives the tokens {list(ids)}, not {list(self.ids)}"
            )
        return f"'{self.sentence}' gives the {len(ids)} tokens that it should"

    def _device(self) -> str:
        encoded = sum(one.run["encoded"] for one in self._scored().values())
        return f"{encoded} sentences embedded on {read_metadata(self.encoder.encoder).device_used}"

    def _store(self) -> str:
        found = self._scored().values()
        if encoded := sum(one.run["encoded"] for one in found):
            raise EncoderError(
                f"{encoded} embeddings were stored a moment ago and are not found again"
            )
        return f"all {sum(one.run['from_store'] for one in found)} embeddings are found again"

    def _score(self) -> str:
        found = self._scored()
        pairs = [(task, 100 * found[task].score, value) for task, value in self.published.items()]
        text = ", ".join(
            f"{task} {score:.2f} (published {value:.2f})" for task, score, value in pairs
        )
        if any(abs(score - value) > POINTS for _, score, value in pairs):
            raise EncoderError(f"{text}: more than {POINTS} apart")
        return text

    def _scored(self) -> dict[str, Result]:
        # From the Hub, and with a store of our own.
        from stsbench.bench.run import iterate

        nowhere, kept = self.folder / "no data", self.folder / "store"
        nowhere.mkdir(exist_ok=True)
        tasks = list(self.published)
        found = iterate(self.encoder, tasks, data=nowhere, store=kept, catalogue=self.catalogue)
        return {result.task: result for result in found}


def minilm_trial() -> HubCheck:
    """All-MiniLM-L6-v2 (90 MB) on 250 and 1,379 pairs; the ids are those of BERT's vocabulary."""
    scores = {one.task: one.value for one in published_row("mteb/results/all-MiniLM-L6-v2").scores}
    return HubCheck(
        model="sentence-transformers/all-MiniLM-L6-v2",
        revision="1110a243fdf4706b3f48f1d95db1a4f5529b4d41",
        sentence="A Man is playing a guitar.",
        ids=(101, 1037, 2158, 2003, 2652, 1037, 2858, 1012, 102),
        published={task: scores[task] for task in ("sts17-en-en", "stsb-raw")},
    )


def try_hub(trial: HubCheck) -> list[dict[str, str]]:
    """Take every step that can be taken: what came of each; a mistake or a fault of the network is reported, a bug is raised."""
    found: dict[str, dict[str, str]] = {}
    for step, needs in NEEDS.items():
        verdict = "not tried"
        if missing := [need for need in needs if found[need]["verdict"] != "fine"]:
            detail = f"needs {missing[0]}"
        else:
            try:
                verdict, detail = "fine", getattr(trial, f"_{step.lower()}")()
            except StsbenchError as error:
                verdict, detail = "failed", describe_error_line(error)
        found[step] = {"step": step, "verdict": verdict, "detail": detail}
    return list(found.values())
