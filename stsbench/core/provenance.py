"""What identifies an embedding, as one line of text: the only place where it is put together.

    <fingerprint> of <class>(<parameters>) by <package> <version>, … fitted on <hash of texts>

The fingerprint is what the encoder says of itself. Class and parameters stand there for every
class but our own, whose fingerprints hold them. Packages are those that compute, as far as
another version may give other embeddings; versions that only round differently (torch's,
numpy's) are watched by :mod:`stsbench.encoders.engine.store`. The texts are there where it was fitted
on some. Store, results and locks are keyed by this text.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

from stsbench.core.errors import EncoderError
from stsbench.core.secrets import redact_with_digest

_FORM = re.compile(
    r"(?P<state>.*?)(?: by (?P<versions>[\w.-]+ [\w.+!-]+(?:, [\w.-]+ [\w.+!-]+)*))?(?P<texts> fitted on [0-9a-f]{64})?",
    re.DOTALL,
)
_MAKER = "_stsbench_maker"
PLACES = ("device",)
"""Parameters that say where an encoder runs, and nothing of its embeddings."""


class HasFingerprint(Protocol):
    """What an encoder says of itself."""

    @property
    def fingerprint(self) -> str | None:
        """Changes if and only if embeddings can change; None: embeddings are never reused."""
        ...


def fingerprint(facts: Mapping[str, Any], libraries: Iterable[str] = ()) -> str:
    """The sha256 of the facts, as JSON values, that decide an embedding, and the versions of the packages that compute it."""
    digest = hashlib.sha256(
        json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()
    return digest + _by(map(_version, libraries))


def derive_fingerprint(
    base: HasFingerprint, facts: Mapping[str, Any], libraries: Iterable[str] = ()
) -> str | None:
    """The fingerprint of what is made over another encoder: by the packages of both; None where the base has none."""
    under = encoder_identity(base)
    if under is None:
        return None
    inherited = (_parts(under)["versions"] or "").split(", ")
    own = fingerprint({**facts, "base": strip_versions(under)})
    return own + _by({*inherited, *map(_version, libraries)})


def encoder_identity(encoder: HasFingerprint) -> str | None:
    """What identifies an encoder's embeddings; None where they are never reused."""
    own = encoder.fingerprint
    if own is None:
        return None
    maker = _maker(encoder)
    if maker is None and is_own_class(type(encoder)):
        return own
    return f"{own} of {maker or _address(type(encoder))}"


def record_factory(
    encoder: HasFingerprint, maker: Callable[..., Any], params: Mapping[str, Any], *, called: str
) -> None:
    """Keep with an encoder what made it, where that is not one of our own kinds; its own fingerprint may not say.

    ``params`` are what the maker was given by a card or by the user; ``called`` is the name that it was found by, which
    distinguishes functions. Raises EncoderError where nothing can be kept with the encoder.
    """
    if is_own_class(maker):
        return
    kept = {
        key: redact_with_digest(value, key)
        for key, value in sorted(params.items())
        if key not in PLACES
    }
    given = ", ".join(
        f"{key}={json.dumps(value, sort_keys=True, default=str)}" for key, value in kept.items()
    )
    if maker is type(encoder) and not given:
        return
    address = _address(maker) if isinstance(maker, type) else called
    _keep(encoder, f"{address}({given})" if given else address)


def copy_factory(encoder: HasFingerprint, source: object) -> None:
    """Keep with an encoder what made the one that it comes from, as a fitted one from an unfitted."""
    if (maker := _maker(source)) is not None:
        _keep(encoder, maker)


def add_texts(fingerprint: str, texts: str) -> str:
    """The identity of an encoder that is fitted on the texts of this hash."""
    return f"{fingerprint} fitted on {texts}"


def strip_texts(identified: str) -> str:
    """An identity without the texts, which may be others for each task of one encoder."""
    return identified.removesuffix(_parts(identified)["texts"] or "")


def strip_versions(identified: str) -> str:
    """An identity without the packages' versions: the same weights and settings, whatever ran them."""
    parts = _parts(identified)
    return f"{parts['state']}{parts['texts'] or ''}"


def read_versions(identified: str) -> dict[str, str]:
    """The packages that an identity names, with their versions."""
    named = _parts(identified)["versions"]
    return dict(pair.split(" ", 1) for pair in named.split(", ")) if named else {}


def is_same_encoder(one: str | None, other: str | None) -> bool:
    """Whether two identities are of the same weights and settings, whatever versions of packages ran them."""
    return one is not None and other is not None and strip_versions(one) == strip_versions(other)


@lru_cache(maxsize=4096)
def _parts(identified: str) -> Mapping[str, str | None]:
    found = _FORM.fullmatch(identified)
    return found.groupdict() if found else {"state": identified, "versions": None, "texts": None}


def _by(versions: Iterable[str]) -> str:
    listed = ", ".join(sorted(filter(None, versions)))
    return f" by {listed}" if listed else ""


def _version(package: str) -> str:
    found = version_of(package)
    return f"{package} {found}" if found else ""


def is_own_class(made: object) -> bool:
    """Whether a class or function is one of stsbench's own."""
    return str(getattr(made, "__module__", "")).partition(".")[0] == "stsbench"


def _address(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _maker(encoder: object) -> str | None:
    # Not by getattr: a wrapper may answer for what is inside it.
    kept: str | None = getattr(encoder, "__dict__", {}).get(_MAKER)
    return kept


def _keep(encoder: object, maker: str) -> None:
    try:
        # Frozen dataclasses and torch modules have a __setattr__ of their own.
        object.__setattr__(encoder, _MAKER, maker)
    except (AttributeError, TypeError) as error:
        raise EncoderError(
            f"{type(encoder).__name__} takes no attributes (__slots__?), so its parameters cannot be kept with it; "
            "leave __slots__ out"
        ) from error


NOT_INSTALLED = "not installed"
PACKAGES = (
    "stsbench torch transformers tokenizers sentence-transformers numpy scipy scikit-learn".split()
)


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """The versions of Python and of the packages that can move a score."""
    return {package: version_of(package) or NOT_INSTALLED for package in ("python", *PACKAGES)}


def version_of(package: str) -> str:
    """The version of Python or of a package, empty where it is not installed."""
    if package == "python":
        return platform.python_version()
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


SCORING_PACKAGES = ("numba",)
"""Packages that compute scores and no embeddings."""


def scoring_versions(libraries: Iterable[str] = ()) -> dict[str, str]:
    """Return the versions that all machines of one run must have in common.

    Args:
        libraries: The packages that the run's encoders name, for example ``onnxruntime``.

    Returns:
        The version of each package, and the commit of stsbench, empty if it is no checkout.
    """
    compared = {**versions(), "commit of stsbench": (commit()[0] or "")[:12]}
    others = [package for package in (*SCORING_PACKAGES, *libraries) if package not in compared]
    return {**compared, **{package: version_of(package) or NOT_INSTALLED for package in others}}


def processor() -> str:
    """What the machine's processor calls itself, or its kind where it does not say."""
    with suppress(OSError):
        for line in (
            Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        ):
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    return platform.processor() or platform.machine()


@lru_cache(maxsize=1)
def commit() -> tuple[str | None, bool | None]:
    """The commit of the checkout stsbench runs from and whether it has changes; None when installed."""
    folder = Path(__file__).resolve().parents[2]
    if not (folder / ".git").exists():
        return None, None
    head = _git(folder, "rev-parse", "HEAD")
    status = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return (head or None, bool(status) if status is not None else None) if head else (None, None)


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *words], cwd=folder, capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
