"""Where things are on this machine; the only module that reads environment variables."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from stsbench.core.errors import CardError, StsbenchError
from stsbench.core.secrets import REDACTED, SECRET_NAME
from stsbench.core.wording import join_lines

KERNEL = frozenset({"proc", "sys"})
"""What the kernel shows as folders at the top of Linux."""


def _folder(variable: str) -> Path | None:
    value = os.environ.get(variable, "").strip()
    try:
        folder = Path(value).expanduser() if value else None
        # So that what the system cannot even look for is refused here, with the variable's name.
        if folder is not None:
            folder.exists()
            if {*folder.absolute().parts[1:2]} & KERNEL:
                raise OSError(errno.EINVAL, "it is the kernel's, which keeps no files")
    except (OSError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or join_lines(error)
        raise StsbenchError(
            f"{variable}='{value}' names no folder ({why}); set it to one, or unset it"
        ) from error
    return folder


def data_folder() -> Path | None:
    """The local folder of evaluation data in SentEval's layout (``STSBENCH_DATA``)."""
    return _folder("STSBENCH_DATA")


def corpora_folder() -> Path | None:
    """The local folder of training text (``STSBENCH_CORPORA``)."""
    return _folder("STSBENCH_CORPORA")


def vectors_folder() -> Path | None:
    """The local folder of word vector files (``STSBENCH_VECTORS``)."""
    return _folder("STSBENCH_VECTORS")


def runs_folder() -> Path:
    """Where trained encoders are written and looked for (``STSBENCH_RUNS``, else ``runs``)."""
    return _folder("STSBENCH_RUNS") or Path("runs")


def cache_folder() -> Path:
    """Where stsbench keeps what it can make again (``STSBENCH_CACHE``, else the user's cache folder)."""
    if given := _folder("STSBENCH_CACHE"):
        return given
    try:
        return (_folder("XDG_CACHE_HOME") or Path.home() / ".cache") / "stsbench"
    except RuntimeError as error:
        raise StsbenchError(
            "you have no home folder to keep a cache in; set STSBENCH_CACHE to a folder"
        ) from error


def store_folder() -> Path:
    """Where stored embeddings are kept."""
    return cache_folder() / "store"


def ray_address() -> str:
    """The cluster that Ray's own tools join too (``RAY_ADDRESS``); nothing where none is named."""
    return os.environ.get("RAY_ADDRESS", "").strip()


def for_workers() -> dict[str, str]:
    """What workers on other machines get of this environment: all that embeddings, fits and trainings depend on."""
    names = (
        "OMP_NUM_THREADS",
        "STSBENCH_CORPORA",
        "STSBENCH_DATA",
        "STSBENCH_RUNS",
        "STSBENCH_VECTORS",
    )
    return {name: os.environ[name] for name in names if os.environ.get(name)}


def keep_ray_silent() -> None:
    """Let Ray, which is about to be imported, report nothing to its makers, and print nothing among the scores on stdout.

    What the user says of either goes before.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")
    # Up to 2.50 there are two Ray Trains; this is the later one.
    os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")


def tokenize_in_one_thread() -> None:
    """Let tokenizers work in one thread from now on, here and in processes that are forked: theirs do not survive a fork."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def share_cores() -> None:
    """Where others load the cores, let the threads of torch, which is about to be imported, sleep while they wait.

    They would spin, and hold a core that a neighbour could use. On cores that are free spinning is faster: both by
    ``benchmarks/encode.py --busy``. What the user says goes before.
    """
    if hasattr(os, "getloadavg") and os.getloadavg()[0] > (os.cpu_count() or 1) / 2:
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def terminal_columns() -> int | None:
    """How many columns tables may have, where the user says a number that makes sense (``COLUMNS``)."""
    said = os.environ.get("COLUMNS", "")
    return int(said) if re.fullmatch("[0-9]{1,4}", said) and int(said) else None


