"""What the commands are asked for that run, train, time and convert encoders."""

from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from stsbench.cli.options.completion import ablation_names, encoder_names, recipe_names, task_names
from stsbench.cli.options.shared import (
    MOST,
    Corpora,
    Data,
    Given,
    Near,
    Options,
    ResultsOption,
    TableFile,
    WithCards,
    WithJson,
    check_figure,
    each_name,
)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RunOptions(WithJson):
    """Score encoders on tasks.

    Each result is kept as soon as it is there; the same command resumes. With no argument: the encoder minilm on the suite
    quickstart, which needs no network.

    Example: stsbench run minilm --tasks sts --data DIR
    Example: stsbench run simcse-small --clean own
    """

    encoders: Annotated[
        list[str],
        Argument(
            callback=each_name, autocompletion=encoder_names, help="Encoders: card names, Hub ids, folders, card files."
        ),
    ] = field(default_factory=list)
    encoder: Annotated[
        list[str],
        Option(
            "--encoder",
            "-e",
            callback=each_name,
            autocompletion=encoder_names,
            help="The same as an option; comma list.",
        ),
    ] = field(default_factory=list)
    tasks: Annotated[
        str | None,
        Option("--tasks", "-t", autocompletion=task_names, help="Tasks and suites, comma list; default suite 'sts'."),
    ] = None
    protocol: Annotated[
        str | None, Option("--protocol", "-p", help="Protocols, e.g. simcse, wmean, mean, semeval.")
    ] = None
    split: Annotated[str | None, Option("--split", help="Score this split (default: test).")] = None
    seeds: Annotated[str, Option("--seeds", help="Seeds of the evaluation, comma list.")] = "0"
    assign: Annotated[list[str], Option("--set", help="Replace a parameter of the encoder, e.g. dtype=bfloat16.")] = (
        field(default_factory=list)
    )
    names: Annotated[
        list[str], Option("--name", callback=each_name, help="What results call the encoders, one name each.")
    ] = field(default_factory=list)
    variants: Annotated[
        list[str],
        Option("--variants", help="Values of 'dimensions' or 'embeddings' to score, e.g. embeddings=float32,int8."),
    ] = field(default_factory=list)
    plot: Annotated[
        Path | None, Option("--plot", help="Draw the scores of --variants into this file: .svg, .png or .pdf.")
    ] = None
    clean: Annotated[
        list[str],
        Option(
            "--clean",
            callback=each_name,
            help="Score also without the items that these corpora or files hold; 'own': the recipe's corpus.",
        ),
    ] = field(default_factory=list)
    near: Near = None
    corpora: Corpora = None
    data: Data = None
    results: ResultsOption = Path("results")
    store: Annotated[Path | None, Option("--store", help="Folder of stored embeddings.")] = None
    no_store: Annotated[bool, Option("--no-store", help="Keep embeddings in memory only.")] = False
    fresh: Annotated[bool, Option("--fresh", help="Score again even what the results folder has.")] = False
    on: Annotated[
        str, Option("--on", help="Who does the work: local, ray (this machine or RAY_ADDRESS), ray://HOST:PORT.")
    ] = "local"
    gpus_per_encoder: Annotated[
        int | None,
        Option(
            "--gpus-per-encoder",
            min=1,
            max=MOST,
            help="GPUs (or cores, without any) that embed for one encoder; default all that are free.",
        ),
    ] = None
    dry_run: Annotated[
        bool,
        Option("--dry-run", help="Show what is done, what is missing and how many sentences to embed; do nothing."),
    ] = False
    verbose: Annotated[bool, Option("--verbose", "-v", help="Print every subset or class.")] = False

    def check(self, given: Given) -> None:
        """Refuse what would be passed over."""
        given.apart("--no-store", "--store")
        given.apart("--dry-run", "--verbose", "--plot", "--clean")
        given.apart("--json", "--verbose", "--plot")
        given.apart("--variants", "--name", "--verbose", "--no-store", "--clean")
        if not self.variants:
            given.idle("without --variants", "--plot")
        if not self.clean:
            given.idle("without --clean", "--near", "--corpora")
        check_figure(self.plot)
        if self.on == "local":
            given.idle("without --on ray", "--gpus-per-encoder")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TrainOptions(WithJson):
    """Train an encoder by a recipe.

    The same command resumes a stopped run from its last complete checkpoint.

    Example: stsbench train sup-simcse-small --base FOLDER --corpora DIR
    Example: stsbench train simcse-bert-base --on ray --devices 4
    Example: stsbench train sup-simcse-bert-large --set chunk=64 --workers 4
    """

    recipe: Annotated[str, Argument(autocompletion=recipe_names, help="A recipe, or a recipe's TOML file.")]
    seeds: Annotated[str, Option("--seeds", help="Seeds, comma list: one run each; default the recipe's, else 0.")] = ""
    assign: Annotated[list[str], Option("--set", help="Replace a value of the recipe, e.g. temperature=0.1.")] = field(
        default_factory=list
    )
    base: Annotated[str, Option("--base", help="Start from this checkpoint (folder, Hub id or encoder).")] = ""
    text: Annotated[str | None, Option("--text", help="Train on this corpus or file.")] = None
    corpora: Corpora = None
    data: Data = None
    name: Annotated[str, Option("--name", help="What the trained encoder is called; default as its recipe.")] = ""
    out: Annotated[Path | None, Option("--out", help="Folder of runs; default STSBENCH_RUNS, or 'runs'.")] = None
    fresh: Annotated[bool, Option("--fresh", help="Train again from the start, even a finished or stopped run.")] = (
        False
    )
    yes: Annotated[bool, Option("--yes", help="With --fresh: delete checkpoints without asking.")] = False
    dry_run: Annotated[bool, Option("--dry-run", help="Print steps, tokens, memory and time expected.")] = False
    keep: Annotated[str | None, Option("--keep", help="Keep the 'best' weights by dev score, or the 'last'.")] = None
    device: Annotated[str, Option("--device", help="auto, cpu or cuda")] = "auto"
    deterministic: Annotated[
        bool, Option("--deterministic", help="Use only deterministic operations (slower on a GPU).")
    ] = False
    checkpoint_seconds: Annotated[float, Option("--checkpoint-seconds", min=0, help="Seconds between checkpoints.")] = (
        120.0
    )
    report_to: Annotated[list[str], Option("--report-to", help="tensorboard, wandb, …; may be repeated.")] = field(
        default_factory=list
    )
    on: Annotated[
        str, Option("--on", help="Who trains: local, ray (this machine or RAY_ADDRESS), ray://HOST:PORT.")
    ] = "local"
    devices: Annotated[
        int | None,
        Option("--devices", min=1, max=MOST, help="With --on ray: GPUs (or cores, without any) that train together."),
    ] = None
    workers: Annotated[
        int | None,
        Option("--workers", min=0, max=64, help="Processes that make batches ahead; default 0, on a GPU up to 4."),
    ] = None

    def check(self, given: Given) -> None:
        """Refuse what would be passed over."""
        given.apart("--dry-run", "--fresh", "--yes", "--checkpoint-seconds", "--report-to", "--on", "--devices")
        if self.on == "local":
            given.idle("without --on ray", "--devices")
        else:
            given.idle("beside --on", "--device")
        if not self.fresh:
            given.idle("without --fresh", "--yes")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ReproduceOptions(WithJson):
    """Train the rows of a paper's table or figure.

    They are scored, and printed beside the paper's numbers. 'stsbench list ablations' names tables and figures. Nothing is trained twice; the same command resumes.

    Example: stsbench reproduce simcse-table-3 --small --base FOLDER
    """

    table: Annotated[str, Argument(autocompletion=ablation_names, help="A table or figure.")]
    small: Annotated[
        bool, Option("--small", help="Train small recipes, which a CPU can, on a base of yours (--base).")
    ] = False
    base: Annotated[str, Option("--base", help="All start from this checkpoint (folder, Hub id or encoder).")] = ""
    seeds: Annotated[str, Option("--seeds", help="Seeds, comma list; default each recipe's own, small: the first.")] = (
        ""
    )
    assign: Annotated[list[str], Option("--set", help="Replace a value of every recipe, e.g. steps=20.")] = field(
        default_factory=list
    )
    results: ResultsOption = Path("results")
    corpora: Corpora = None
    data: Data = None
    device: Annotated[str, Option("--device", help="auto, cpu or cuda")] = "auto"
    deterministic: Annotated[
        bool, Option("--deterministic", help="Use only deterministic operations (slower on a GPU).")
    ] = False
    dry_run: Annotated[bool, Option("--dry-run", help="Show what is trained already, what will be, and how long.")] = (
        False
    )
    out: TableFile = None

    def check(self, given: Given) -> None:
        """Refuse what would be passed over."""
        given.apart("--dry-run", "--out")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TimingOptions(WithCards):
    """Time training and inference on this machine.

    As SG-OPT's table 6 does.

    Example: stsbench timing --encoder minilm --data DIR
    """

    encoder: Annotated[
        list[str],
        Option(
            "--encoder",
            "-e",
            callback=each_name,
            autocompletion=encoder_names,
            help="Encoders, comma list; default those of SG-OPT's table.",
        ),
    ] = field(default_factory=list)
    recipe: Annotated[
        list[str],
        Option(
            "--recipe",
            "-r",
            callback=each_name,
            autocompletion=recipe_names,
            help="Recipes to train and time, comma list.",
        ),
    ] = field(default_factory=list)
    assign: Annotated[list[str], Option("--set", help="Replace a parameter of the encoders, e.g. model=FOLDER.")] = (
        field(default_factory=list)
    )
    base: Annotated[str, Option("--base", help="Recipes start from this checkpoint (folder or Hub id).")] = ""
    task: Annotated[
        str, Option("--tasks", "-t", autocompletion=task_names, help="Embed and fit on the sentences of this task.")
    ] = "stsb"
    split: Annotated[str, Option("--split", help="Embed the sentences of this split.")] = "test"
    batch_size: Annotated[int, Option("--batch-size", min=1, max=MOST, help="Sentences per batch.")] = 16
    rounds: Annotated[int, Option("--rounds", min=1, max=1000, help="Repeats; the median is reported.")] = 3
    steps: Annotated[
        int | None,
        Option("--steps", min=1, max=MOST, help="Train this many steps and estimate the whole run from them."),
    ] = None
    device: Annotated[str, Option("--device", help="Device to train on: auto, cpu or cuda")] = "auto"
    data: Data = None
    output: Annotated[str, Option("--format", help="terminal, markdown or json")] = "terminal"
    out: TableFile = None

    def check(self, given: Given) -> None:
        """Refuse what would be passed over."""
        if self.encoder and not self.recipe:
            given.idle("without --recipe", "--base", "--steps", "--device")
        if self.recipe and not self.encoder:
            given.idle("without --encoder", "--set")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ConvertOptions(Options):
    """Make an encoder's folder.

    From published weights, of which tensors are read and nothing else, or from a transformer, in int8 for a runtime.

    Example: stsbench convert infersent infersent1.pkl infersent-1
    Example: stsbench convert openvino-int8 minilm minilm-int8 --text wiki1m_head
    """

    kind: Annotated[str, Argument(help="infersent, skip_thoughts, expand, onnx-int8, openvino-int8.")]
    source: Annotated[Path, Argument(help="infersent1.pkl; a folder; int8: any encoder with a transformer.")]
    out: Annotated[Path, Argument(help="The encoder's folder to write.")]
    version: Annotated[int, Option("--version", help="InferSent's version, 1 or 2.")] = 1
    vectors: Annotated[str, Option("--vectors", help="File of word vectors (infersent, expand).")] = ""
    limit: Annotated[int | None, Option("--limit", min=1, max=MOST, help="Use only the first vectors (expand).")] = None
    text: Annotated[str, Option("--text", help="Corpus or file that activations are measured on (openvino-int8).")] = (
        "wiki1m_head"
    )
    corpora: Corpora = None

    def check(self, given: Given) -> None:
        """Refuse what would be passed over."""
        uses = {
            "infersent": ("--version", "--vectors"), "skip_thoughts": (), "expand": ("--vectors", "--limit"),
            "onnx-int8": (), "openvino-int8": ("--text", "--corpora"),
        }  # fmt: skip
        others = {*chain(*uses.values())} - {*uses.get(self.kind, given)}
        given.idle(f"with '{self.kind}'", *sorted(others))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SweepOptions(WithJson):
    """Try values of recipes and keep the best.

    A card names recipes, values, seeds and the development split that decides. The same command resumes.

    Example: stsbench sweep rates.toml --base FOLDER --on ray
    """

    card: Annotated[Path, Argument(help="The sweep's TOML file.")]
    base: Annotated[str, Option("--base", help="Start from this checkpoint (folder, Hub id or encoder).")] = ""
    text: Annotated[str, Option("--text", help="Train on this corpus or file.")] = ""
    corpora: Corpora = None
    data: Data = None
    out: Annotated[
        Path | None, Option("--out", help="Folder of the table and the winners' cards; default sweeps/CARD.")
    ] = None
    on: Annotated[str, Option("--on", help="Who trains: local, or ray (this machine or RAY_ADDRESS).")] = "local"
    cores: Annotated[
        int, Option("--cores", min=1, max=MOST, help="With --on ray and no GPU: cores of each training.")
    ] = 1
    device: Annotated[str, Option("--device", help="auto, cpu or cuda")] = "auto"
    checkpoint_seconds: Annotated[float, Option("--checkpoint-seconds", min=0, help="Seconds between checkpoints.")] = (
        120.0
    )
    plot: Annotated[Path | None, Option("--plot", help="Draw the scores into this file: .svg, .png or .pdf.")] = None
    dry_run: Annotated[bool, Option("--dry-run", help="Show how many trainings, what is known and how long.")] = False

    def check(self, given: Given) -> None:
        """Refuse what would be passed over."""
        given.apart("--dry-run", "--plot", "--checkpoint-seconds")
        check_figure(self.plot)
        if self.on == "local":
            given.idle("without --on ray", "--cores")
        else:
            given.idle("beside --on", "--device")
