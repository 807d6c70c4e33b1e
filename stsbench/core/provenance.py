"""The identity of an embedding as one line of text, and the versions of the software behind it.

    <fingerprint> of <class>(<parameters>) by <package> <version>, … fitted on <hash of texts>

The fingerprint is the encoder's own. Class and parameters are added for every class except ours,
whose fingerprints include them. The packages are those that compute embeddings, as far as another
version may give other embeddings; versions that only round differently (torch's, numpy's) are
checked by :mod:`stsbench.encoders.engine.drift`. The hash of texts is added if the encoder was
fitted on some. Store, results and locks are keyed by this text, which only this module composes.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from stsbench.core.errors import EncoderError
from stsbench.core.secrets import redact_with_digest

_IDENTITY = re.compile(
    r"(?P<state>.*?)"
    r"(?: by (?P<versions>[\w.-]+ [\w.+!-]+(?:, [\w.-]+ [\w.+!-]+)*))?"
    r"(?P<texts> fitted on [0-9a-f]{64})?",
    re.DOTALL,
)
_FACTORY_ATTRIBUTE = "_stsbench_maker"
RUNTIME_PARAMETERS = ("device",)
"""Parameters that decide where an encoder runs; they do not change its embeddings."""


class HasFingerprint(Protocol):
    """An object with a fingerprint, as every encoder is."""

    @property
    def fingerprint(self) -> str | None:
        """A text that changes if and only if embeddings can; None: they are never reused."""
        ...


def fingerprint(facts: Mapping[str, Any], libraries: Iterable[str] = ()) -> str:
    """Return a text that differs between two encoders if their embeddings may differ.

    It is a sha256, followed by the versions of packages: ``3f2a… by tokenizers 0.22, torch 2.8``.

    Args:
        facts: All that decides an embedding, such as hashes of weights and settings: JSON values by
            name.
        libraries: The packages that compute the embedding; those not installed are omitted.
    """
    digest = hashlib.sha256(
        json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()
    return digest + _format_versions(map(_package_and_version, libraries))


def derive_fingerprint(
    base: HasFingerprint, facts: Mapping[str, Any], libraries: Iterable[str] = ()
) -> str | None:
    """Return the fingerprint of an encoder that transforms the embeddings of another one.

    A fingerprint is a text that differs between two encoders if their embeddings may differ; see
    :func:`fingerprint`.

    Args:
        base: The encoder whose embeddings are transformed.
        facts: All that decides the transformation: JSON values by name.
        libraries: The packages that compute the transformation.

    Returns:
        A sha256, and the versions of the packages of the base and of the transformation; None if
        the base has no fingerprint.
    """
    base_identity = encoder_identity(base)
    if base_identity is None:
        return None
    # Texts such as "torch 2.8". An empty one, for a missing package, is left out below.
    base_versions = (_parse_identity(base_identity).versions or "").split(", ")
    versions_of_libraries = map(_package_and_version, libraries)
    # Versions follow the hash as text, and are in no hash: other versions are the same encoder.
    facts_digest = fingerprint({**facts, "base": strip_versions(base_identity)})
    return facts_digest + _format_versions({*base_versions, *versions_of_libraries})


def encoder_identity(encoder: HasFingerprint) -> str | None:
    """Return the text by which stored embeddings and results of an encoder are recognised.

    For an encoder of stsbench's own classes it is the fingerprint, which changes if embeddings
    may change. The fingerprint of a user's own code may not include everything, so the text also
    names the factory, the function or class that made the encoder, with its parameters; if it is
    not recorded, the class of the encoder.

    Returns:
        For example ``3f2a… of mine:make(layers=6)``; None if the encoder has no fingerprint, which
        means that its embeddings are never reused.
    """
    encoder_fingerprint = encoder.fingerprint
    if encoder_fingerprint is None:
        return None
    factory = _read_factory(encoder)
    if factory is None and is_own_class(type(encoder)):
        return encoder_fingerprint
    return f"{encoder_fingerprint} of {factory or _class_address(type(encoder))}"


def record_factory(
    encoder: HasFingerprint, factory: Callable[..., Any], params: Mapping[str, Any], *, name: str
) -> None:
    """Store in an encoder which function or class made it, and from which parameters.

    The text, such as ``mine:make(layers=6)``, becomes part of the encoder's identity, by which its
    embeddings and results are recognised (:func:`encoder_identity`). Secrets among the parameters
    are replaced by hashes. Parameters that change no embedding (``RUNTIME_PARAMETERS``, such as the
    device) are omitted.

    Nothing is stored in two cases. If the factory is stsbench's own, the fingerprints of its
    encoders include everything. If it is the encoder's class, called without parameters, the
    identity names that class anyway.

    Args:
        encoder: The encoder that was made.
        factory: The class or function that made it.
        params: The parameters that a card or the user passed to the factory.
        name: The address under which the user named the factory; it is stored for a function.

    Raises:
        EncoderError: The encoder accepts no new attribute.
    """
    if is_own_class(factory):
        return
    redacted_params = {
        key: redact_with_digest(value, key)
        for key, value in sorted(params.items())
        if key not in RUNTIME_PARAMETERS
    }
    params_text = ", ".join(
        f"{key}={json.dumps(value, sort_keys=True, default=str)}"
        for key, value in redacted_params.items()
    )
    if factory is type(encoder) and not params_text:
        return
    # Of a class "module:Name", by whichever name it was imported.
    address = _class_address(factory) if isinstance(factory, type) else name
    factory_text = f"{address}({params_text})" if params_text else address
    _store_factory(encoder, factory_text)


def copy_factory(encoder: HasFingerprint, source: object) -> None:
    """Store the factory of another encoder in an encoder: a fitted one has that of the unfitted."""
    if (factory := _read_factory(source)) is not None:
        _store_factory(encoder, factory)


def add_texts(fingerprint: str, texts: str) -> str:
    """Return the identity of an encoder that is fitted on the texts of this hash."""
    return f"{fingerprint} fitted on {texts}"


def strip_texts(identity: str) -> str:
    """Return an identity without the hash of texts, which may differ between tasks."""
    return identity.removesuffix(_parse_identity(identity).texts or "")


def strip_versions(identity: str) -> str:
    """Return an identity without package versions: weights and settings are left."""
    parts = _parse_identity(identity)
    return f"{parts.state}{parts.texts or ''}"


def read_versions(identity: str) -> dict[str, str]:
    """Return the packages that an identity names, with their versions; empty if it names none."""
    versions_text = _parse_identity(identity).versions
    return dict(pair.split(" ", 1) for pair in versions_text.split(", ")) if versions_text else {}


def is_same_encoder(first_identity: str | None, second_identity: str | None) -> bool:
    """Return whether two identities have the same weights and settings; versions may differ."""
    return (
        first_identity is not None
        and second_identity is not None
        and strip_versions(first_identity) == strip_versions(second_identity)
    )


class _IdentityParts(NamedTuple):
    state: str
    """The beginning: the hash of weights and settings, and the factory if there is one."""
    versions: str | None
    """The package versions, as in ``numpy 2.1, torch 2.5``; None if there are none."""
    texts: str | None
    """The end that names the hash of the texts that were fitted on; None if there are none."""


@lru_cache(maxsize=4096)
def _parse_identity(identity: str) -> _IdentityParts:
    """Split an identity into its parts; one of another form is all ``state``."""
    match = _IDENTITY.fullmatch(identity)
    if match is None:
        return _IdentityParts(identity, versions=None, texts=None)
    return _IdentityParts(**match.groupdict())


def _format_versions(versions: Iterable[str]) -> str:
    """Return the end of a sentence that names versions: empty, or as in " by a, b"."""
    text = ", ".join(sorted(filter(None, versions)))
    return f" by {text}" if text else ""


def _package_and_version(package: str) -> str:
    """Return ``"<package> <version>"``, empty if the package is not installed."""
    version = version_of(package)
    return f"{package} {version}" if version else ""


def is_own_class(class_or_function: object) -> bool:
    """Return whether a class or function is one of stsbench's own."""
    return str(getattr(class_or_function, "__module__", "")).partition(".")[0] == "stsbench"


