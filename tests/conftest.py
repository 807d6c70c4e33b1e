"""What every test gets: fresh cache folders, real data only where it is marked ``data``, and no network."""

from __future__ import annotations

import gc
import itertools
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

# The Hub's library reads HF_HOME once, when it is imported: it is set before any test module is.
HOME = Path(tempfile.mkdtemp(prefix="stsbench-tests-"))
os.environ["HF_HOME"] = str(HOME / "huggingface")
# So is this one by torch: models of a few numbers train many times slower on two threads, which wait for each other.
os.environ["OMP_NUM_THREADS"] = "1"
# Else each worker rewrites all tests, and each process that a test starts compiles all of the package.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

USER_FOLDERS = ("STSBENCH_DATA", "STSBENCH_CORPORA", "STSBENCH_VECTORS")
LOOPBACK = ("127.", "::1", "localhost")
_numbers = itertools.count()


def pytest_unconfigure() -> None:
    shutil.rmtree(HOME, ignore_errors=True)


def pytest_collection_finish() -> None:
    # Each training run collects garbage, which would look through all modules and tests anew: half of its time.
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    # A hook, not a fixture: fixtures of wider scope are made before it could skip.
    if item.get_closest_marker("data") and not os.environ.get("STSBENCH_DATA"):
        pytest.skip("STSBENCH_DATA names no folder of real data")


@pytest.fixture(autouse=True)
def fresh_folders(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches that no other test and no user shares; the user's data folders for tests marked ``data`` alone."""
    home = HOME / str(next(_numbers))
    monkeypatch.setenv("STSBENCH_CACHE", str(home / "stsbench"))
    monkeypatch.setenv("HF_HOME", str(home / "huggingface"))
    for name in ("COLUMNS", "FORCE_COLOR", "GITHUB_ACTIONS", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    if not request.node.get_closest_marker("data"):
        for name in USER_FOLDERS:
            monkeypatch.delenv(name, raising=False)


# Small models with random weights, made once.


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plain BERT with 2 layers of 16 and 64 positions."""
    from tests.encoders.made_checkpoints import save_bert

    return save_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="session")
def saved(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """A checkpoint of sentence-transformers of each make, by what is special in it."""
    from tests.encoders.made_checkpoints import save_all

    return save_all(tmp_path_factory.mktemp("saved"), bert)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """A transformer of each architecture with a tokenizer of its own."""
    from tests.encoders.tiny import MAKES

    root = tmp_path_factory.mktemp("tiny")
    return {name: make(root / name) for name, make in MAKES.items()}


@pytest.fixture(scope="session")
def masked_lm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.training.students import save_masked_lm

    return save_masked_lm(tmp_path_factory.mktemp("masked-lm"))


@pytest.fixture(autouse=True, scope="session")
def no_network_and_no_waiting() -> Iterator[None]:
    """Fail a test that connects to anything but this machine, or looks a name up; nobody waits for the disk."""
    connect, connect_ex, getaddrinfo = (
        socket.socket.connect,
        socket.socket.connect_ex,
        socket.getaddrinfo,
    )

    def guarded_connect(self: socket.socket, address: Any) -> None:
        _stay_home(self.family, address)
        connect(self, address)

    def guarded_connect_ex(self: socket.socket, address: Any) -> int:
        _stay_home(self.family, address)
        return connect_ex(self, address)

    def guarded_getaddrinfo(host: Any, *rest: Any, **options: Any) -> Any:
        if str(host).endswith(".invalid"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        _stay_home(socket.AF_INET, (host,))
        return getaddrinfo(host, *rest, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded_connect)
        patch.setattr(socket.socket, "connect_ex", guarded_connect_ex)
        patch.setattr(socket, "getaddrinfo", guarded_getaddrinfo)
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


def _stay_home(family: int, address: Any) -> None:
    host = address[0] if family in (socket.AF_INET, socket.AF_INET6) else None
    if host is not None and not str(host).startswith(LOOPBACK):
        # No Exception: nothing that catches errors on the way hides it.
        pytest.fail(f"a test wanted to reach {address}")
