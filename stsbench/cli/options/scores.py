"""What the commands are asked for that read results: tables, exports, comparisons, checks, locks and their verification."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from stsbench.cli.options.completion import encoder_names, suites, tables, task_names
from stsbench.cli.options.shared import (
    LAST_SEED,
    Data,
    Given,
    OnlyEncoders,
    OnlyProtocol,
    OnlyTasks,
    ResultsOption,
    TableFile,
    WithJson,
    check_figure,
    each_name,
    written_as,
)
from stsbench.errors import StsbenchError
from stsbench.plots import FIGURES


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LeaderboardOptions(WithJson):
    """Print a table of results, or a paper's.

    Measured and published scores stand side by side.

    Example: stsbench leaderboard --table simcse-5 --add minilm:Ours
    """

    results: Annotated[Path | None, Option("--results", help="Results folder; default 'results'.")] = None
    table: Annotated[
        str | None,
        Option("--table", autocompletion=tables, help="A table of a paper or of ours, or a TOML file of yours."),
    ] = None
    suite: Annotated[str, Option("--suite", autocompletion=suites, help="The suite whose tasks are the columns.")] = (
        "sts"
    )
    protocol: Annotated[str | None, Option("--protocol", "-p", help="Show this protocol's results.")] = None
    output: Annotated[
        str, Option("--format", help="terminal, markdown, latex, html, csv, json, or a figure: svg, png or pdf")
    ] = "terminal"
    show: Annotated[
        str | None, Option("--show", help="published, measured, difference, both, or merged: whichever there is.")
    ] = None
    exact: Annotated[bool, Option("--exact", help="Show exact averages, not rounded as in the paper.")] = False
    encoder: Annotated[
        list[str],
        Option(
            "--encoder",
            "-e",
            callback=each_name,
            autocompletion=encoder_names,
            help="Show the measured rows of these encoders only; comma list.",
        ),
    ] = field(default_factory=list)
    add: Annotated[
        list[str],
        Option("--add", callback=each_name, help="NAME or NAME:LABEL: a row of what was measured of it; comma list."),
    ] = field(default_factory=list)
    rows_only: Annotated[
        bool, Option("--rows-only", help="No head and no legend, and with --add the added rows alone.")
    ] = False
    ranks: Annotated[
        bool, Option("--ranks", help="Rank intervals, and letters that tell ties; needs per-item columns.")
    ] = False
    mteb: Annotated[Path | None, Option("--mteb", help="A folder of MTEB's result files, shown as imported rows.")] = (
        None
    )
    out: TableFile = None

    @property
    def fmt(self) -> str:
        """The format that is written."""
        return written_as(self.output, self.out, as_json=self.as_json)

    def check(self, given: Given) -> None:
        """Refuse what would be passed over."""
        given.apart("--table", "--suite", "--protocol")
        given.apart("--json", "--format")
        fmt = self.fmt
        if fmt in FIGURES and self.out is None:
            raise StsbenchError(f"--format {fmt} is a figure; add --out FILE")
        if fmt in ("csv", "json"):
            given.idle(f"as {fmt}, which holds both averages", "--exact")
        if self.table and fmt == "json":
            given.idle("as json, which holds all that there is", "--show")
        if self.show == "published":
            given.idle("with --show published", "--ranks", "--add", *(("--results", "--encoder") if self.table else ()))
        if self.show in ("measured", "difference"):
            given.idle(f"with --show {self.show}", "--mteb")
        self._check_rows(given, fmt)

    def _check_rows(self, given: Given, fmt: str) -> None:
        if self.table and self.show == "difference":
            given.idle("with --show difference, for no paper prints an added row", "--add")
        if fmt in FIGURES:
            given.idle("in a figure", "--rows-only")
        if fmt == "terminal" and not self.out:
            given.idle("in the terminal, only with --format latex, markdown or csv", "--rows-only")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ExportOptions(WithJson):
    """Write results for other tools.

    MTEB, model cards, the Hub's .eval_results and Every Eval Ever.

    Example: stsbench export --format mteb --out mteb-files
    """

    fmt: Annotated[str, Option("--format", help="mteb, model-index, eval-results or every-eval-ever")]
    results: ResultsOption = Path("results")
    encoder: OnlyEncoders = field(default_factory=list)
    tasks: OnlyTasks = None
    protocol: OnlyProtocol = None
    out: Annotated[
        Path | None,
        Option("--out", help="mteb: the folder to fill; model-index: a model card to write or fill; else a file."),
    ] = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CompareOptions(WithJson):
    """Test which differences between encoders are significant.

    The tests are paired, over the same items.

    Example: stsbench compare minilm glove-840b --tasks sts
    """

    encoders: Annotated[list[str], Argument(help="Encoders of the results folder, or folders of results.")]
    results: ResultsOption = Path("results")
    tasks: OnlyTasks = None
    protocol: OnlyProtocol = None
    seed: Annotated[int, Option("--seed", min=0, max=LAST_SEED, help="Seed of the draws.")] = 0
    independent: Annotated[bool, Option("--independent", help="Treat items that share a sentence as independent.")] = (
        False
    )
    output: Annotated[str, Option("--format", help="terminal, markdown, latex, csv or json")] = "terminal"
    out: TableFile = None
    plot: Annotated[
        Path | None, Option("--plot", help="Draw the differences into this file too: .svg, .png or .pdf.")
    ] = None

    @property
    def fmt(self) -> str:
        """The format that is written."""
        return written_as(self.output, self.out, as_json=self.as_json)

    def check(self, given: Given) -> None:
        """Refuse what would be passed over."""
        given.apart("--json", "--format")
        check_figure(self.plot)
        if not self.results.is_dir() and all(Path(one).is_dir() for one in self.encoders):
            given.idle("where all that is compared are folders", "--results")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ParityOptions(WithJson):
    """Test whether two encoders that ought to be one are.

    The same sentences go through both: those of the tasks, and long, empty and other odd ones. The exit code is 0 where they
    are the same, 1 where they are different.

    Example: stsbench parity minilm minilm+dtype=bfloat16 --tasks stsb
    """

    first: Annotated[
        str,
        Argument(autocompletion=encoder_names, help="An encoder: a card's name, a Hub id, a folder or a card file."),
    ]
    second: Annotated[str, Argument(autocompletion=encoder_names, help="The encoder that ought to be the same.")]
    tasks: Annotated[
        str, Option("--tasks", "-t", autocompletion=task_names, help="Tasks and suites to score, comma list.")
    ] = "sts"
    protocol: Annotated[str | None, Option("--protocol", "-p", help="Protocols, e.g. simcse, wmean.")] = None
    split: Annotated[str | None, Option("--split", help="Score this split (default: test).")] = None
    margin: Annotated[
        float, Option("--margin", min=0, max=100, help="Points by which a score may differ between the same encoders.")
    ] = 0.5
    data: Data = None
    store: Annotated[Path | None, Option("--store", help="Folder of stored embeddings.")] = None
    no_store: Annotated[bool, Option("--no-store", help="Keep embeddings in memory only.")] = False

    def check(self, given: Given) -> None:
        """Refuse what would be passed over."""
        given.apart("--no-store", "--store")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CheckOptions(WithJson):
    """Check new scores against old ones, for CI.

    Exit code 0: fine; 1: a regression; 2: not comparable.

    Example: stsbench check results --against scores.lock.json
    """

    new: Annotated[Path, Argument(help="A results folder (or lock file) to be checked.")]
    against: Annotated[
        Path, Option("--against", help="A results folder or lock file, or 'published' for papers' scores.")
    ]
    encoder: OnlyEncoders = field(default_factory=list)
    against_encoder: Annotated[
        list[str],
        Option(
            "--against-encoder",
            callback=each_name,
            autocompletion=encoder_names,
            help="Check against these encoders only; comma list.",
        ),
    ] = field(default_factory=list)
    tasks: OnlyTasks = None
    rule: Annotated[str, Option("--rule", help="absolute or statistical")] = "absolute"
    tolerance: Annotated[
        list[str], Option("--tolerance", help="Points: 0.5, or for one class half=0.2; may be repeated.")
    ] = field(default_factory=list)
    exact: Annotated[bool, Option("--exact", help="A score that rises beyond its tolerance fails too.")] = False
    allow_missing: Annotated[
        bool, Option("--allow-missing", help="Scores that are only in the old results are not an error.")
    ] = False
    junit: Annotated[Path | None, Option("--junit", help="Write JUnit XML to this file.")] = None
    github: Annotated[bool, Option("--github", help="Print GitHub annotations.")] = False
    summary: Annotated[Path | None, Option("--summary", help="Add a markdown summary to this file.")] = None

    @property
    def published(self) -> bool:
        """Whether papers' scores are what is checked against."""
        return str(self.against) == "published" and not self.against.exists()

    def check(self, given: Given) -> None:
        """Refuse what would be passed over."""
        if self.published:
            given.idle("with --against published", "--against-encoder", "--rule", "--allow-missing")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LockOptions(WithJson):
    """Write scores to a lock file for 'stsbench check'.

    It holds what they were made with, and what paired tests need.

    Example: stsbench lock results --out scores.lock.json
    """

    results: Annotated[Path, Argument(help="Results folder.")] = Path("results")
    out: Annotated[Path, Option("--out", help="The lock file.")] = Path("scores.lock.json")
    encoder: OnlyEncoders = field(default_factory=list)
    tasks: OnlyTasks = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class VerifyOptions(WithJson):
    """Make every score again from its items.

    Hashes, protocols and data are checked too; no encoder is needed.

    Example: stsbench verify results --data DIR
    """

    results: Annotated[Path, Argument(help="Results folder, or the folder of one encoder in it.")] = Path("results")
    data: Data = None