def terminal() -> dict[str, str]:
    """What the environment says of the terminal, without its size."""
    return {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}


def on_github() -> bool:
    """Whether this is a step of a workflow on GitHub, whose runner takes lines of the output for commands."""
    return os.environ.get("GITHUB_ACTIONS", "").lower() == "true"


def secret(variable: str) -> str:
    """The key that a variable holds, sent to a server and written nowhere; raises StsbenchError where it is not set."""
    key = os.environ.get(variable, "").strip()
    if not key and (problem := key_among({"key_variable": variable})):
        raise StsbenchError(problem)
    if not key:
        raise StsbenchError(
            f"the environment variable {variable} holds no key; set it to that of the server"
        )
    return key


def key_among(params: Mapping[str, object]) -> str:
    """What is wrong with an encoder's parameters that hold a server's key where its variable's name belongs; empty if none do.

    The key would stand in names, results and logs, so the message does not show it either. Nor may a parameter have what
    stands in files in the place of a secret.
    """
    for name, value in params.items():
        if REDACTED in str(value):
            return f"{name}: {REDACTED} stands for a secret, which is never written; type it again: --set {name}=VALUE"
    variable, body = params.get("key_variable"), params.get("body")
    inside = [
        key_among(one) for key, one in params.items() if key != "body" and isinstance(one, Mapping)
    ]
    if variable and not (
        isinstance(variable, str) and (variable in os.environ or _VARIABLE.fullmatch(variable))
    ):
        return f"key_variable names no environment variable that is set, and may be the key itself; {_KEY_BELONGS}"
    if isinstance(body, str) or (isinstance(body, Mapping) and _holds_key(body)):
        return f"body must be a table of fields, none of which holds a key; {_KEY_BELONGS}"
    return next(filter(None, inside), "")


def _holds_key(value: object, name: str = "") -> bool:
    if isinstance(value, Mapping):
        return any(_holds_key(one, str(key)) for key, one in value.items())
    if isinstance(value, list | tuple):
        return any(_holds_key(one, name) for one in value)
    return isinstance(value, str) and bool(
        value and SECRET_NAME.fullmatch(name) or _KEY.search(value)
    )


_KEY_BELONGS = "put the key into an environment variable and name that: --set key_variable=NAME"
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{,63}")
"""As variables are spelled; of others a name is shown only where they are set."""
_KEY = re.compile(
    r"(?=\S*\d)(\b(sk|pk|hf|pa|gsk|xai|jina|nvapi)[-_][\w-]{8,}|[\w-]{32,})|\bbearer\s",
    re.IGNORECASE,
)
"""A known beginning, or 32 signs and more without a blank; with a digit."""


def hub_is_offline() -> bool:
    """Whether the user keeps the Hub's libraries off the network."""
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")
    return any(os.environ.get(name, "").upper() in {"1", "ON", "YES", "TRUE"} for name in names)


def check_hub() -> None:
    """Refuse values at which the Hub's library would end while it is imported; raises StsbenchError."""
    for name in ("HF_ENDPOINT", "HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT"):
        value = os.environ.get(name, "0")
        try:
            urlsplit(value) if name == "HF_ENDPOINT" else int(value)
        except ValueError as error:
            wanted = "an address" if name == "HF_ENDPOINT" else "a whole number of seconds"
            raise StsbenchError(
                f"{name}='{value}' is not {wanted}; set it to one, or unset it"
            ) from error


def package_folder(package: str) -> Path | None:
    """The folder of an installed package, which is located and never imported; None where there is none."""
    # Of one inside another, the other would be imported; a longer name is no folder's.
    if not package.isidentifier() or package == "__main__" or len(package) > 200:
        raise CardError(
            f"package '{package[:40]}' is not the name of an installed package; give one without dots"
        )
    spec = find_spec(package)
    places = list(spec.submodule_search_locations or []) if spec is not None else []
    return Path(places[0]) if places else None
