"""Whether what the Hub gives works here: two small tasks and one small checkpoint, fetched, run and held to print."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

from stsbench import settings
from stsbench.cards.catalogue import Catalogue
from stsbench.data.task import load_task
from stsbench.encoders.facts import facts_of
from stsbench.encoders.known import KnownEncoder
from stsbench.encoders.loading import find_encoder
from stsbench.encoders.seams import TokenEncoder
from stsbench.errors import DataError, EncoderError, StsbenchError, one_line
from stsbench.leaderboard.published.rows import published_row

POINTS = 0.05
"""How far a score may be from the published one, of 100: libraries multiply in other orders."""


@dataclass(frozen=True, kw_only=True)
class HubTrial:
    """What is fetched, and what it must give."""

    model: str
    revision: str
    sentence: str
    ids: tuple[int, ...]
    """The token ids of the sentence, special ones included."""
    published: Mapping[str, float]
    """The score of each task, of 100."""


def minilm_trial() -> HubTrial:
    """All-MiniLM-L6-v2 (90 MB) on 250 and 1,379 pairs; the ids are those of BERT's vocabulary."""
    scores = {one.task: one.value for one in published_row("mteb/results/all-MiniLM-L6-v2").scores}
    return HubTrial(
        model="sentence-transformers/all-MiniLM-L6-v2",
        revision="1110a243fdf4706b3f48f1d95db1a4f5529b4d41",
        sentence="A Man is playing a guitar.",
        ids=(101, 1037, 2158, 2003, 2652, 1037, 2858, 1012, 102),
        published={task: scores[task] for task in ("sts17-en-en", "stsb-raw")},
    )


class Finding(NamedTuple):
    """What came of one step."""

    step: str
    verdict: Literal["fine", "failed", "not tried"]
    detail: str


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
"""The steps in their order, and which of them must have gone well before each."""


def try_hub(trial: HubTrial, catalogue: Catalogue) -> list[Finding]:
    """Take every step that can be taken; a mistake or a fault of the network is a finding, a bug is none."""
    found: dict[str, Finding] = {}
    settings.cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=settings.cache_folder(), prefix="doctor-") as folder:
        steps = _Steps(trial, catalogue, Path(folder))
        for step, needs in NEEDS.items():
            missing = [need for need in needs if found[need].verdict != "fine"]
            found[step] = (
                Finding(step, "not tried", f"needs {missing[0]}")
                if missing
                else _taken(step, getattr(steps, step.lower()))
            )
    return list(found.values())


def _taken(step: str, take: Callable[[], str]) -> Finding:
    try:
        return Finding(step, "fine", take())
    except StsbenchError as error:
        return Finding(step, "failed", one_line(error))


@dataclass(kw_only=False)
class _Steps:
    """The steps, each returns what there is to say where it went well."""

    trial: HubTrial
    catalogue: Catalogue
    folder: Path
    scores: dict[str, float] = field(default_factory=dict)

    @cached_property
    def encoder(self) -> KnownEncoder:
        """The checkpoint as any run would load it."""
        return find_encoder(self.trial.model, params={"revision": self.trial.revision}, catalogue=self.catalogue)

    def hub(self) -> str:
        from huggingface_hub import get_token

        from stsbench.data.hub.files import address_of
        from stsbench.data.hub.listing import ask_now

        listing = ask_now(address_of(self.trial.model, revision="main", kind="model"))
        return (
            f"answers, {'with' if get_token() else 'without'} a token; {self.trial.model} is at {listing.commit[:12]}"
        )

    def data(self) -> str:
        # Without the user's folder, whatever it holds.
        tasks = [replace(load_task(name, catalogue=self.catalogue), data=None) for name in self.trial.published]
        loaded = [(task.name, task.loaded(task.card.score_split)) for task in tasks]
        return ", ".join(f"{name} {one.split.n} pairs ({(one.revision or one.source)[:12]})" for name, one in loaded)

    def checkpoint(self) -> str:
        from stsbench.encoders.checkpoints.checkpoint import find_checkpoint

        found = find_checkpoint(self.trial.model, revision=self.trial.revision)
        size = sum(path.stat().st_size for path in found.weights)
        return f"{self.trial.model} ({self.trial.revision[:12]}), weights of {size / 1e6:.0f} MB"

    def cache(self) -> str:
        from huggingface_hub import try_to_load_from_cache

        kept = try_to_load_from_cache(self.trial.model, "config.json", revision=self.trial.revision)
        if not isinstance(kept, str):
            raise DataError(
                f"{self.trial.model} is fetched, and not in the Hub's cache; is HF_HOME or HF_HUB_CACHE set?"
            )
        return "the checkpoint is kept in the Hub's cache, for a run without a network"

    def tokenizer(self) -> str:
        encoder = self.encoder.encoder
        if not isinstance(encoder, TokenEncoder):
            raise EncoderError(f"{self.trial.model} is run by sentence-transformers; its files say other than expected")
        ids = tuple(encoder.tokenize([self.trial.sentence]).ids.tolist())
        if ids != self.trial.ids:
            raise EncoderError(f"'{self.trial.sentence}' gives the tokens {list(ids)}, not {list(self.trial.ids)}")
        return f"'{self.trial.sentence}' gives the {len(ids)} tokens that it should"

    def device(self) -> str:
        facts = self._run()
        return f"{facts['encoded']} sentences embedded on {facts_of(self.encoder.encoder).device_used}"

    def store(self) -> str:
        facts = self._run()
        if facts["encoded"]:
            raise EncoderError(f"{facts['encoded']} embeddings were stored a moment ago and are not found again")
        return f"all {facts['from_store']} embeddings are found again"

    def score(self) -> str:
        compared = [
            (f"{task} {self.scores[task]:.2f} (published {value:.2f})", abs(self.scores[task] - value) <= POINTS)
            for task, value in self.trial.published.items()
        ]
        text = ", ".join(said for said, _ in compared)
        if not all(fits for _, fits in compared):
            raise EncoderError(f"{text}: more than {POINTS} apart")
        return text

    def _run(self) -> Mapping[str, int]:
        """Score all tasks, from the Hub and with a store of our own; returns sentences embedded and found in the store."""
        from stsbench.bench.iterate import iterate

        nowhere = self.folder / "no data"
        nowhere.mkdir(exist_ok=True)
        results = list(
            iterate(
                self.encoder,
                list(self.trial.published),
                data=nowhere,
                store=self.folder / "store",
                catalogue=self.catalogue,
            )
        )
        self.scores = {result.task: 100 * result.score for result in results}
        return {key: sum(result.run[key] for result in results) for key in ("encoded", "from_store")}