def _class_address(encoder_class: type) -> str:
    return f"{encoder_class.__module__}:{encoder_class.__qualname__}"


def _read_factory(encoder: object) -> str | None:
    """Return the address of the function or class that made an encoder; None if none is noted."""
    # Not by getattr: a wrapper may answer for what is inside it.
    factory: str | None = getattr(encoder, "__dict__", {}).get(_FACTORY_ATTRIBUTE)
    return factory


def _store_factory(encoder: object, factory: str) -> None:
    """Set an attribute of an encoder that names the function or class that made it.

    Args:
        encoder: The encoder, which may be an object of a user's own class.
        factory: The address of the function or class, with parameters: ``mine:make(layers=6)``.

    Raises:
        EncoderError: The encoder accepts no further attribute.
    """
    try:
        # Frozen dataclasses and torch modules have a __setattr__ of their own, which would refuse.
        object.__setattr__(encoder, _FACTORY_ATTRIBUTE, factory)
    except (AttributeError, TypeError) as error:
        raise EncoderError(
            f"{type(encoder).__name__} takes no attributes (__slots__?), "
            "so its parameters cannot be kept with it; leave __slots__ out"
        ) from error


NOT_INSTALLED = "not installed"
PACKAGES = (
    "stsbench",
    "torch",
    "transformers",
    "tokenizers",
    "sentence-transformers",
    "numpy",
    "scipy",
    "scikit-learn",
)


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that can change a score."""
    return {package: version_of(package) or NOT_INSTALLED for package in ("python", *PACKAGES)}


def version_of(package: str) -> str:
    """Return the version of an installed package, or of Python; empty if it is not installed.

    Args:
        package: The package's name, or ``python``.
    """
    if package == "python":
        return platform.python_version()
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


@cache
def code_digest(*folders: Path) -> str:
    """Return the sha256 of all Python files in these folders and of the versions of two packages.

    It changes if this code may compute other numbers. The packages are numpy and scipy,
    with which it computes.
    """
    files = sorted(file for folder in folders for file in folder.rglob("*.py"))
    sources = b"".join(file.read_bytes() for file in files)
    packages = " ".join(version_of(name) for name in ("numpy", "scipy"))
    return hashlib.sha256(sources + packages.encode()).hexdigest()


SCORING_PACKAGES = ("numba",)
"""Packages that compute scores but no embeddings."""


def scoring_versions(libraries: Iterable[str] = ()) -> dict[str, str]:
    """Return the versions of software that all machines of one run must have in common.

    Args:
        libraries: The packages that the run's encoders name, for example ``onnxruntime``.

    Returns:
        Package -> version, or "not installed": of Python, of stsbench and of all packages that can
        change a score, such as torch and numpy. The key ``commit of stsbench`` has the first 12
        digits of the git commit from which stsbench runs, or an empty text if it is an installed
        package.
    """
    versions_by_name = {**versions(), "commit of stsbench": (commit().commit or "")[:12]}
    for package in (*SCORING_PACKAGES, *libraries):
        if package not in versions_by_name:
            versions_by_name[package] = version_of(package) or NOT_INSTALLED
    return versions_by_name


def processor() -> str:
    """Return the model name of this machine's processor, or its kind, such as ``x86_64``."""
    # Linux has this file; other systems go on below.
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        for line in text.splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    return platform.processor() or platform.machine()


