"""A user's own encoder, as a package with an entry point and as a class in a module."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stsbench.results.folder import read_states
from tests.cli.commands import process, write

PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "my-encoders"
version = "1.0"

[project.entry-points."stsbench.encoders"]
bag-of-letters = "my_encoders.letters:BagOfLetters"
"""
# All that a user writes.
ENCODER = """\
import numpy as np


class BagOfLetters:
    name = "bag-of-letters"
    fingerprint = "bag-of-letters 1"

    def encode(self, sentences):
        return np.array([[s.count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"] for s in sentences], np.float32)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the package is installed into by pip."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    write(source / "pyproject.toml", PYPROJECT)
    write(source / "my_encoders" / "__init__.py", "")
    write(source / "my_encoders" / "letters.py", ENCODER)
    quiet = [
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--disable-pip-version-check",
    ]
    pip = [sys.executable, "-m", "pip", "install", *quiet, "--target", str(target), str(source)]
    done = subprocess.run(pip, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return target


def test_an_installed_encoder_runs_by_name_and_by_address(installed, tmp_path):
    encoded = []
    # The second time it is the same encoder, found in the store by its fingerprint.
    for spec in ("bag-of-letters", "my_encoders.letters:BagOfLetters"):
        run = ["run", "--tasks", "quickstart-en", "--encoder", spec, "--fresh"]
        code, out, err = process(*run, cwd=tmp_path, path=installed)
        assert (code, err) == (0, "")
        assert out.startswith("bag-of-letters\n")
        (result,) = read_states(tmp_path / "results").results
        assert result.encoder == "bag-of-letters"
        assert result.fingerprint == "bag-of-letters 1 of my_encoders.letters:BagOfLetters"
        encoded.append(result.run["encoded"])
    assert encoded[0] > 0 and encoded[1] == 0
