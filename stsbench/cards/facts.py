"""What cards hold: the records of tasks, suites, encoders and corpora."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from stsbench.cards.recipe import Count, Reproducible
from stsbench.cards.strict import Record
from stsbench.errors import did_you_mean

Scalar = bool | int | float | str


Overlap = Literal["none", "text", "gold", "unknown"]


Count0 = Annotated[int, msgspec.Meta(ge=0)]


def check_among(what: str, name: str, known: Mapping[str, object]) -> None:
    """Raise ValueError, which msgspec makes an error of the card, where a name is not among these."""
    if name not in known:
        raise ValueError(f"{what} '{name}' is not one of {', '.join(known)}{did_you_mean(name, known)}")


class FileFacts(Record, frozen=True, kw_only=True):
    """One data file: where it is below its source, how many rows it has, and its sha256."""

    path: str
    rows: Count0 | None = None
    sha256: str = ""
    subset: str = ""
    label: str = ""


class SplitFacts(Record, frozen=True, kw_only=True):
    """What must be found in a split: counts, characters of each column, mean gold score. What is left out is not checked."""

    n: Count | None = None
    ungraded: Count0 = 0
    """Pairs that the release holds without a gold score: never scored, training text of some methods."""
    characters: list[Count0] = []
    mean: float | None = None
    subsets: dict[str, Count] = {}
    labels: dict[str, Count0] = {}


class FileSource(Record, frozen=True, kw_only=True):
    """A source made of files: a folder below the data folder, or files shipped in the package."""

    files: dict[str, list[FileFacts]]
    reader: str = "table"
    folder: str = ""
    """Below the data folder; or, if it begins with ``./`` or ``../``, seen from the card's own folder."""
    params: dict[str, Any] = {}


class HubSource(Record, frozen=True, kw_only=True):
    """A dataset on the Hub: rows by its own splits and columns, or an archive of the local files."""

    repo: str
    revision: str
    splits: dict[str, str] = {}
    columns: dict[str, str] = {}
    classes: list[str] = []
    """What the label column holds, of a task with labels, in the order of the classes."""
    config: str = ""
    scale: float = 1.0
    archive: str = ""
    """A tar file in the repository that holds the local files, ``archive_folder`` being its top."""
    archive_folder: str = ""


class TaskCard(Record, frozen=True, kw_only=True):
    """A task: a dataset with the way it is scored."""

    name: str
    evaluator: str
    languages: list[str]
    paper: str
    license: str
    splits: Annotated[dict[str, SplitFacts], msgspec.Meta(min_length=1)]
    gold_range: tuple[float, float] | None = None
    note: str = ""
    version: str = ""
    """Which release of the data this is, where there are several."""
    superseded_by: str = ""
    """The task that holds a later release; scores of the two are never compared."""
    options: dict[str, Scalar | list[Scalar]] = {}
    score_split: str = "test"
    local: FileSource | None = None
    hub: HubSource | None = None
    package: FileSource | None = None

    def __post_init__(self) -> None:
        """Refuse what contradicts itself; msgspec makes it an error of the card."""
        check_among("score_split", self.score_split, self.splits)
        for source in filter(None, (self.local, self.package)):
            for split in source.files:
                check_among("a split with files", split, self.splits)
        for split in self.hub.splits if self.hub else ():
            check_among("a split of the Hub's", split, self.splits)
        if self.gold_range and not self.gold_range[0] < self.gold_range[1]:
            raise ValueError(f"gold_range {list(self.gold_range)}: the first must be below the second")


class Suite(Record, frozen=True, kw_only=True):
    """A named set of tasks reported with an average."""

    name: str
    tasks: Annotated[list[str], msgspec.Meta(min_length=1)]
    average: bool = True
    note: str = ""


class EncoderCard(Record, frozen=True, kw_only=True):
    """An encoder worth comparing with: what it is and where its checkpoint lies."""

    name: str
    kind: str
    method: str
    backbone: str
    supervision: Literal["none", "nli", "sts", "pairs", "translation"]
    overlap: Overlap
    paper: str
    license: str
    note: str = ""
    reproducible: Reproducible = "weights"
    """How the encoder of the published rows can be had, see ``REPRODUCIBLE``."""
    hub: str = ""
    """Its id on the Hub, where it is not loaded from there."""
    parameters: Annotated[int, msgspec.Meta(ge=1, le=10**13)] | None = None
    dimensions: Count | None = None
    """The size of an embedding."""
    dimensions_offered: list[Count] = []
    """The sizes that its authors offer: an embedding may be cut to each (Matryoshka), or be asked for."""
    year: Annotated[int, msgspec.Meta(ge=1990, le=2100)] | None = None
    """Of its release; left out, that of the paper."""
    params: dict[str, Any] = {}
    published: list[str] = []
    """Keys of the published rows that measured it, ``paper/table/row``; the most fitting first."""


class MakeFacts(Record, frozen=True, kw_only=True):
    """How ``stsbench data make`` makes a corpus that is not published as a file."""

    way: str
    """``first_rows`` or ``long_documents``."""
    of: str
    """For ``first_rows`` another corpus; for ``long_documents`` a dataset on the Hub, or a folder of one."""
    revision: str = "unpinned"
    rows: Count | None = None
    """How many of the first rows."""
    column: str = "text"
    tokenizer: str = ""
    """A Hub id or folder; ``tokens`` are counted by it, without those that it adds."""
    tokenizer_revision: str = "unpinned"
    tokens: Count | None = None
    """Documents with more tokens than this are kept."""
    lowercase: bool = False


class CorpusCard(Record, frozen=True, kw_only=True):
    """Training text known by a logical name: a file in a corpora folder or on the Hub, or the text of tasks."""

    name: str
    license: str
    source: str
    columns: dict[str, str | Count0]
    """Our columns, and what each is called in the file, or its position in a file without a header."""
    rows: Count
    file: str = ""
    """The file below a corpora folder."""
    sha256: str = ""
    repo: str = ""
    path: str = ""
    """The file in the Hub's repository; ``""``: it is called as ours."""
    revision: str = "unpinned"
    labels: dict[str, str] = {}
    """What the file's labels stand for."""
    split_sentences: bool = False
    """Whether each document is cut into its sentences."""
    tasks: list[str] = []
    """The tasks whose own text it is, pairs without a gold score among them."""
    splits: list[str] = []
    """The splits of those tasks; none given: all."""
    make: MakeFacts | None = None
    how: str = ""
    """Where it comes from if it is neither published nor made by ``stsbench data make``, and what does instead."""
    note: str = ""
