"""What the commands are asked for that make figures and reports."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from stsbench.cli.options.completion import analyses, encoder_names, suites, task_names
from stsbench.cli.options.shared import Data, Given, ResultsOption, WithCards, WithJson, each_name


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AnalyzeOptions(WithJson):
    """Make a figure of the papers, as numbers and as a picture.

    WHAT: alignment, similarity, spectrum, layers, tokens, errors, neighbours, robustness, map, shift or sweep.

    Example: stsbench analyze alignment --encoder minilm,glove-6b --out alignment.svg
    """

    what: Annotated[str, Argument(autocompletion=analyses, help="The analysis.")]
    encoder: Annotated[
        list[str],
        Option("--encoder", "-e", callback=each_name, autocompletion=encoder_names, help="Encoders; comma list."),
    ] = field(default_factory=list)
    tasks: Annotated[str, Option("--tasks", "-t", autocompletion=task_names, help="The task.")] = "stsb"
    protocol: Annotated[str | None, Option("--protocol", "-p", help="How the task is scored.")] = None
    split: Annotated[str | None, Option("--split", help="Score this split (default: test).")] = None
    assign: Annotated[
        list[str], Option("--set", help="Replace a parameter of the analysis, e.g. k=10; may be repeated.")
    ] = field(default_factory=list)
    out: Annotated[
        list[Path], Option("--out", help="Write to this file: .json, .csv, .svg, .png or .pdf; may be repeated.")
    ] = field(default_factory=list)
    results: ResultsOption = Path("results")
    data: Data = None
    store: Annotated[Path | None, Option("--store", help="Folder of stored embeddings.")] = None
    no_store: Annotated[bool, Option("--no-store", help="Keep embeddings in memory only.")] = False

    def check(self, given: Given) -> None:
        """Refuse what would be passed over."""
        given.apart("--no-store", "--store")
        from stsbench.analysis.seams import ANALYSES

        if ANALYSES.load(self.what).reads_results:
            given.idle(f"for '{self.what}', which embeds nothing", "--no-store", "--store", "--data")
        else:
            given.idle(f"for '{self.what}', which reads no results", "--results")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ReportOptions(WithCards):
    """Put results, comparisons and figures into one HTML page.

    The page needs no other file and no network, and holds no sentence of a task.

    Example: stsbench report --encoder minilm,glove-6b --out report.html
    """

    encoder: Annotated[
        list[str],
        Option("--encoder", "-e", callback=each_name, autocompletion=encoder_names, help="Encoders; comma list."),
    ] = field(default_factory=list)
    figures: Annotated[str, Option("--figures", help="Analyses whose figures are made; comma list.")] = (
        "alignment,similarity,spectrum,layers,errors,neighbours,robustness,map"
    )
    tasks: Annotated[str, Option("--tasks", "-t", autocompletion=task_names, help="The task that figures are of.")] = (
        "stsb"
    )
    suite: Annotated[str, Option("--suite", autocompletion=suites, help="The suite whose results are shown.")] = "sts"
    title: Annotated[str, Option("--title", help="What stands above the page.")] = "Sentence encoders"
    out: Annotated[Path, Option("--out", help="The page.")] = Path("report.html")
    results: ResultsOption = Path("results")
    data: Data = None
    store: Annotated[Path | None, Option("--store", help="Folder of stored embeddings.")] = None
    no_store: Annotated[bool, Option("--no-store", help="Keep embeddings in memory only.")] = False

    def check(self, given: Given) -> None:
        """Refuse what would be passed over."""
        given.apart("--no-store", "--store")
