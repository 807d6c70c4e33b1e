"""What a repository on the Hub holds: asked of the Hub, noted down, known again without a network."""

from __future__ import annotations

import re
import secrets
from contextlib import suppress
from pathlib import Path

import msgspec

from stsbench import settings
from stsbench.data.hub.failures import Address, Unreached, explained, persistently


class Listing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The files of a repository at one commit, each with its sha256, or ``""`` where git itself keeps the file."""

    commit: str
    files: dict[str, str]
    unreached: str = ""
    """Why the Hub could not be asked: the files then are those that happen to lie in the cache."""


def look_up(address: Address, *, without: str | None) -> Listing:
    """Find what a repository holds.

    The answer for a commit never changes, so it is asked once and noted down. A branch is asked
    for each time; where the Hub cannot be reached, the last answer holds, or what the Hub's own
    cache has of that branch.

    Raises:
        SourceError: there is no such repository or revision, or no answer and nothing known.
    """
    known = _noted(address)
    if known is not None and address.pinned:
        return known
    try:
        with explained(address, without):
            listing = persistently(lambda: _ask(address))
    except Unreached as error:
        fallback = known or _in_cache(address, str(error))
        if fallback is None:
            raise
        return fallback
    _note(address, listing)
    return listing


def timeout() -> float:
    """Seconds to wait for an answer (the library's own setting; some of its calls wait for ever without)."""
    from huggingface_hub import constants

    return float(constants.HF_HUB_ETAG_TIMEOUT)


def heed_offline() -> None:
    """Raise the library's own error where the user has switched the Hub off, by whichever of its variables."""
    from huggingface_hub.errors import OfflineModeIsEnabled

    if settings.hub_is_offline():
        raise OfflineModeIsEnabled("offline mode")


def _ask(address: Address) -> Listing:
    from huggingface_hub import HfApi

    heed_offline()
    ask = HfApi().dataset_info if address.kind == "dataset" else HfApi().model_info
    info = ask(address.repo, revision=address.revision, files_metadata=True, timeout=timeout())
    files = {file.rfilename: file.lfs.sha256 if file.lfs else "" for file in info.siblings or []}
    return Listing(commit=str(info.sha), files=files)


def _notebook(address: Address) -> Path:
    name = f"{address.kind}s--{address.repo}--{address.revision}.json".replace("/", "--")
    return settings.cache_folder() / "hub" / name


def _noted(address: Address) -> Listing | None:
    try:
        return msgspec.json.decode(_notebook(address).read_bytes(), type=Listing)
    except (OSError, msgspec.DecodeError):
        return None


def _note(address: Address, listing: Listing) -> None:
    path = _notebook(address)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(msgspec.json.encode(listing))
        draft.replace(path)
    except OSError:
        # Only a convenience: without it the Hub is asked again.
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _in_cache(address: Address, why: str) -> Listing | None:
    """What the Hub's cache holds, whoever put it there (transformers, an earlier run)."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        found = snapshot_download(
            address.repo,
            repo_type=address.kind,
            revision=address.revision,
            local_files_only=True,
            # No file is asked for: whether the right ones are there is ours to say.
            allow_patterns=[],
        )
    except LocalEntryNotFoundError:
        return None
    folder = Path(found)
    files = {p.relative_to(folder).as_posix(): expected_sha256(p) or "" for p in folder.rglob("*") if p.is_file()}
    return Listing(commit=folder.name, files=files, unreached=why)


def expected_sha256(path: Path) -> str | None:
    """The sha256 that a file of the Hub's cache should have, or None where the cache does not tell.

    The cache names the blob behind a snapshot's link after the Hub's etag: the sha256 of a large
    file, the git hash of a small one. Only the first link counts: the blob may itself be a link
    into a store shared by repositories, whose names are hashes of another kind.
    """
    if not path.is_symlink():
        return None
    name = path.readlink().name
    return name if re.fullmatch(r"[0-9a-f]{64}", name) else None
