"""What a repository on the Hub holds: asked of the Hub, noted down, known again without a network."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from stsbench import settings
from stsbench.data.hub.failures import Address, OddAnswer, Unreached, explained, is_hub_failure, persistently
from stsbench.errors import SourceError
from stsbench.files.whole import scratch_beside

SHA256, GIT_HASH = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{40}")


class Listing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The files of a repository at one commit, each with the Hub's hash of it.

    That is the sha256 of a large file and git's own hash of a small one, ``""`` where the Hub gave none.
    """

    commit: str
    files: dict[str, str]
    unreached: str = ""
    """Why the Hub could not be asked: the files then are only those that happen to lie in the cache."""

    def check_whole(self, address: Address) -> None:
        """Raise SourceError where nobody knows which files there should be: one that is missing might change a score."""
        if self.unreached:
            some = ", ".join(sorted(self.files)[:4]) or "none"
            raise SourceError(
                f"{self.unreached}; the cache holds files of it ({some}{', …' if len(self.files) > 4 else ''}), but no "
                f"list of all it needs: one that is missing might change the score; 'hf download {address.repo}' fetches all"
            )


def look_up(address: Address, *, without: str | None) -> Listing:
    """Find what a repository holds.

    The answer for a commit never changes, so it is asked once and noted down. A branch is asked
    for each time; where the Hub cannot be reached, the last answer holds, or the list that the
    Hub's library has noted when it fetched the whole of it. Without either, what the library's
    cache happens to have is listed, and ``unreached`` says why.

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


def ask_now(address: Address) -> Listing:
    """Ask the Hub, whatever is known already; raises SourceError, with the reason, where it gives no answer."""
    with explained(address, ""):
        return persistently(lambda: _ask(address))


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
    ask: Callable[..., Any] = HfApi().dataset_info if address.kind == "dataset" else HfApi().model_info
    try:
        info = ask(address.repo, revision=address.revision, files_metadata=True, timeout=timeout())
        listing = Listing(commit=info.sha, files=_hashes(info.siblings or []))
    except (TypeError, AttributeError, LookupError, ValueError, RecursionError) as error:
        # The library takes the answer as it comes; what it cannot take is no answer of the Hub's.
        if is_hub_failure(error) and not isinstance(error, RecursionError):
            raise
        raise OddAnswer(type(error).__name__) from error
    if not _is_answer(listing, address):
        raise OddAnswer("it names no commit, or another than was asked for")
    return listing


def _hashes(siblings: list[Any]) -> dict[str, str]:
    files: dict[str, str] = {}
    for file in siblings:
        if not isinstance(file.rfilename, str) or file.rfilename in files:
            raise OddAnswer(f"it lists {file.rfilename!r:.80} twice, or as a file's name")
        digest = (file.lfs.sha256 if file.lfs else file.blob_id) or ""
        files[file.rfilename] = digest if (SHA256 if file.lfs else GIT_HASH).fullmatch(digest) else ""
    return files


def _is_answer(listing: Listing, address: Address) -> bool:
    """Whether a list names a commit, and the one that was asked for where a commit or its beginning was."""
    return GIT_HASH.fullmatch(str(listing.commit)) is not None and (
        not address.pinned or listing.commit.startswith(address.revision)
    )


def _notebook(address: Address) -> Path:
    # No repository's name holds an '@'.
    name = f"{address.kind}s--{address.repo.replace('/', '--')}@{quote(address.revision, safe='')}.json"
    return settings.cache_folder() / "hub" / name


def _noted(address: Address) -> Listing | None:
    try:
        listing = msgspec.json.decode(_notebook(address).read_bytes(), type=Listing)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return listing if _is_answer(listing, address) and not listing.unreached else None


def _note(address: Address, listing: Listing) -> None:
    path = _notebook(address)
    draft = scratch_beside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(msgspec.json.encode(listing))
        draft.replace(path)
    except (OSError, UnicodeEncodeError):
        # Only a convenience: without it the Hub is asked again.
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _in_cache(address: Address, why: str) -> Listing | None:
    """What the Hub's cache tells of a repository, whoever put it there (transformers, ``hf download``)."""
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
    if (whole := _library_list(address, folder.name)) is not None:
        return whole
    files = {p.relative_to(folder).as_posix(): expected_hash(p) for p in folder.rglob("*") if p.is_file()}
    return Listing(commit=folder.name, files=files, unreached=why)


def _library_list(address: Address, commit: str) -> Listing | None:
    """The list that the Hub's library notes down when it fetches a whole repository."""
    try:
        # Not in the oldest versions that we allow.
        from huggingface_hub import get_cached_repo_tree
        from huggingface_hub.errors import CachedRepoTreeNotFoundError
    except ImportError:
        return None
    try:
        tree = get_cached_repo_tree(address.repo, repo_type=address.kind, revision=commit)
    except CachedRepoTreeNotFoundError:
        return None
    return Listing(commit=commit, files={f.path: f.lfs.sha256 if f.lfs else f.blob_id for f in tree})


def expected_hash(path: Path) -> str:
    """The hash that a file of the Hub's cache should have, ``""`` where the cache does not tell.

    The cache names the blob behind a snapshot's link after the Hub's etag: the sha256 of a large
    file, the git hash of a small one. Only the first link counts: the blob may itself be a link
    into a store shared by repositories, whose names are hashes of another kind.
    """
    name = path.readlink().name if path.is_symlink() else ""
    return name if SHA256.fullmatch(name) or GIT_HASH.fullmatch(name) else ""
