"""What a score was made with: versions, commit, machine."""

from __future__ import annotations

import platform
import subprocess
from contextlib import suppress
from functools import lru_cache
from importlib import metadata
from pathlib import Path

PACKAGES = (
    "stsbench", "torch", "transformers", "tokenizers", "sentence-transformers", "numpy", "scipy", "scikit-learn",
)  # fmt: skip


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """The versions of Python and of the packages that can move a score."""
    return {package: version_of(package) or "not installed" for package in ("python", *PACKAGES)}


def version_of(package: str) -> str:
    """The version of Python or of a package, empty where it is not installed."""
    if package == "python":
        return platform.python_version()
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def processor() -> str:
    """What the machine's processor calls itself, or its kind where it does not say."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
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
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
