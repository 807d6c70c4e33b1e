"""A check that data and a checkpoint come from the Hub, and score as published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from stsbench.boards.published.rows import look_up_published_row
from stsbench.cli.wording import describe_error_line
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, EncoderError, StsbenchError
from stsbench.data.task import load_task
from stsbench.encoders.base import TokenEncoder
from stsbench.encoders.load import load_named
from stsbench.encoders.metadata import read_metadata
from stsbench.encoders.named import NamedEncoder
from stsbench.results.record import Result

MAX_POINTS_APART = 0.05
"""How far a score, of 100, may be from the published one: libraries add in other orders."""
STEPS: Mapping[str, tuple[str, ...]] = {
    "Hub": (),
    "data": ("Hub",),
    "checkpoint": ("Hub",),
    "cache": ("checkpoint",),
    "tokenizer": ("checkpoint",),
    "device": ("data", "checkpoint"),
    "store": ("device",),
    "score": ("device",),
}
"""The steps in their order, each a method of the check, and the steps that it needs."""


@dataclass(kw_only=True)
class HubCheck:
    """A checkpoint on the Hub and the scores, token ids and files that it must give.

    Each step of the check is a method that returns what it found as text, or raises StsbenchError.
    """

    model: str
    revision: str
    sentence: str
    ids: tuple[int, ...]
    """The token ids of the sentence, special ones included."""
    published: Mapping[str, float]
    """The published score of each task, of 100."""
    catalogue: Catalogue = field(default_factory=Catalogue)
    folder: Path = Path()
    """A folder for a store of embeddings, and for a data folder without data."""

    @cached_property
    def encoder(self) -> NamedEncoder:
        """The checkpoint as any run would load it."""
        return load_named(self.model, params={"revision": self.revision}, catalogue=self.catalogue)

    def _check_hub(self) -> str:
        """Check that the Hub answers; return as text the commit that the model is at.

        ``self.model`` is the model's name on the Hub.

        Raises:
            SourceError: The Hub does not answer, or has no such model.
        """
        from huggingface_hub import get_token

        from stsbench.data.hub.repository import Repository

        listing = Repository(
            self.model, revision="main", kind="model", offline_hint=""
        ).request_listing()
        token = "with a token" if get_token() else "without a token"
        return f"answers, {token}; {self.model} is at {listing.commit[:12]}"

    def _check_data(self) -> str:
        """Load the data of each task from the Hub; return as text their sizes and commits.

        For data that are not from the Hub the source is named, such as ``package``.
        """
        descriptions = []
        # The published score of each task, by its name.
        for name in self.published:
            # The user's data folder is not read, whatever it holds.
            task = replace(load_task(name, catalogue=self.catalogue), data=None)
            loaded = task.loaded_split(task.card.score_split)
            origin = loaded.revision[:12] if loaded.revision else loaded.source
            descriptions.append(f"{name} {loaded.split.n} pairs ({origin})")
        return ", ".join(descriptions)

    def _check_checkpoint(self) -> str:
        """Find the checkpoint; return as text its revision and size."""
        from stsbench.encoders.checkpoint import find_checkpoint

        checkpoint = find_checkpoint(self.model, revision=self.revision)
        size = sum(path.stat().st_size for path in checkpoint.weights)
        return f"{self.model} ({self.revision[:12]}), weights of {size / 1e6:.0f} MB"

    def _check_cache(self) -> str:
        """Check that the checkpoint is in the Hub's cache on this machine; return that as text."""
        from huggingface_hub import try_to_load_from_cache

        # The path of the cached file, or another value if it is not cached.
        config = try_to_load_from_cache(self.model, "config.json", revision=self.revision)
        if not isinstance(config, str):
            raise DataError(
                f"{self.model} is not in the Hub's cache; is HF_HOME or HF_HUB_CACHE set?"
            )
        return "the checkpoint is kept in the Hub's cache, for a run without a network"

    def _check_tokenizer(self) -> str:
        """Check that the tokenizer gives the expected token ids; return their number as text.

        ``self.sentence`` is a sentence, and ``self.ids`` its token ids.
        """
        # self.encoder adds the name and card to the encoder itself. A TokenEncoder is run by
        # stsbench's own code, any other by the library.
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

    def _check_device(self) -> str:
        """Score all tasks; return as text the number of embedded sentences and the device."""
        n_encoded = sum(result.run["encoded"] for result in self._score_tasks().values())
        device = read_metadata(self.encoder.encoder).device_used
        return f"{n_encoded} sentences embedded on {device}"

    def _check_store(self) -> str:
        """Score all tasks again, and check that every embedding comes from the store.

        An earlier step has scored them and stored the embeddings.

        Returns:
            A text with the number of embeddings that were found in the store.
        """
        results = self._score_tasks().values()
        # "encoded" is the number of sentences that a run has embedded, "from_store" that of stored
        # ones.
        if n_encoded := sum(result.run["encoded"] for result in results):
            raise EncoderError(
                f"{n_encoded} embeddings were stored a moment ago and are not found again"
            )
        n_stored = sum(result.run["from_store"] for result in results)
        return f"all {n_stored} embeddings are found again"

    def _check_score(self) -> str:
        """Check that each score is near the published one; return both of each task as text.

        ``self.published`` holds the published scores by task, times 100. A score may be 0.05 from
        it. ``score`` of a result is not times 100.
        """
        results_by_task = self._score_tasks()
        descriptions, differences = [], []
        for task, published_score in self.published.items():
            score = 100 * results_by_task[task].score
            descriptions.append(f"{task} {score:.2f} (published {published_score:.2f})")
            differences.append(abs(score - published_score))
        text = ", ".join(descriptions)
        if max(differences, default=0.0) > MAX_POINTS_APART:
            raise EncoderError(f"{text}: more than {MAX_POINTS_APART} apart")
        return text

    def _score_tasks(self) -> dict[str, Result]:
        """Score the encoder on all tasks, with data from the Hub; return the result by task.

        Each call scores anew. The first one embeds the sentences and stores the embeddings in
        ``self.folder``, from which later calls read them. ``self.encoder`` is the checkpoint from
        the Hub, ``self.published`` the published scores by task.
        """
        from stsbench.bench.iteration import iterate

        tasks = list(self.published)
        # A data folder without any file, so that the data are read from the Hub.
        empty_folder = self.folder / "no data"
        empty_folder.mkdir(exist_ok=True)
        results = iterate(
            self.encoder,
            tasks,
            data=empty_folder,
            store=self.folder / "store",
            catalogue=self.catalogue,
        )
        return {result.task: result for result in results}


