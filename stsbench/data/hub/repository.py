"""A repository of the Hub at a known commit; its files are complete, or one line says why not.

The Hub's library fetches, continues interrupted downloads, and keeps its cache. This module adds
three things. The list of files and their hashes is stored for each commit, so that every use of a
file is checked against it, also without a network (the library's ``verify_repo_checksums`` asks the
Hub each time, its ``snapshot_download`` checks no hash). No request waits without an end, as some
of the library's do. Each failure is one line that says what to do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

import msgspec

from stsbench.core import settings
from stsbench.core.errors import OutputError, SourceError, StsbenchError, suggest
from stsbench.core.files import file_sha256, remove, write_atomically
from stsbench.core.toml import StrictRecord
from stsbench.core.wording import format_some
from stsbench.data.hub.failures import (
    FAILURES,
    HubUnreachable,
    UnexpectedResponse,
    call_with_retries,
    describe_exception,
    http_status,
    silence_library,
)

RepoKind = Literal["model", "dataset"]
OFFLINE_HINTS: dict[RepoKind, str] = {
    "dataset": "put the files under a data folder and pass `data=DIR` (or set STSBENCH_DATA), "
    "or score the quickstart suite, which needs no network",
    "model": "give the folder of a checkpoint on this machine, "
    "or the encoder minilm, which needs no network",
}
"""What to do without the Hub, if the caller has no better advice."""
SHA256 = re.compile(r"[0-9a-f]{64}")
GIT_HASH = re.compile(r"[0-9a-f]{40}")
_FILE_HASH_PATTERN = re.compile(f"{SHA256.pattern}|{GIT_HASH.pattern}")
_REPO_ID_PATTERN = re.compile(
    r"(?!.*(--|\.\.|\.git$))(\w([\w.-]{0,94}\w)?/)?\w([\w.-]{0,94}\w)?", re.ASCII
)
_BLOB_NAME_PATTERN = re.compile(r"\w[\w.-]{,127}", re.ASCII)
_REVISION_PATTERN = re.compile(r"(?=.{1,200}$)(?!.*\.\.)[\w.+@#=-]+(/[\w.+@#=-]+)*", re.ASCII)


class HubPath(NamedTuple):
    """A file or a snapshot's folder in the Hub's cache, and its commit."""

    path: Path
    commit: str


class FileListing(StrictRecord):
    """The files of a repository at one commit, each with the Hub's hash of it.

    It is the sha256 of a large file and git's own hash of a small one; empty if the Hub gave none.
    """

    commit: str
    files: dict[str, str]
    unreached: str = ""
    """Why the Hub could not be asked; then only files that happen to be in the cache are listed."""


class Repository:
    """A repository of the Hub at a revision, and its files."""

    def __init__(
        self, repo: str, *, revision: str, kind: RepoKind, offline_hint: str | None = None
    ) -> None:
        """Check and store the names; no request is sent yet.

        Args:
            repo: The id of the repository: ``owner/name``, or a name alone.
            revision: A commit, branch or tag; ``unpinned`` is the main branch.
            kind: ``model`` or ``dataset``.
            offline_hint: Advice in errors for a user who cannot reach the Hub; empty for none, None
                for the usual one.

        Raises:
            SourceError: No repository, or no revision, can have this name.
        """
        # Raises an error if an environment variable of the Hub's library has no valid value.
        settings.check_hub()
        self.repo = repo
        self.kind = kind
        self.revision = "main" if revision in ("", "unpinned") else revision
        self.offline_hint = OFFLINE_HINTS[kind] if offline_hint is None else offline_hint
        # Whether it may be a commit, which never changes, or the beginning of one; else it is a
        # branch or tag.
        self.is_pinned = re.fullmatch(r"[0-9a-f]{7,40}", self.revision) is not None
        self.page = f"https://huggingface.co/{'datasets/' if kind == 'dataset' else ''}{repo}"
        # What messages begin with; [1:-1] omits the quotes.
        where = f"{kind} {ascii(repo):.99} (revision {ascii(self.revision)[1:-1]:.99})"
        # Both names become parts of paths in the cache.
        if not _REPO_ID_PATTERN.fullmatch(repo):
            hint = "; a revision is named apart, by 'revision'" if "@" in repo else ""
            raise SourceError(
                f"{where}: no repository can have this name; names look like 'owner/name'{hint}"
            )
        if not _REVISION_PATTERN.fullmatch(self.revision):
            raise SourceError(
                f"{where}: no revision can have this name; give a branch, a tag or a commit"
            )

    def __str__(self) -> str:
        """Return the repository's name for messages."""
        revision = self.revision[:12] if self.is_pinned else self.revision
        return f"{self.kind} '{self.repo}' (revision {revision})"

    def describe_file(self, name: str) -> str:
        """Return the name of one of its files for messages."""
        return f"file '{name}' of {self}"

    @contextmanager
    def translate_failures(self, where: str = "") -> Iterator[None]:
        """Raise the Hub library's exceptions in a ``with`` block as errors of one clear line.

        An exception of a kind that is not known is a bug, and is raised as it is.

        Args:
            where: What the line begins with; empty for the name of the repository.

        Raises:
            HubUnreachable: A failure that may pass: no network, no response, a Hub out of order,
                offline mode.
            SourceError: Any other known failure.
        """
        try:
            yield
        except StsbenchError:
            raise
        except Exception as error:
            # The library raises these if it cannot ask the Hub and the cache has no complete copy.
            is_wrapper = type(error).__name__ in ("LocalEntryNotFoundError", "ValueError")
            cause = error.__cause__ if is_wrapper and error.__cause__ else error
            # A failure is recognised by the class of its exception, its HTTP status or its errno
            # (None if it has none). Of FAILURES, the kinds of failure, the first that fits counts.
            class_names = [exception_class.__name__ for exception_class in type(cause).__mro__]
            signs = {*class_names, http_status(cause), getattr(cause, "errno", None)}
            failure = next((kind for kind in FAILURES if signs.intersection(kind.signs)), None)
            if failure is None:
                raise
            # What the texts of a kind of failure have in braces.
            text_fields = {
                "page": self.page,
                "kind": self.kind,
                "status": http_status(cause),
                "detail": describe_exception(cause),
            }
            hints = [failure.hint.format_map(text_fields), self.offline_hint]
            error_type = HubUnreachable if failure.is_temporary else SourceError
            raise error_type(
                f"{where or self}: {failure.reason.format_map(text_fields)}",
                hint="; or ".join(filter(None, hints)),
            ) from error

    @cached_property
    def listing(self) -> FileListing:
        """The commit of the repository, and the hashes of its files by name.

        * The list of a commit never changes, so it is requested once and stored.
        * The list of a branch is requested each time.
        * If the Hub cannot be reached, it is the stored one, or that which the Hub's library stored
          when it fetched the whole repository.
        * Without these it has the files that are in the library's cache, and ``unreached`` is the
          reason.

        Raises:
            SourceError: There is no such repository or revision; or the Hub cannot be reached and
                the cache has no files of it.
        """
        # No repository's name contains an '@'.
        name = f"{self.kind}s--{self.repo.replace('/', '--')}@{quote(self.revision, safe='')}.json"
        path = settings.cache_folder() / "hub" / name
        stored: FileListing | None = None
        # Without a valid file there is no stored list.
        with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            stored = msgspec.json.decode(path.read_bytes(), type=FileListing)
        # A pinned revision is a commit.
        if stored and self.is_pinned and stored.commit.startswith(self.revision):
            return stored
        try:
            listing = self.request_listing()
        except HubUnreachable as error:
            fallback = stored or self._cached_listing(str(error))
            if fallback is None:
                raise
            return fallback
        # Only a convenience: without it the Hub is asked again.
        with suppress(OutputError, UnicodeEncodeError):
            write_atomically(path, msgspec.json.encode(listing))
        return listing

    def request_listing(self) -> FileListing:
        """Request the commit of the repository and the hashes of its files from the Hub.

        Raises:
            HubUnreachable: A failure that may pass, such as no network, or a response that is not
                the Hub's.
            SourceError: There is no such repository or revision, or another failure; the message
                has the reason.
        """
        from huggingface_hub import HfApi, constants

        timeout = float(constants.HF_HUB_ETAG_TIMEOUT)
        with self.translate_failures():
            try:
                info: Any = call_with_retries(
                    lambda: HfApi().repo_info(
                        self.repo,
                        repo_type=self.kind,
                        revision=self.revision,
                        files_metadata=True,
                        timeout=timeout,
                    )
                )
                # Of large files (LFS) the Hub has the sha256, of others git's hash.
                hash_by_name: dict[str, Any] = {}
                for file in info.siblings or []:
                    hash_by_name[file.rfilename] = file.lfs.sha256 if file.lfs else file.blob_id
                # Hashes become parts of paths in the cache, so any other text becomes empty.
                files = {
                    name: file_hash if file_hash and _FILE_HASH_PATTERN.fullmatch(file_hash) else ""
                    for name, file_hash in hash_by_name.items()
                }
                listing = msgspec.convert({"commit": info.sha, "files": files}, FileListing)
            # Failures of the network, which translate_failures() names; some are ValueErrors too.
            except (OSError, UnicodeEncodeError):
                raise
            except (TypeError, AttributeError, LookupError, ValueError, RecursionError) as error:
                # The library does not check the response; one that raises these is not the Hub's.
                # translate_failures() makes a HubUnreachable of it.
                raise UnexpectedResponse(type(error).__name__) from error
            # Digits alone may be the name of a tag, such as a date.
            is_commit = self.is_pinned and not self.revision.isdecimal()
            is_other_commit = is_commit and not listing.commit.startswith(self.revision)
            if not GIT_HASH.fullmatch(listing.commit) or is_other_commit:
                raise UnexpectedResponse("it names no commit, or another than was asked for")
        return listing

    def _cached_listing(self, problem: str) -> FileListing | None:
        """Return the commit and the files of the repository in the cache of the Hub's library.

        Other programs (transformers, ``hf download``) use the same cache.

        Args:
            problem: Why the Hub could not be reached; an incomplete list has it as ``unreached``.

        Returns:
            None if the cache has no files of the revision.
        """
        from huggingface_hub import get_cached_repo_tree, snapshot_download
        from huggingface_hub.errors import CachedRepoTreeNotFoundError, LocalEntryNotFoundError

        arguments: dict[str, Any] = {
            "repo_id": self.repo,
            "repo_type": self.kind,
            "revision": self.revision,
        }
        try:
            # Without patterns of files it only returns the folder of the commit.
            snapshot = snapshot_download(**arguments, local_files_only=True, allow_patterns=[])
        except LocalEntryNotFoundError:
            return None
        # The folder has the name of the commit.
        folder = Path(snapshot)
        with suppress(CachedRepoTreeNotFoundError):
            # The library stores this list when it fetches a whole repository. It has no hashes, but
            # the cache names files by them.
            tree = get_cached_repo_tree(**arguments)
            return FileListing(commit=folder.name, files={file.path: "" for file in tree})
        paths = [path for path in folder.rglob("*") if path.is_file()]
        files = {path.relative_to(folder).as_posix(): "" for path in paths}
        return FileListing(commit=folder.name, files=files, unreached=problem)

    @property
    def commit(self) -> str:
        """The commit of all files."""
        return self.listing.commit

    @property
    def files(self) -> dict[str, str]:
        """All files of the repository: name -> hash, which is empty if it is not known.

        Raises:
            SourceError: There is no such list, or it may be incomplete: a missing file might change
                a score.
        """
        listing = self.listing
        # Why the Hub could not be reached; the list is then of the files in the cache.
        if listing.unreached:
            some_files = format_some(sorted(listing.files), max_items=4)
            raise SourceError(
                f"{listing.unreached}; the cache holds files of it ({some_files}), but no list of "
                "all it needs: one that is missing might change the score; "
                f"'hf download {self.repo}' fetches all"
            )
        return listing.files

    def fetch(self, name: str, *, into: Path | None = None) -> Path:
        """Return the path of a file of the repository on this machine; download it if needed.

        A copy in the cache is checked against the Hub's hash. A damaged copy is downloaded again; a
        file that is damaged after the download is removed.

        Args:
            name: The path of the file in the repository.
            into: The folder for a file that the cache lacks; None for the cache itself.

        Raises:
            SourceError: The repository has no such file, or it cannot be fetched undamaged.
        """
        from huggingface_hub import try_to_load_from_cache

        where = self.describe_file(name)
        if not name.isprintable() or PurePosixPath(name).as_posix() != name:
            raise SourceError(
                f"{self}: no file may be called {ascii(name):.80}: "
                "not the shortest spelling of a path"
            )
        if name not in self.listing.files:
            # unreached is why the Hub could not be asked for its list; empty if it was asked.
            hint = (
                suggest(name, self.listing.files)
                or f"; see {self.page}/tree/main for those there are"
            )
            raise SourceError(self.listing.unreached or f"{where}: there is no such file{hint}")
        with self.translate_failures(where):
            cached = try_to_load_from_cache(
                self.repo, name, revision=self.commit, repo_type=self.kind
            )
        cached_path = Path(cached) if isinstance(cached, str) else None
        if cached_path is not None:
            damage = self._describe_damage(name, cached_path)
            if not damage:
                return cached_path
            where = f"{where}: the copy in the cache is {damage} and cannot be fetched again"
        with self.translate_failures(where), silence_library("huggingface_hub"):
            is_replacement = cached_path is not None
            path = self._download(name, force_download=is_replacement, local_dir=into)
        damage = self._describe_damage(name, path)
        if damage:
            # Other programs that read this cache would take it for complete. In the cache, the path
            # is a link to the file.
            damaged_file = path.parent / path.readlink() if path.is_symlink() else path
            remove(damaged_file)
            raise SourceError(f"{self.describe_file(name)}: {damage}; run again to fetch it anew")
        return path

    def _download(self, name: str, *, force_download: bool, local_dir: Path | None) -> Path:
        """Download a file to the cache of the Hub's library, or to a folder; return its path.

        Args:
            name: The path of the file in the repository.
            force_download: Download it although the cache has a copy, because that is damaged.
            local_dir: The folder; None for the cache.

        Raises:
            UnexpectedResponse: The Hub's response is about another commit, or its hash of the file
                has characters that no hash has.
        """
        from huggingface_hub import constants, get_hf_file_metadata, hf_hub_download, hf_hub_url

        arguments: dict[str, Any] = {"repo_type": self.kind, "revision": self.commit}
        url = hf_hub_url(self.repo, name, **arguments)
        timeout = float(constants.HF_HUB_ETAG_TIMEOUT)
        # The library waits over six minutes for a Hub that does not respond. This first request
        # fails after the timeout.
        metadata = call_with_retries(lambda: get_hf_file_metadata(url, timeout=timeout))
        # The commit and the hash (etag) become parts of paths in the library's cache.
        if metadata.commit_hash != self.commit or not _BLOB_NAME_PATTERN.fullmatch(
            metadata.etag or ""
        ):
            raise UnexpectedResponse("another commit, or a hash that is none")
        path = call_with_retries(
            lambda: hf_hub_download(
                self.repo, name, **arguments, force_download=force_download, local_dir=local_dir
            )
        )
        return Path(path)

    def fetch_all(self, names: Sequence[str]) -> HubPath:
        """Fetch files, at least one, in this order, and return the folder of the snapshot."""
        paths = [self.fetch(name) for name in names]
        return HubPath(paths[-1].parents[names[-1].count("/")], self.commit)

    def _describe_damage(self, name: str, path: Path) -> str:
        """Return text that says how a file's hash differs from the Hub's.

        It is empty if the hashes are equal, or if the Hub's is not known. The Hub has the sha256 of
        a large file and git's hash of a small one. It is in the list of the repository's files. If
        that lacks it, it is the name of the file that a link in the Hub's cache refers to.

        Args:
            name: The path of the file in the repository.
            path: Its copy on this machine, in the cache a link.
        """
        from huggingface_hub.utils.sha import git_hash

        expected_hash = self.listing.files[name]
        if not expected_hash and path.is_symlink():
            # This link alone is followed: the next file may itself be a link into a store that
            # repositories share, which names files by hashes of another kind.
            expected_hash = path.readlink().name
        if SHA256.fullmatch(expected_hash):
            hash_name = "sha256"
            actual_hash = file_sha256(path)
        elif GIT_HASH.fullmatch(expected_hash):
            hash_name = "git hash"
            actual_hash = git_hash(path.read_bytes())
        else:
            return ""
        if actual_hash == expected_hash:
            return ""
        return f"damaged ({hash_name} {actual_hash[:12]}, the Hub says {expected_hash[:12]})"
