"""What the commands are asked for that write drafts: cards and methods of a user's own."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from stsbench.cli.options.shared import Given, Options
from stsbench.errors import StsbenchError

Name = Annotated[str, Option("--name", help="Its name; default that of the file or folder.")]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NewOptions(Options):
    """Options of every command that writes a draft."""

    out: Annotated[Path, Option("--out", help="Folder of cards, for --cards of other commands.")] = Path("cards")
    force: Annotated[bool, Option("--force", help="Write again what is there already.")] = False


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NewTaskOptions(NewOptions):
    """Draft the card of a task from a table of your own.

    Pairs with scores become an STS task, sentences or pairs with labels a classification task. The last line printed is the
    command that runs it.

    Example: stsbench new task pairs.csv
    Example: stsbench new task --hub mteb/biosses-sts
    """

    source: Annotated[
        Path | None, Argument(help="CSV, TSV, JSON lines or parquet; or a folder with train, dev, test files.")
    ] = None
    hub: Annotated[str, Option("--hub", help="A dataset on the Hub instead of files: OWNER/NAME.")] = ""
    revision: Annotated[str, Option("--revision", help="Its branch, tag or commit; the card keeps the commit.")] = (
        "main"
    )
    subset: Annotated[str, Option("--subset", help="Its configuration (subset), if it has several.")] = ""
    name: Name = ""
    columns: Annotated[
        list[str],
        Option("--columns", help="Columns, where they are not found: sentence1=A,sentence2=B,gold=C; sentence, label."),
    ] = field(default_factory=list)

    def check(self, given: Given) -> None:
        """Refuse what would be passed over, and a card of nothing."""
        if (self.source is None) == (not self.hub):
            raise StsbenchError("give a file or folder, or --hub OWNER/NAME, not both")
        if not self.hub:
            given.idle("without --hub", "--revision", "--subset")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NewEncoderOptions(NewOptions):
    """Draft the card of an encoder.

    Example: stsbench new encoder checkpoints/final
    """

    source: Annotated[Path, Argument(help="A checkpoint's folder, or a file of word vectors.")]
    name: Name = ""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NewMethodOptions(NewOptions):
    """Draft a training method and its recipe.

    Example: stsbench new method pull
    """

    name: Annotated[str, Argument(help="Its name, and that of its module: letters, digits and '_'.")]