def minilm_check() -> HubCheck:
    """Return the check of the Hub by the model all-MiniLM-L6-v2 (90 MB) and two small tasks.

    The tasks have 250 and 1,379 pairs of sentences. The model must give their published scores, and
    for a sentence the token ids of BERT's vocabulary.
    """
    row = look_up_published_row("mteb/results/all-MiniLM-L6-v2")
    # By the name of a task its published score, times 100.
    scores = {score.task: score.value for score in row.scores}
    return HubCheck(
        model="sentence-transformers/all-MiniLM-L6-v2",
        revision="1110a243fdf4706b3f48f1d95db1a4f5529b4d41",
        sentence="A Man is playing a guitar.",
        ids=(101, 1037, 2158, 2003, 2652, 1037, 2858, 1012, 102),
        published={task: scores[task] for task in ("sts17-en-en", "stsb-raw")},
    )


def run_hub_check(check: HubCheck) -> list[dict[str, str]]:
    """Take each step of a check of the Hub, and return a row for each.

    ``STEPS`` lists them in order, each with the earlier steps that it needs. A bug is raised.

    Args:
        check: The model and the scores that it must give. It has a method for each step, which
            returns what it found as text, or raises StsbenchError.

    Returns:
        Rows with the keys ``step``, ``verdict`` and ``detail``. The verdict is "fine", "failed" for
        an error of the user or the network, or "not tried" if a needed step is not fine.
    """
    rows: dict[str, dict[str, str]] = {}
    for step, needed_steps in STEPS.items():
        # The step "Hub" is the method _check_hub.
        take_step = getattr(check, f"_check_{step.lower()}")
        unmet = [needed for needed in needed_steps if rows[needed]["verdict"] != "fine"]
        if unmet:
            verdict, detail = "not tried", f"needs {unmet[0]}"
        else:
            try:
                verdict, detail = "fine", take_step()
            except StsbenchError as error:
                verdict, detail = "failed", describe_error_line(error)
        rows[step] = {"step": step, "verdict": verdict, "detail": detail}
    return list(rows.values())
