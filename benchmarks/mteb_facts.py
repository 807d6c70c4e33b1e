"""Facts of MTEB's STS tasks, benchmarks and models, from the package ``mteb`` (Apache-2.0).

    python benchmarks/mteb_facts.py write         # writes stsbench/data/mteb/*.json
    python benchmarks/mteb_facts.py check         # exit code 1 if the newest package differs

It needs ``pip install mteb``. The facts are: dataset, revision, splits, subsets and languages of
each task; tasks, subsets and splits of each benchmark that holds at least two tasks of STS; and of
each model with public scores its revision, size, languages, licence, and the tasks of STS among its
training sets. No text of a dataset and no code is taken.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping
from importlib import resources
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import mteb
from mteb.languages.iso_mappings import ISO_TO_LANGUAGE

from stsbench.boards.mteb.scores import read_public_results
from stsbench.boards.tables.filters import LANGUAGES_FILE
from stsbench.core.catalogue import Catalogue
from stsbench.core.files import write_atomically
from stsbench.data.mteb.facts import list_matched_tasks, read_mteb_facts

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "stsbench" / "data" / "mteb"
SUITES = ROOT / "tasks" / "mteb-suites.toml"
MIN_TASKS = 2
METRIC = "cosine_spearman"


def list_tasks() -> dict[str, dict[str, Any]]:
    """Return the facts of all STS tasks of text that are scored by Spearman, by name."""
    facts = {}
    for task in mteb.get_tasks(task_types=["STS"], exclude_superseded=False):
        metadata = task.metadata
        if metadata.main_score != METRIC:
            continue
        facts[metadata.name] = {
            "repo": metadata.dataset["path"],
            "revision": metadata.dataset["revision"],
            "splits": list(metadata.eval_splits),
            "subsets": {
                subset: list(languages)
                for subset, languages in metadata.hf_subsets_to_langscripts.items()
            },
        }
    return facts


def list_benchmarks() -> dict[str, dict[str, dict[str, list[str]]]]:
    """Return subsets and splits of the STS tasks of each benchmark that holds at least two."""
    facts = {}
    for benchmark in mteb.get_benchmarks():
        tasks = {
            task.metadata.name: {
                "subsets": sorted(task.hf_subsets),
                "splits": list(task.eval_splits),
            }
            for task in benchmark.tasks
            if task.metadata.type == "STS" and task.metadata.main_score == METRIC
        }
        if len(tasks) >= MIN_TASKS:
            facts[benchmark.name] = tasks
    return facts


def list_models(task_names: frozenset[str]) -> dict[str, dict[str, Any]]:
    """Return the facts of each model with public scores that MTEB describes, by name.

    Args:
        task_names: The names of all STS tasks; other training sets are left out.
    """
    models_with_scores = {result.model for result in read_public_results()}
    facts = {}
    for model in sorted(mteb.get_model_metas(), key=lambda meta: str(meta.name)):
        if model.name not in models_with_scores:
            continue
        training_sets = model.get_training_datasets()
        sizes = model.embed_dim if isinstance(model.embed_dim, list) else [model.embed_dim]
        facts[model.name] = {
            "revision": model.revision,
            "parameters": model.n_parameters,
            "dimensions": max((size for size in sizes if size), default=None),
            "languages": sorted({str(code).split("-")[0] for code in model.languages or []}),
            "license": str(model.license or ""),
            "year": int(str(model.release_date)[:4]) if model.release_date else None,
            "is_open": model.open_weights,
            "trained_on": None
            if training_sets is None
            else sorted(task_names.intersection(training_sets)),
        }
    return facts


def suite_key(benchmark: str) -> str:
    """Return our key of the suite of a benchmark: ``mteb-eng-v2-sts`` for ``MTEB(eng, v2)``."""
    words = re.sub(r"[^a-z0-9]+", "-", benchmark.lower()).strip("-")
    return f"{words}-sts"


def make_suites() -> str:
    """Return the TOML of a suite for each benchmark, with the tasks of ours that it holds."""
    facts = read_mteb_facts()
    task_by_subset = {
        (subset.mteb_task, subset.mteb_subset): task
        for task, subset in list_matched_tasks(Catalogue()).items()
    }
    lines = [
        "# The STS tasks of MTEB's benchmarks; benchmarks/mteb_facts.py writes this file.",
        "# A suite has a mean of its own where each task of MTEB's is one of ours. Else the board",
        "# with MTEB's public results has MTEB's mean, which takes subsets and splits together.",
    ]
    for benchmark, parts_by_task in facts.benchmarks.items():
        tasks: list[str] = []
        missing: list[str] = []
        has_plain_mean = all(
            len(parts.subsets) * len(parts.splits) == 1 for parts in parts_by_task.values()
        )
        for name, parts in parts_by_task.items():
            keys = [(name, subset) for subset in parts.subsets]
            known_tasks = [task_by_subset[key] for key in keys if key in task_by_subset]
            if len(known_tasks) < len(keys) and (name, "") in task_by_subset:
                # A card of ours has all subsets, also those that the benchmark leaves out.
                tasks.append(task_by_subset[name, ""])
                has_plain_mean = False
                continue
            tasks += known_tasks
            if len(known_tasks) < len(keys):
                missing.append(name)
        if not tasks:
            print(f"{benchmark}: no task is ours")
            continue
        lines += [
            "",
            f"[{suite_key(benchmark)}]",
            f'name = "{benchmark}, STS"',
            f"tasks = {json.dumps(tasks)}",
            f"average = {json.dumps(has_plain_mean and not missing)}",
            f'mteb = "{benchmark}"',
        ]
        if missing:
            names = ", ".join(missing)
            lines.append(f'note = "Without tasks or subsets that have no card here: {names}."')
    return "\n".join(lines) + "\n"


def list_languages(tasks: Mapping[str, Any], models: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return name and code of two letters of each language that a task or model names."""
    folder = resources.files("mteb.languages")
    codes_by_short_code = json.loads((folder / "iso_639_1_to_3.json").read_text("utf-8"))
    short_codes = {code: short_code for short_code, code in codes_by_short_code.items()}
    codes = {code for model in models.values() for code in model["languages"]}
    for task in tasks.values():
        languages = chain(*task["subsets"].values())
        codes |= {language.split("-")[0] for language in languages}
    short_codes |= {"cmn": "zh", "arb": "ar"}
    return {
        code: [ISO_TO_LANGUAGE[code].partition(" (")[0], short_codes.get(code, "")]
        for code in sorted(codes & ISO_TO_LANGUAGE.keys())
    }


