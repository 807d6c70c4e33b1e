"""Which commit made a result: that of the checkout the code runs from."""

import importlib.util
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

from stsbench.provenance import machine


def at(folder: Path) -> ModuleType:
    """The same module as part of a package in another folder."""
    place = folder / "stsbench" / "provenance" / "machine.py"
    if not place.exists():
        place.parent.mkdir(parents=True)
        shutil.copy(machine.__file__, place)
    spec = importlib.util.spec_from_file_location("machine_elsewhere", place)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def git(folder: Path, *words: str) -> str:
    known = ["-c", "user.name=A", "-c", "user.email=a@b.c"]
    done = subprocess.run(["git", *known, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_checkout_says_its_commit_and_whether_it_was_changed(tmp_path):
    assert at(tmp_path / "installed").commit() == (None, None)
    folder = tmp_path / "checkout"
    at(folder)
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "all")
    head = git(folder, "rev-parse", "HEAD")
    assert at(folder).commit() == (head, False)
    (folder / "results").mkdir()
    (folder / "results" / "new.json").write_text("{}")
    assert at(folder).commit() == (head, False)
    place = folder / "stsbench" / "provenance" / "machine.py"
    place.write_text(place.read_text() + "# changed")
    assert at(folder).commit() == (head, True)
