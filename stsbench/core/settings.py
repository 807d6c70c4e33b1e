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


def _folder_of_variable(variable: str) -> Path | None:
    """Return the folder that an environment variable names; None if it is unset or empty.

    The folder need not exist.

    Raises:
        StsbenchError: The value is not valid as a folder's path, or is a folder of the kernel's,
            such as ``/proc``.
    """
    value = os.environ.get(variable, "").strip()
    if not value:
        return None
    try:
        folder = Path(value).expanduser()
        # The result is not needed: a path that the system cannot look up raises here, where the
        # name of the variable can be put into the message.
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
    return _folder_of_variable("STSBENCH_DATA")


def corpora_folder() -> Path | None:
    """Return the folder of training text (``STSBENCH_CORPORA``); None if it is unset."""
    return _folder_of_variable("STSBENCH_CORPORA")


def vectors_folder() -> Path | None:
    """Return the folder of word vector files (``STSBENCH_VECTORS``); None if it is unset."""
    return _folder_of_variable("STSBENCH_VECTORS")


def runs_folder() -> Path:
    """Return the folder of trained encoders (``STSBENCH_RUNS``, else ``runs``)."""
    return _folder_of_variable("STSBENCH_RUNS") or Path("runs")


def cache_folder() -> Path:
    """Return the folder for files that can be made again at any time, such as downloads.

    It is the folder that the environment variable ``STSBENCH_CACHE`` names. If that is unset, it is
    the folder ``stsbench`` in the user's cache: in ``XDG_CACHE_HOME``, or else in ``~/.cache``.

    Raises:
        StsbenchError: A variable has no valid value, or the user has no home folder.
    """
    folder = _folder_of_variable("STSBENCH_CACHE")
    if folder is not None:
        return folder
    try:
        user_cache = _folder_of_variable("XDG_CACHE_HOME") or Path.home() / ".cache"
        return user_cache / "stsbench"
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
    """Return the environment variables, by name, that processes on other machines need.

    Embeddings and trainings depend on them. Variables that are unset or empty are omitted.
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
    """Set environment variables of the library Ray; call it before Ray is imported.

    They stop reports of its use to its makers and lines about repeated messages on standard output,
    and select a version of a part of it. Variables that the user has set are left as they are.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # No message is checked for repetitions.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")
    # Ray has two versions of Ray Train up to 2.50; this selects the later one.
    os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")


def tokenize_in_one_thread() -> None:
    """Make tokenizers use one thread, also in forked processes: threads do not survive a fork."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def share_cores() -> None:
    """Let the threads of torch sleep while they wait, if other processes use the cores.

    Call it before torch is imported. By default waiting threads spin: they test again and again
    whether there is work. On free cores that is faster, but it holds a core that another process
    could use. ``benchmarks/encode.py --busy`` measures both. A variable that the user has set is
    left as it is.
    """
    # Windows has no such figure.
    if not hasattr(os, "getloadavg"):
        return
    load_of_last_minute, *_ = os.getloadavg()
    if load_of_last_minute > (os.cpu_count() or 1) / 2:
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")


@contextmanager
def limit_threads(n_threads: int) -> Iterator[None]:
    """Let each process that is started in a ``with`` block compute on ``n_threads`` threads.

    The number is passed in the environment variable ``OMP_NUM_THREADS``. If the user has set the
    variable, nothing changes.
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
    """Return the secret key of a server, which an environment variable holds.

    It is to be sent to the server, and never to be written to a file or message.

    Args:
        variable: The name of the variable.

    Raises:
        StsbenchError: The variable is unset, or its name may be the key itself, put in the wrong
            place by the user; the message does not repeat it then.
    """
    key = os.environ.get(variable, "").strip()
    if key:
        return key
    # Empty, unless the name of the variable may be the key.
    problem = find_key_problem({"key_variable": variable})
    raise StsbenchError(
        problem or f"the environment variable {variable} holds no key; set it to that of the server"
    )


