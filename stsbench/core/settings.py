"""Folders and switches of this machine: the only module that reads environment variables."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from stsbench.core.errors import CardError, StsbenchError
from stsbench.core.secrets import REDACTED, SECRET_NAME
from stsbench.core.wording import as_one_line

KERNEL_FOLDERS = frozenset({"proc", "sys"})
"""The folders of Linux that the kernel shows, in which no file can be stored."""


def _folder(variable: str) -> Path | None:
    """Return the folder that an environment variable names; None if it is unset.

    Raises:
        StsbenchError: The value is not valid as a folder's path.
    """
    value = os.environ.get(variable, "").strip()
    if not value:
        return None
    try:
        folder = Path(value).expanduser()
        # A path that the system cannot look up raises here, where the variable is known.
        folder.exists()
        # The first folder below the root; the root itself has none.
        top_folders = set(folder.absolute().parts[1:2])
        if top_folders & KERNEL_FOLDERS:
            raise OSError(errno.EINVAL, "it is the kernel's, which keeps no files")
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or as_one_line(error)
        raise StsbenchError(
            f"{variable}='{value}' names no folder ({reason}); set it to one, or unset it"
        ) from error
    return folder


def data_folder() -> Path | None:
    """Return the folder of evaluation data in SentEval's layout (``STSBENCH_DATA``), or None."""
    return _folder("STSBENCH_DATA")


def corpora_folder() -> Path | None:
    """Return the folder of training text (``STSBENCH_CORPORA``); None if it is unset."""
    return _folder("STSBENCH_CORPORA")


def vectors_folder() -> Path | None:
    """Return the folder of word vector files (``STSBENCH_VECTORS``); None if it is unset."""
    return _folder("STSBENCH_VECTORS")


def runs_folder() -> Path:
    """Return the folder of trained encoders (``STSBENCH_RUNS``, else ``runs``)."""
    return _folder("STSBENCH_RUNS") or Path("runs")


def cache_folder() -> Path:
    """Return the folder of files that can be made again (``STSBENCH_CACHE``, else the user's)."""
    if folder := _folder("STSBENCH_CACHE"):
        return folder
    try:
        return (_folder("XDG_CACHE_HOME") or Path.home() / ".cache") / "stsbench"
    except RuntimeError as error:
        raise StsbenchError(
            "you have no home folder to keep a cache in; set STSBENCH_CACHE to a folder"
        ) from error


def store_folder() -> Path:
    """Return the folder of stored embeddings."""
    return cache_folder() / "store"


def ray_address() -> str:
    """Return the cluster that Ray's own tools join too (``RAY_ADDRESS``); empty if it is unset."""
    return os.environ.get("RAY_ADDRESS", "").strip()


def worker_environment() -> dict[str, str]:
    """Return the environment variables that workers on other machines need.

    They are all that embeddings, fits and trainings depend on.
    """
    names = (
        "OMP_NUM_THREADS",
        "STSBENCH_CORPORA",
        "STSBENCH_DATA",
        "STSBENCH_RUNS",
        "STSBENCH_VECTORS",
    )
    return {name: os.environ[name] for name in names if os.environ.get(name)}


def keep_ray_silent() -> None:
    """Keep Ray, which is about to be imported, from reporting to its makers and printing on stdout.

    Variables that the user has set are left as they are.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")
    # Ray has two versions of Ray Train up to 2.50; this selects the later one.
    os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")


def tokenize_in_one_thread() -> None:
    """Make tokenizers use one thread, also in forked processes: threads do not survive a fork."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def share_cores() -> None:
    """If other processes load the cores, let the threads of torch sleep while they wait.

    Call it before torch is imported. By default the threads spin, which holds a core that another
    process could use; on free cores spinning is faster. ``benchmarks/encode.py --busy`` measures
    both. A variable that the user has set is left as it is.
    """
    if hasattr(os, "getloadavg") and os.getloadavg()[0] > (os.cpu_count() or 1) / 2:
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")


@contextmanager
def limit_threads(n_threads: int) -> Iterator[None]:
    """Let processes that start in the block compute on so many threads.

    A number that the user has set (``OMP_NUM_THREADS``) is left as it is.
    """
    is_set = "OMP_NUM_THREADS" in os.environ
    os.environ.setdefault("OMP_NUM_THREADS", str(n_threads))
    try:
        yield
    finally:
        if not is_set:
            del os.environ["OMP_NUM_THREADS"]


def terminal_columns() -> int | None:
    """Return the width of tables in columns (``COLUMNS``); None if it is unset or not valid."""
    value = os.environ.get("COLUMNS", "")
    return int(value) if re.fullmatch("[0-9]{1,4}", value) and int(value) else None


def terminal_variables() -> dict[str, str]:
    """Return the environment variables that describe the terminal, without those of its size."""
    return {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}


