"""The wheel holds all that a checkout has: cards, data sets, and works without the checkout."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import stsbench
from tests.cli.commands import python

ROOT = Path(stsbench.__file__).parent.parent
KINDS = ("tasks", "baselines", "trainers")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (ROOT / "pyproject.toml").is_file():
        pytest.skip("stsbench is installed, not a checkout")
    out = tmp_path_factory.mktemp("dist")
    build = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(out),
        str(ROOT),
    ]
    done = subprocess.run(build, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = out.glob("*.whl")
    return path


def digests(archive: zipfile.ZipFile, folder: str) -> dict[str, str]:
    names = [name for name in archive.namelist() if name.startswith(f"{folder}/")]
    return {
        name.removeprefix(f"{folder}/"): hashlib.sha256(archive.read(name)).hexdigest()
        for name in names
    }


def on_disk(folder: Path, pattern: str) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob(pattern)
    }


@pytest.mark.parametrize("kind", KINDS)
def test_cards_are_those_of_the_checkout(wheel, kind):
    with zipfile.ZipFile(wheel) as archive:
        cards = digests(archive, f"stsbench/_cards/{kind}")
    assert cards == on_disk(ROOT / kind, "*.toml")
    assert cards


def test_it_knows_what_the_results_were_made_with(wheel):
    with zipfile.ZipFile(wheel) as archive:
        assert (
            archive.read("stsbench/_cards/constraints.txt")
            == (ROOT / "constraints.txt").read_bytes()
        )


def test_packaged_data_and_code_are_inside_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        embedded = digests(archive, "stsbench/data/embedded")
        names = archive.namelist()
        code = {name for name in names if name.endswith(".py")}
        metadata = archive.read(next(n for n in names if n.endswith("METADATA"))).decode()
    assert embedded == on_disk(ROOT / "stsbench/data/embedded", "*")
    assert len([name for name in embedded if name.endswith(".tsv")]) >= 3
    assert code == {f"stsbench/{name}" for name in on_disk(ROOT / "stsbench", "*.py")}
    for pattern in ("*.toml", "*.csv", "*.txt", "*.html", "*.css", "*.js", "py.typed"):
        inside = {f"stsbench/{name}" for name in on_disk(ROOT / "stsbench", pattern)}
        assert inside and inside <= set(names), pattern
    assert {name.split("/")[0] for name in names} == {
        "stsbench",
        f"stsbench-{stsbench.__version__}.dist-info",
    }
    assert f"Version: {stsbench.__version__}\n" in metadata
    assert "License-Expression: Apache-2.0\n" in metadata


def test_it_runs_without_the_checkout(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    code = (
        "import sys; from stsbench.core import cards; from stsbench.cli.main import main;"
        f"assert cards.__file__.startswith({str(tmp_path)!r}), cards.__file__;"
        "sys.exit(main(sys.argv[1:]))"
    )
    listed = python("-c", code, "list", "tasks", "--json", cwd=tmp_path, path=tmp_path / "site")
    assert (listed.code, listed.err) == (0, "")
    assert listed.out == python("-m", "stsbench", "list", "tasks", "--json", cwd=tmp_path).out
    verified = python("-c", code, "data", "verify", cwd=tmp_path, path=tmp_path / "site")
    assert (verified.code, verified.err) == (0, "")
    assert "4 of 4 splits match" in verified.out
    page = ("leaderboard", "--table", "simcse-5", "--format", "html")
    drawn = python("-c", code, *page, cwd=tmp_path, path=tmp_path / "site")
    assert (drawn.code, drawn.err) == (0, "") and "<script>" in drawn.out
    assert drawn.out == python("-m", "stsbench", *page, cwd=tmp_path).out