def make_files() -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield each file of facts with its content."""
    tasks = list_tasks()
    yield (
        FOLDER / "tasks.json",
        {"mteb_version": version("mteb"), "tasks": tasks, "benchmarks": list_benchmarks()},
    )
    models = list_models(frozenset(tasks))
    yield FOLDER / "models.json", models
    yield LANGUAGES_FILE, list_languages(tasks, models)


def write_files() -> None:
    """Write the facts and then the suites, which are made from them."""
    for path, facts in make_files():
        write_atomically(path, encode_facts(facts))
    write_atomically(SUITES, make_suites().encode())


def find_differences(old: object, new: object, path: str = "") -> Iterator[str]:
    """Yield a line for each fact that differs, with its path of keys."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            yield from find_differences(old.get(key), new.get(key), f"{path}/{key}")
    elif old != new:
        yield f"{path}: {json.dumps(old)} is now {json.dumps(new)}"


def encode_facts(facts: Mapping[str, Any]) -> bytes:
    """Return facts as JSON with one record per line, so that differences can be read."""
    lines = []
    for key, value in facts.items():
        if isinstance(value, dict) and key in ("tasks", "benchmarks"):
            records = ",\n".join(
                f"  {json.dumps(name)}: {json.dumps(record, ensure_ascii=False)}"
                for name, record in value.items()
            )
            lines.append(f"{json.dumps(key)}: {{\n{records}\n}}")
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def main() -> int:
    """Write the files of facts, or print how the newest package differs from them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("action", choices=["write", "check"])
    if parser.parse_args().action == "write":
        write_files()
        return 0
    n_differences = 0
    for path, facts in make_files():
        stored_facts = json.loads(path.read_bytes())
        stored_facts.pop("mteb_version", None)
        new_facts = {key: value for key, value in facts.items() if key != "mteb_version"}
        for difference in find_differences(stored_facts, new_facts, path.name):
            print(difference)
            n_differences += 1
    if make_suites() != SUITES.read_text(encoding="utf-8"):
        print(f"{SUITES.name}: is not what the facts and cards make")
        n_differences += 1
    return 1 if n_differences else 0


if __name__ == "__main__":
    sys.exit(main())
