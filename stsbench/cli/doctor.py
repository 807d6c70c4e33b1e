"""``stsbench doctor``."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from stsbench import settings
from stsbench.cards.catalogue import Catalogue
from stsbench.cli import diagnosis
from stsbench.cli.options.catalogue import DoctorOptions
from stsbench.cli.printing import print_json, print_rows, say
from stsbench.provenance.machine import version_of

ANCHORS = "STSBENCH_CHECKPOINTS=HUB_CACHE pytest -m slow tests/test_checkpoint_anchors.py"


def doctor_command(options: DoctorOptions) -> int:
    """Print what is here, or what of the Hub works; returns 0, or 2 where something does not."""
    catalogue = Catalogue(options.cards)
    facts = _hub_facts(catalogue) if options.hub else _facts(catalogue, options.data)
    report: dict[str, Any] = _without_places({"stsbench": version_of("stsbench"), **facts})
    if options.as_json:
        print_json(report)
    else:
        _print_report(report)
        if options.hub:
            say(f"\nPaste the above into an issue: it holds no folders and no token. Then, in a checkout: {ANCHORS}")
    return 2 if report["problems"] else 0


def _facts(catalogue: Catalogue, data: Path | None) -> dict[str, Any]:
    versions = diagnosis.installed_versions()
    suites = diagnosis.data_by_suite(catalogue, data or settings.data_folder())
    problems = [f"{one.package} {one.here} is not {one.allowed}" for one in versions if not one.fits]
    wrong = {task: why for suite in suites for task, why in suite.wrong.items()}
    return {
        "versions": [one._asdict() for one in versions],
        "devices": [{"device": name, "what": what} for name, what in diagnosis.devices().items()],
        "folders": [{"folder": f.name, "state": f.state, "size": _size(f.size)} for f in diagnosis.folders()],
        "data": [
            {"suite": s.suite, "found": len(s.found), "missing": len(s.missing), "wrong": len(s.wrong)} for s in suites
        ],
        "missing extras": [{"extra": name, "for": use} for name, use in diagnosis.missing_extras().items()],
        "problems": problems + [f"{task}: {why}" for task, why in wrong.items()],
    }


def _hub_facts(catalogue: Catalogue) -> dict[str, Any]:
    from stsbench.cli.hub_trial import minilm_trial, try_hub

    found = try_hub(minilm_trial(), catalogue)
    versions = {one.package: one for one in diagnosis.installed_versions()}
    names = ("python", "torch", "transformers", "tokenizers", "huggingface-hub", "datasets")
    return {
        "versions": [versions[name]._asdict() for name in names if name in versions],
        "devices": [{"device": name, "what": what} for name, what in diagnosis.devices().items()],
        "steps": [one._asdict() for one in found],
        "problems": [f"{one.step}: {one.detail}" for one in found if one.verdict == "failed"],
    }


def _size(size: int | None) -> str:
    return "" if size is None else f"{size / 1e6:,.1f} MB"


def _print_report(report: dict[str, Any]) -> None:
    say(f"stsbench {report['stsbench']}")
    for title, rows in report.items():
        if title in ("stsbench", "problems") or not rows:
            continue
        columns = [column for column in rows[0] if column != "fits"]
        cells = [[str(row[column]) for column in columns] for row in rows]
        right = [at for at, column in enumerate(columns) if isinstance(rows[0][column], int) or column == "size"]
        say(f"\n{title}")
        print_rows(columns, cells, right=right)
    say("")
    for problem in report["problems"]:
        say(f"problem: {problem}")
    if not report["problems"]:
        say("no problems found")


def _without_places(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """The same without folders of this machine and without what looks like a token."""
    if isinstance(value, dict):
        return {key: _without_places(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without_places(inner) for inner in value]
    if not isinstance(value, str):
        return value
    places = {
        "CACHE": settings.cache_folder(), "DATA": settings.data_folder(), "HERE": Path.cwd(), "HOME": Path.home(),
    }  # fmt: skip
    for name, place in places.items():
        if place is not None and len(str(place)) > 1:
            value = value.replace(str(place), f"<{name}>")
    value = re.sub(rf"(?<![\w:/.>]){re.escape(os.sep)}[^\s'\",;:()]+", "<PATH>", value)
    return re.sub(r"\bhf_\w+", "<TOKEN>", value)
