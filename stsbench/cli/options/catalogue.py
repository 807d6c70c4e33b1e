"""What the commands are asked for that show what there is: cards, this machine, evaluation data and training text."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from stsbench.cli.options.completion import all_names
from stsbench.cli.options.shared import (
    LAST_SEED,
    MOST,
    Corpora,
    Data,
    Given,
    Near,
    OnlyTasks,
    Options,
    WithCards,
    WithJson,
    each_name,
)
from stsbench.errors import StsbenchError
from stsbench.plots import FIGURES


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ListOptions(WithJson):
    """List tasks, encoders, recipes, tables and more.

    Example: stsbench list encoders
    """

    kind: Annotated[str, Argument(help="tasks, encoders, recipes, suites, corpora, tables or protocols")] = ""
    language: Annotated[
        str | None, Option("--language", help="Only the tasks in this language, by its code: en, de, zh.")
    ] = None

    def check(self, given: Given) -> None:
        """Refuse what would be passed over."""
        if self.language is not None and self.kind != "tasks":
            raise StsbenchError("--language chooses tasks; give: stsbench list tasks --language CODE")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ShowOptions(WithJson):
    """Show what is known of one name.

    Example: stsbench show sup-simcse-bert-base
    """

    name: Annotated[
        str, Argument(autocompletion=all_names, help="A task, suite, encoder, recipe, corpus, table, run or protocol.")
    ]
    curve: Annotated[
        Path | None, Option("--curve", help="Draw the training curves of runs (comma list) to this .svg, .png or .pdf.")
    ] = None

    def check(self, given: Given) -> None:
        """Refuse what would be passed over."""
        given.apart("--curve", "--json")
        if self.curve is not None and self.curve.suffix.removeprefix(".") not in FIGURES:
            raise StsbenchError(f"--curve '{self.curve}': give a file that ends in .{', .'.join(FIGURES)}")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DoctorOptions(WithJson):
    """Show what works here, and what is missing for what.

    With --hub it tries the Hub.

    Example: stsbench doctor --data DIR
    """

    hub: Annotated[bool, Option("--hub", help="Fetch two small tasks and a small checkpoint, and score it.")] = False
    data: Data = None

    def check(self, given: Given) -> None:
        """Refuse what would be passed over."""
        given.apart("--hub", "--data")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FetchOptions(WithCards):
    """Fetch data from the Hub ahead of a run.

    What is fetched is checked against the cards.

    Example: stsbench data fetch sts transfer
    """

    names: Annotated[list[str], Argument(help="Tasks, suites or corpora.")]
    data: Data = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class VerifyDataOptions(WithJson):
    """Check data against the cards.

    Counts, characters, means and hashes are compared.

    Example: stsbench data verify sts --data DIR
    """

    names: Annotated[list[str], Argument(help="Tasks or suites; default all that a folder holds.")] = field(
        default_factory=list
    )
    data: Data = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class OverlapOptions(WithJson):
    """Find test sentences in training text.

    Of every task whose data are on this machine. Without a CORPUS: what tests share with each other.

    Example: stsbench data overlap wiki1m nli_triplets --near 0.8 --out held.csv
    Example: stsbench data overlap --tasks sts
    """

    corpora_named: Annotated[
        list[str], Argument(metavar="[CORPUS]...", callback=each_name, help="Corpora, or files of training text.")
    ] = field(default_factory=list)
    tasks: OnlyTasks = None
    near: Near = None
    out: Annotated[
        Path | None, Option("--out", help="Write the items that are held, or shared counts, to this .csv or .json.")
    ] = None
    corpora: Corpora = None
    data: Data = None

    def check(self, given: Given) -> None:
        """Refuse what would be passed over."""
        if not self.corpora_named:
            given.idle("without a CORPUS", "--near", "--corpora")
        if self.out is not None and self.out.suffix not in (".csv", ".json"):
            raise StsbenchError(f"--out '{self.out}': give a file that ends in .csv or .json")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ConvertCocoOptions(Options):
    """Convert the published COCO pickles.

    Arrays and strings are read and nothing else.

    Example: stsbench data convert-coco PUBLISHED DATA/coco
    """

    source: Annotated[Path, Argument(help="Folder of the published train.pkl, valid.pkl and test.pkl.")]
    target: Annotated[Path, Argument(help="Where to write safetensors and JSON.")]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MakeOptions(WithCards):
    """Make training text of what is published.

    It is made as its card says, and checked.

    Example: stsbench data make nli_triplets --corpora DIR
    """

    name: Annotated[str, Argument(metavar="CORPUS", help="A corpus that is not published as a file.")]
    corpora: Annotated[Path | None, Option("--corpora", help="Folder to write into; default STSBENCH_CORPORA.")] = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BackTranslateOptions(WithCards):
    """Translate sentences there and back, to train on the pairs.

    The same command resumes a stopped translation.

    Example: stsbench data back-translate stsb.txt pairs.csv
    """

    source: Annotated[str, Argument(metavar="INPUT", help="A corpus, or a file of sentences.")]
    output: Annotated[Path, Argument(metavar="OUTPUT", help="The .csv file of pairs; a record is written beside it.")]
    forward: Annotated[str, Option("--forward", help="Marian model to translate with: a Hub id or a folder.")] = (
        "Helsinki-NLP/opus-mt-en-de"
    )
    backward: Annotated[str, Option("--backward", help="Marian model to translate back with.")] = (
        "Helsinki-NLP/opus-mt-de-en"
    )
    revisions: Annotated[tuple[str, str], Option("--revisions", help="Their Hub commits.")] = (
        "unpinned",
        "unpinned",
    )
    mode: Annotated[str, Option("--mode", help="greedy or sampling")] = "greedy"
    temperature: Annotated[float, Option("--temperature", min=0, max=MOST, help="For sampling.")] = 1.0
    seed: Annotated[int, Option("--seed", min=0, max=LAST_SEED, help="For sampling.")] = 0
    max_tokens: Annotated[int, Option("--max-tokens", max=MOST, help="Most tokens of a sentence, read or written.")] = (
        128
    )
    batch_size: Annotated[int, Option("--batch-size", max=MOST, help="Sentences translated at once.")] = 32
    limit: Annotated[int | None, Option("--limit", max=MOST, help="Translate only the first sentences.")] = None
    device: Annotated[str, Option("--device", help="auto, cpu, cuda, …")] = "auto"
    corpora: Corpora = None
    data: Data = None

    def check(self, given: Given) -> None:
        """Refuse what would be passed over."""
        if self.mode == "greedy":
            given.idle("with --mode greedy", "--temperature", "--seed")
        if Path(self.forward).is_dir() and Path(self.backward).is_dir():
            given.idle("where both models are folders", "--revisions")
