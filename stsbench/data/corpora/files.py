"""Training text by its logical name: in a local folder, on the Hub, or a file of the user's."""

from __future__ import annotations

from pathlib import Path

from stsbench import settings
from stsbench.cards.facts import CorpusCard
from stsbench.data.verify import file_digest
from stsbench.errors import DataError, SourceError


def fetch_corpus(name: str, corpus: CorpusCard, *, corpora: Path | None = None) -> Path:
    """Return a corpus's file: from the corpora folder if it is there, else from the Hub.

    Raises:
        SourceError: no source has it; says what to do.
        DataError: the local file is not the one the card names.
    """
    folder = corpora or settings.corpora_folder()
    if folder is not None and not folder.is_dir():
        raise SourceError(f"corpora folder '{folder}' does not exist")
    if folder is not None and (folder / corpus.file).is_file():
        path = folder / corpus.file
        if corpus.sha256 and (found := file_digest(path)) != corpus.sha256:
            raise DataError(
                f"{path}: differs from the file that its card names (sha256 {found[:12]}, card {corpus.sha256[:12]}); "
                "restore the file, or name yours by its path"
            )
        return path
    put = f"put {corpus.file} into a folder and set STSBENCH_CORPORA to it"
    if not corpus.repo:
        make = f"make it by 'stsbench data make {name}', or " if corpus.make else ""
        how = f" ({corpus.how})" if corpus.how else ""
        raise SourceError(
            f"corpus '{corpus.name}' is local only",
            hint=f"{make}{put}{how}; or train on other text: --text NAME or FILE",
        )
    from stsbench.data.hub import fetch_file

    place = corpus.path or Path(corpus.file).name
    return fetch_file(
        corpus.repo, place, revision=corpus.revision, kind="dataset", sha256=corpus.sha256, without=put
    ).path