def find_key_problem(params: Mapping[str, object]) -> str:
    """Return the message of a problem if an encoder's parameters may hold the key of a server.

    Such a key is secret, but parameters are written to names, results and logs. So a parameter may
    only name the environment variable that holds the key. The message does not repeat the key.

    These are the problems, in this order:

    * a value has the text ``REDACTED``, which stands for a secret in a file of results;
    * ``key_variable`` is no name of a variable, so it may be the key itself;
    * ``body``, fields to add to each request, is no table, or may hold a key;
    * a table among the parameters has one of these problems.

    Args:
        params: The parameters, TOML values by name.

    Returns:
        The message for the user; empty if there is no problem.
    """
    for name, value in params.items():
        if REDACTED in str(value):
            return (
                f"{name}: {REDACTED} stands for a secret, which is never written; "
                f"type it again: `params={name}=VALUE`"
            )
    # The name of a variable that is set may have any spelling. An unset one must have the usual
    # spelling, in capitals: any other text may be a key.
    variable = params.get("key_variable")
    is_variable_name = isinstance(variable, str) and (
        variable in os.environ or _VARIABLE_NAME.fullmatch(variable) is not None
    )
    if variable and not is_variable_name:
        return (
            "key_variable names no environment variable that is set, and may be the key itself; "
            f"{_WHERE_A_KEY_BELONGS}"
        )
    # A key in these fields would reach the server without ``key_variable``.
    body = params.get("body")
    if body is not None and (not isinstance(body, Mapping) or _may_hold_secret(body)):
        return f"body must be a table of fields, none of which holds a key; {_WHERE_A_KEY_BELONGS}"
    nested_problems = [
        find_key_problem(value)
        for key, value in params.items()
        if key != "body" and isinstance(value, Mapping)
    ]
    return next(filter(None, nested_problems), "")


def _may_hold_secret(value: object, name: str = "") -> bool:
    """Return whether a value, or a text inside it, may be a password or a key of a server.

    A text may be one if it looks like such a key (``_KEY_PATTERN``: a digit with a known prefix or
    in 32 characters or more, or ``bearer`` before a blank), or if its name is one that secrets
    have, such as ``password``.

    Args:
        value: A TOML value. The texts in tables and lists are checked too.
        name: The name of the value; the texts of a list have the list's name.
    """
    if isinstance(value, Mapping):
        return any(_may_hold_secret(nested_value, str(key)) for key, nested_value in value.items())
    if isinstance(value, list | tuple):
        return any(_may_hold_secret(nested_value, name) for nested_value in value)
    if not isinstance(value, str) or not value:
        return False
    return bool(SECRET_NAME.fullmatch(name) or _KEY_PATTERN.search(value))


_WHERE_A_KEY_BELONGS = (
    "put the key into an environment variable and name that: `params=key_variable=NAME`"
)
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
    """Check the environment variables of the Hugging Face Hub's library before it is imported.

    With a wrong value the import itself would fail, with an error that does not name the variable.
    ``HF_ENDPOINT`` is the address of the Hub, and the others are limits of time, in seconds.

    Raises:
        StsbenchError: A variable has no valid value.
    """
    for name in ("HF_ENDPOINT", "HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT"):
        # An unset variable passes: "0" is a valid address and a valid number.
        value = os.environ.get(name, "0")
        is_address = name == "HF_ENDPOINT"
        try:
            if is_address:
                urlsplit(value)
            else:
                int(value)
        except ValueError as error:
            expected = "an address" if is_address else "a whole number of seconds"
            raise StsbenchError(
                f"{name}='{value}' is not {expected}; set it to one, or unset it"
            ) from error


def package_folder(package: str) -> Path | None:
    """Return the folder of an installed Python package, without importing the package.

    The result is None if the package is not installed, or is a module of one file.

    Raises:
        CardError: The name is not that of a package outside all other packages.
    """
    # find_spec would import a package to look up one inside it, and fails on __main__ and on names
    # too long for a folder.
    if not package.isidentifier() or package == "__main__" or len(package) > 200:
        raise CardError(
            f"package '{package[:40]}' is not the name of an installed package; "
            "give one without dots"
        )
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    first_folder = next(iter(spec.submodule_search_locations))
    return Path(first_folder)