def is_on_github() -> bool:
    """Return whether this is a step of a GitHub workflow, which may read output as commands."""
    return os.environ.get("GITHUB_ACTIONS", "").lower() == "true"


def read_secret(variable: str) -> str:
    """Return the key in an environment variable, to be sent to a server and never written.

    Raises:
        StsbenchError: The variable holds no key, or its name may be a key itself.
    """
    key = os.environ.get(variable, "").strip()
    if not key and (problem := find_key_problem({"key_variable": variable})):
        raise StsbenchError(problem)
    if not key:
        raise StsbenchError(
            f"the environment variable {variable} holds no key; set it to that of the server"
        )
    return key


def find_key_problem(params: Mapping[str, object]) -> str:
    """Return what is wrong if an encoder's parameters hold a server's key; else an empty string.

    Only the name of the key's environment variable belongs into parameters: the key itself would be
    in names, results and logs, so that the message omits it too. The text that replaces secrets in
    files is no valid value either.
    """
    for name, value in params.items():
        if REDACTED in str(value):
            return (
                f"{name}: {REDACTED} stands for a secret, which is never written; "
                f"type it again: `params={name}=VALUE`"
            )
    # The name of a variable that is set may have any spelling; an unset one only the usual one.
    variable = params.get("key_variable")
    names_variable = isinstance(variable, str) and (
        variable in os.environ or _VARIABLE_NAME.fullmatch(variable) is not None
    )
    if variable and not names_variable:
        return (
            "key_variable names no environment variable that is set, and may be the key itself; "
            f"{_KEY_BELONGS}"
        )
    # Further fields of each request, which could carry a key past ``key_variable``.
    body = params.get("body")
    if isinstance(body, str) or (isinstance(body, Mapping) and _holds_key(body)):
        return f"body must be a table of fields, none of which holds a key; {_KEY_BELONGS}"
    nested_problems = [
        find_key_problem(value)
        for key, value in params.items()
        if key != "body" and isinstance(value, Mapping)
    ]
    return next(filter(None, nested_problems), "")


def _holds_key(value: object, name: str = "") -> bool:
    """Return whether a value, or a text inside it, may be a secret key of a server.

    A text may be one if it looks like such a key, or if it has a name that secrets have.

    Args:
        value: A TOML value.
        name: The name under which the value is given; that of a list counts for its items.
    """
    if isinstance(value, Mapping):
        return any(_holds_key(nested_value, str(key)) for key, nested_value in value.items())
    if isinstance(value, list | tuple):
        return any(_holds_key(nested_value, name) for nested_value in value)
    if not isinstance(value, str) or not value:
        return False
    return bool(SECRET_NAME.fullmatch(name) or _KEY_PATTERN.search(value))


_KEY_BELONGS = "put the key into an environment variable and name that: `params=key_variable=NAME`"
_VARIABLE_NAME = re.compile(r"[A-Z_][A-Z0-9_]{,63}")
"""The usual spelling of variables; a name of another spelling is shown only if it is set."""
_KEY_PATTERN = re.compile(
    r"(?=\S*\d)(\b(sk|pk|hf|pa|gsk|xai|jina|nvapi)[-_][\w-]{8,}|[\w-]{32,})|\bbearer\s",
    re.IGNORECASE,
)
"""A known prefix, or 32 characters or more without a blank; both with a digit."""


def hub_is_offline() -> bool:
    """Return whether the user keeps the Hub's libraries off the network."""
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")
    return any(os.environ.get(name, "").upper() in {"1", "ON", "YES", "TRUE"} for name in names)


def check_hub() -> None:
    """Check the environment variables that the Hub's library reads while it is imported.

    With a wrong value the import itself would fail, with an error that does not name the variable.

    Raises:
        StsbenchError: A variable has no valid value.
    """
    for name in ("HF_ENDPOINT", "HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT"):
        value = os.environ.get(name, "0")  # "0" is a valid address and a valid number
        try:
            if name == "HF_ENDPOINT":
                urlsplit(value)
            else:
                int(value)
        except ValueError as error:
            expected = "an address" if name == "HF_ENDPOINT" else "a whole number of seconds"
            raise StsbenchError(
                f"{name}='{value}' is not {expected}; set it to one, or unset it"
            ) from error


def package_folder(package: str) -> Path | None:
    """Return the folder of an installed package without importing it; None if it is not installed.

    Raises:
        CardError: The name is not that of a top-level package.
    """
    # find_spec imports a to look up a.b, and fails on __main__ and on names too long for a folder.
    if not package.isidentifier() or package == "__main__" or len(package) > 200:
        raise CardError(
            f"package '{package[:40]}' is not the name of an installed package; "
            "give one without dots"
        )
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))