class CheckoutState(NamedTuple):
    """The state of the git checkout that stsbench runs from."""

    commit: str | None
    """Its hash; None if stsbench is installed as a package."""
    is_dirty: bool | None
    """Whether files differ from the commit; None if that is unknown."""


@lru_cache(maxsize=1)
def commit() -> CheckoutState:
    """Return the git commit that stsbench runs from, and whether its files have changed since.

    Returns:
        ``commit``, the hash, and ``is_dirty``, whether tracked files have uncommitted changes. Both
        are None if stsbench is an installed package, or if git is not installed. ``is_dirty`` is
        also None if git cannot tell.
    """
    # This file is stsbench/core/provenance.py in the checkout.
    folder = Path(__file__).resolve().parents[2]
    if not (folder / ".git").exists():
        return CheckoutState(commit=None, is_dirty=None)
    head = _git_output(folder, "rev-parse", "HEAD")
    if not head:
        return CheckoutState(commit=None, is_dirty=None)
    status = _git_output(folder, "status", "--porcelain", "--untracked-files=no")
    return CheckoutState(head, is_dirty=None if status is None else bool(status))


def _git_output(folder: Path, *arguments: str) -> str | None:
    """Return what a git command prints; None if it fails, takes 10 seconds or is not installed.

    Args:
        folder: The folder to run it in.
        arguments: The command, without ``git``.
    """
    try:
        completed = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return completed.stdout.strip() if completed.returncode == 0 else None
