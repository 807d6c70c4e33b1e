"""Types of options that several commands share, and how the texts of options are read."""

# Annotations stay objects here, which typer reads: text would be evaluated at every start.
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, CallbackParam, Context, Option

from stsbench.core.errors import StsbenchError
from stsbench.core.settings import key_among
from stsbench.plots import FIGURES

MOST = 10**9
"""No count that is meant is larger."""
LAST_SEED = (1 << 32) - 1
FOLDERS, OUTPUT, WORK = "Data and folders", "Output", "How the work is done"
"""Groups of options in a command's help; the others come first."""


def completion(kinds: Iterable[str], *more: Callable[[], Iterable[str]]) -> Callable[[str], Iterator[str]]:
    """What a shell offers for the last name of a comma list; only the names of files are read.

    Args:
        kinds: folders of cards whose names are offered.
        more: functions that return further names.
    """

    def complete(incomplete: str) -> Iterator[str]:
        from stsbench.core.catalogue import Catalogue

        catalogue = Catalogue()
        known = [name for kind in kinds for name in catalogue.paths(kind)]
        known += [name for names in more for name in names()]
        before, comma, last = incomplete.rpartition(",")
        yield from (f"{before}{comma}{name}" for name in dict.fromkeys(known) if name.startswith(last))

    return complete


def _suites() -> Iterable[str]:
    from stsbench.core.catalogue import Catalogue

    return Catalogue().suites()


def _tables() -> Iterable[str]:
    from stsbench.boards.published.specs import table_names

    return table_names()


def _analyses() -> Iterable[str]:
    from stsbench.analysis.run import ANALYSES

    return ANALYSES.names()


encoder_names = completion(["baselines", "trainers"])
recipe_names = completion(["trainers"])
task_names = completion(["tasks"], _suites)
ablation_names = completion(["trainers/tables"])
suites = completion([], _suites)
tables = completion([], _tables)
all_names = completion(["tasks", "baselines", "trainers"], _suites)
analyses = completion([], _analyses)


def each_name(parameter: CallbackParam, given: list[str]) -> list[str]:
    """The names of an option that may be repeated, each a comma list.

    Raises:
        StsbenchError: the option was given, and names nothing, or nothing between two commas.
    """
    from stsbench.core.names import has_gap, split_names

    if gap := next(filter(has_gap, given), None):
        raise StsbenchError(f"{parameter.opts[0]} '{gap}': a name is missing beside a comma")
    names = [name for one in given for name in split_names(one)]
    if given and not names:
        raise StsbenchError(f"{parameter.opts[0]} '{','.join(given)}' is empty")
    return names


def _configured(context: Context, config: Path | None) -> Path | None:
    if not context.resilient_parsing:
        from stsbench.cli.config import defaults

        context.default_map = defaults(config, of_run=context.info_name == "run")
    return config


def _option(*flags: str, panel: str | None = None, complete: Any = None, **more: Any) -> Any:  # noqa: ANN401
    return Option(*flags, rich_help_panel=panel, autocompletion=complete, **more)


def _repeated(*flags: str, **more: Any) -> Any:  # noqa: ANN401
    """An option that may be repeated."""
    return _option(*flags, default_factory=list, show_default=False, **more)


def _names(*flags: str, **more: Any) -> Any:  # noqa: ANN401
    """An option that may be repeated, each time with a comma list of names."""
    return _repeated(*flags, callback=each_name, **more)


def _arguments(**more: Any) -> Any:  # noqa: ANN401
    return Argument(default_factory=list, show_default=False, **more)


# What is measured.
EncoderArguments = Annotated[
    list[str],
    _arguments(
        callback=each_name, autocompletion=encoder_names, help="Encoders: card names, Hub ids, folders, card files."
    ),
]
EncoderAgain = Annotated[
    list[str], _names("--encoder", "-e", complete=encoder_names, help="The same as an option; comma list.")
]
Encoders = Annotated[list[str], _names("--encoder", "-e", complete=encoder_names, help="Encoders; comma list.")]
OnlyEncoders = Annotated[
    list[str], _names("--encoder", "-e", complete=encoder_names, help="Only these encoders; comma list.")
]
AgainstEncoders = Annotated[
    list[str],
    _names("--against-encoder", complete=encoder_names, help="Check against these encoders only; comma list."),
]
ComparedEncoders = Annotated[list[str], Argument(help="Encoders of the results folder, or folders of results.")]
FirstEncoder = Annotated[
    str, Argument(autocompletion=encoder_names, help="An encoder: a card's name, a Hub id, a folder or a card file.")
]
SecondEncoder = Annotated[str, Argument(autocompletion=encoder_names, help="The encoder that should be the same.")]
Tasks = Annotated[
    str | None, _option("--tasks", "-t", complete=task_names, help="Tasks and suites, comma list; default suite 'sts'.")
]
TasksToScore = Annotated[
    str, _option("--tasks", "-t", complete=task_names, help="Tasks and suites to score, comma list.")
]
OnlyTasks = Annotated[str | None, _option("--tasks", "-t", complete=task_names, help="Only these tasks and suites.")]
OneTask = Annotated[str, _option("--tasks", "-t", complete=task_names, help="The task whose sentences are used.")]
Suite = Annotated[str, _option("--suite", complete=suites, help="The suite whose results are shown.")]
Protocols = Annotated[str | None, _option("--protocol", "-p", help="Protocols, e.g. simcse, wmean, mean, semeval.")]
Protocol = Annotated[str | None, _option("--protocol", "-p", help="How the task is scored.")]
OnlyProtocol = Annotated[str | None, _option("--protocol", "-p", help="Only this protocol's results.")]
Split = Annotated[str | None, _option("--split", help="Score this split (default: test).")]
TimedSplit = Annotated[str, _option("--split", help="Embed the sentences of this split.")]
EvaluationSeeds = Annotated[str, _option("--seeds", help="Seeds of the evaluation, comma list.")]
OwnNames = Annotated[list[str], _names("--name", help="What results call the encoders, one name each.")]
SetEncoder = Annotated[list[str], _repeated("--set", help="Replace a parameter of the encoder, e.g. dtype=bfloat16.")]
SetAnalysis = Annotated[
    list[str], _repeated("--set", help="Replace a parameter of the analysis, e.g. k=10; may be repeated.")
]
Variants = Annotated[
    list[str],
    _repeated("--variants", help="Values of 'dimensions' or 'embeddings' to score, e.g. embeddings=float32,int8."),
]
Clean = Annotated[
    list[str],
    _names(
        "--clean", help="Score also without the items that these corpora or files hold; 'own': the recipe's corpus."
    ),
]
Near = Annotated[
    float | None,
    _option("--near", min=0.5, max=1, help="Near-duplicates too, from this similarity on, e.g. 0.8 (needs rensa)."),
]
Analysis = Annotated[str, Argument(autocompletion=analyses, help="The analysis.")]
Figures = Annotated[str, _option("--figures", help="Analyses whose figures are made; comma list.")]
Title = Annotated[str, _option("--title", help="What stands above the page.")]
Margin = Annotated[
    float, _option("--margin", min=0, max=100, help="Points by which a score may differ between the same encoders.")
]
BatchSize = Annotated[int, _option("--batch-size", min=1, max=MOST, help="Sentences per batch.")]
Rounds = Annotated[int, _option("--rounds", min=1, max=1000, help="Repeats; the median is reported.")]

# What is trained.
Recipe = Annotated[str, Argument(autocompletion=recipe_names, help="A recipe, or a recipe's TOML file.")]
TimedRecipes = Annotated[
    list[str], _names("--recipe", "-r", complete=recipe_names, help="Recipes to train and time, comma list.")
]
AblationTable = Annotated[str, Argument(autocompletion=ablation_names, help="A table or figure.")]
SweepCard = Annotated[Path, Argument(help="The sweep's TOML file.")]
RecipeSeeds = Annotated[str, _option("--seeds", help="Seeds, comma list: one run each; default the recipe's, else 0.")]
AblationSeeds = Annotated[
    str, _option("--seeds", help="Seeds, comma list; default each recipe's own, small: the first.")
]
SetRecipe = Annotated[list[str], _repeated("--set", help="Replace a value of the recipe, e.g. temperature=0.1.")]
Base = Annotated[str, _option("--base", help="Start from this checkpoint (folder, Hub id or encoder).")]
Small = Annotated[bool, _option("--small", help="Train small recipes, which a CPU can, on a base of yours (--base).")]
TrainingText = Annotated[str | None, _option("--text", help="Train on this corpus or file.")]
RunName = Annotated[str, _option("--name", help="What the trained encoder is called; default as its recipe.")]
Keep = Annotated[str | None, _option("--keep", help="Keep the 'best' weights by dev score, or the 'last'.")]
TimedSteps = Annotated[
    int | None,
    _option("--steps", min=1, max=MOST, help="Train this many steps and estimate the whole run from them."),
]

# Folders.
Data = Annotated[
    Path | None, _option("--data", panel=FOLDERS, help="Folder of evaluation data; default STSBENCH_DATA.")
]
Corpora = Annotated[
    Path | None, _option("--corpora", panel=FOLDERS, help="Folder of training text; default STSBENCH_CORPORA.")
]
CorporaToFill = Annotated[
    Path | None, _option("--corpora", panel=FOLDERS, help="Folder to write into; default STSBENCH_CORPORA.")
]
ResultsFolder = Annotated[Path, _option("--results", panel=FOLDERS, help="Results folder.")]
ResultsIfAny = Annotated[Path | None, _option("--results", panel=FOLDERS, help="Results folder; default 'results'.")]
ResultsArgument = Annotated[Path, Argument(help="Results folder.")]
VerifiedResults = Annotated[Path, Argument(help="Results folder, or the folder of one encoder in it.")]
MtebFolder = Annotated[
    Path | None, _option("--mteb", panel=FOLDERS, help="A folder of MTEB's result files, shown as imported rows.")
]
Store = Annotated[Path | None, _option("--store", panel=FOLDERS, help="Folder of stored embeddings.")]
NoStore = Annotated[bool, _option("--no-store", panel=FOLDERS, help="Keep embeddings in memory only.")]
Cards = Annotated[
    list[Path], _repeated("--cards", panel=FOLDERS, help="A folder with cards of your own; may be repeated.")
]
Config = Annotated[
    Path | None,
    _option(
        "--config",
        is_eager=True,
        callback=_configured,
        panel=FOLDERS,
        help="File of settings; default stsbench.toml, here or above.",
    ),
]
RunsFolder = Annotated[
    Path | None, _option("--out", panel=FOLDERS, help="Folder of runs; default STSBENCH_RUNS, or 'runs'.")
]
SweepFolder = Annotated[
    Path | None,
    _option("--out", panel=FOLDERS, help="Folder of the table and the winners' cards; default sweeps/CARD."),
]

# How the work is done.
Fresh = Annotated[bool, _option("--fresh", panel=WORK, help="Score again even what the results folder has.")]
TrainAgain = Annotated[
    bool, _option("--fresh", panel=WORK, help="Train again from the start, even a finished or stopped run.")
]
Yes = Annotated[bool, _option("--yes", panel=WORK, help="With --fresh: delete checkpoints without asking.")]
WhoScores = Annotated[
    str,
    _option("--on", panel=WORK, help="Who does the work: local, ray (this machine or RAY_ADDRESS), ray://HOST:PORT."),
]
WhoTrains = Annotated[
    str, _option("--on", panel=WORK, help="Who trains: local, ray (this machine or RAY_ADDRESS), ray://HOST:PORT.")
]
GpusPerEncoder = Annotated[
    int | None,
    _option(
        "--gpus-per-encoder",
        min=1,
        max=MOST,
        panel=WORK,
        help="GPUs (or cores, without any) that embed for one encoder; default all that are free.",
    ),
]
Timeout = Annotated[
    float | None,
    _option(
        "--timeout",
        min=1,
        max=MOST,
        panel=WORK,
        help="Seconds after which --on ray gives up a piece of work that hangs.",
    ),
]
Devices = Annotated[
    int | None,
    _option(
        "--devices",
        min=1,
        max=MOST,
        panel=WORK,
        help="With --on ray: GPUs (or cores, without any) that train together.",
    ),
]
Cores = Annotated[
    int, _option("--cores", min=1, max=MOST, panel=WORK, help="With --on ray and no GPU: cores of each training.")
]
Workers = Annotated[
    int | None,
    _option(
        "--workers",
        min=0,
        max=64,
        panel=WORK,
        help="Processes that make batches ahead; default 0, on a GPU up to 4.",
    ),
]
Device = Annotated[str, _option("--device", panel=WORK, help="auto, cpu or cuda")]
Deterministic = Annotated[
    bool, _option("--deterministic", panel=WORK, help="Use only deterministic operations (slower on a GPU).")
]
CheckpointSeconds = Annotated[
    float, _option("--checkpoint-seconds", min=0, panel=WORK, help="Seconds between checkpoints.")
]
ReportTo = Annotated[list[str], _repeated("--report-to", panel=WORK, help="tensorboard, wandb, …; may be repeated.")]
DryRun = Annotated[
    bool,
    _option(
        "--dry-run",
        panel=WORK,
        help="Show what is done, what is missing and how many sentences to embed; do nothing.",
    ),
]
DryTraining = Annotated[
    bool,
    _option("--dry-run", panel=WORK, help="Train nothing; show what is done, what is missing and how long it takes."),
]
CompareSeed = Annotated[int, _option("--seed", min=0, max=LAST_SEED, help="Seed of the draws.")]
Independent = Annotated[bool, _option("--independent", help="Treat items that share a sentence as independent.")]

# Boards.
Table = Annotated[
    str | None, _option("--table", complete=tables, help="A table of a paper or of ours, or a TOML file of yours.")
]
Show = Annotated[
    str | None, _option("--show", help="published, measured, difference, both, or merged: whichever there is.")
]
ExactAverages = Annotated[bool, _option("--exact", help="Show exact averages, not rounded as in the paper.")]
AddedRows = Annotated[
    list[str], _names("--add", help="NAME or NAME:LABEL: a row of what was measured of it; comma list.")
]
RowsOnly = Annotated[
    bool, _option("--rows-only", panel=OUTPUT, help="No head and no legend, and with --add the added rows alone.")
]
Ranks = Annotated[bool, _option("--ranks", help="Rank intervals, and letters that tell ties; needs per-item columns.")]

# Checks.
NewResults = Annotated[Path, Argument(help="A results folder (or lock file) to be checked.")]
Against = Annotated[
    Path, _option("--against", help="A results folder or lock file, or 'published' for papers' scores.")
]
RuleName = Annotated[str, _option("--rule", help="absolute or statistical")]
Tolerances = Annotated[
    list[str], _repeated("--tolerance", help="Points: 0.5, or for one class half=0.2; may be repeated.")
]
Exact = Annotated[bool, _option("--exact", help="A score that rises beyond its tolerance fails too.")]
AllowMissing = Annotated[
    bool, _option("--allow-missing", help="Scores that are only in the old results are not an error.")
]
Junit = Annotated[Path | None, _option("--junit", panel=OUTPUT, help="Write JUnit XML to this file.")]
Github = Annotated[bool, _option("--github", panel=OUTPUT, help="Print GitHub annotations.")]
Summary = Annotated[Path | None, _option("--summary", panel=OUTPUT, help="Add a markdown summary to this file.")]
LockFile = Annotated[Path, _option("--out", panel=OUTPUT, help="The lock file.")]

# Output.
AsJson = Annotated[bool, _option("--json", panel=OUTPUT, help="Print JSON on stdout, for scripts.")]
Verbose = Annotated[bool, _option("--verbose", "-v", panel=OUTPUT, help="Print every subset or class.")]
TableFile = Annotated[Path | None, _option("--out", panel=OUTPUT, help="Write to this file instead of the terminal.")]
BoardFormat = Annotated[
    str,
    _option("--format", panel=OUTPUT, help="terminal, markdown, latex, html, csv, json, or a figure: svg, png or pdf"),
]
CompareFormat = Annotated[str, _option("--format", panel=OUTPUT, help="terminal, markdown, latex, csv or json")]
TimingFormat = Annotated[str, _option("--format", panel=OUTPUT, help="terminal, markdown or json")]
ExportFormat = Annotated[
    str, _option("--format", panel=OUTPUT, help="mteb, model-index, eval-results or every-eval-ever")
]
ExportFile = Annotated[
    Path | None,
    _option(
        "--out",
        panel=OUTPUT,
        help="mteb: the folder to fill; model-index: a model card to write or fill; else a file.",
    ),
]
ReportFile = Annotated[Path, _option("--out", panel=OUTPUT, help="The page.")]
AnalysisFiles = Annotated[
    list[Path],
    _repeated("--out", panel=OUTPUT, help="Write to this file: .json, .csv, .svg, .png or .pdf; may be repeated."),
]
OverlapFile = Annotated[
    Path | None,
    _option("--out", panel=OUTPUT, help="Write the items that are held, or shared counts, to this .csv or .json."),
]
Plot = Annotated[
    Path | None, _option("--plot", panel=OUTPUT, help="Draw the scores into this file too: .svg, .png or .pdf.")
]
CurvePlot = Annotated[
    Path | None,
    _option("--curve", panel=OUTPUT, help="Draw the training curves of runs (comma list) to this .svg, .png or .pdf."),
]

# Cards and data.
Kind = Annotated[str, Argument(help="tasks, encoders, recipes, suites, corpora, tables or protocols")]
Language = Annotated[
    str | None, _option("--language", help="Only the tasks in this language, by its code: en, de, zh.")
]
AnyName = Annotated[
    str,
    Argument(autocompletion=all_names, help="A task, suite, encoder, recipe, corpus, table, run or protocol."),
]
Hub = Annotated[bool, _option("--hub", help="Fetch two small tasks and a small checkpoint, and score it.")]
NamesToFetch = Annotated[list[str], Argument(help="Tasks, suites or corpora.")]
NamesToVerify = Annotated[list[str], _arguments(help="Tasks or suites; default all that a folder holds.")]
CorpusArguments = Annotated[
    list[str], _arguments(metavar="[CORPUS]...", callback=each_name, help="Corpora, or files of training text.")
]
CorpusToMake = Annotated[str, Argument(metavar="CORPUS", help="A corpus that is not published as a file.")]
CocoSource = Annotated[Path, Argument(help="Folder of the published train.pkl, valid.pkl and test.pkl.")]
CocoTarget = Annotated[Path, Argument(help="Where to write safetensors and JSON.")]

# Converting and translating.
Conversion = Annotated[str, Argument(help="infersent, skip_thoughts, expand, onnx-int8, openvino-int8.")]
Weights = Annotated[Path, Argument(help="infersent1.pkl; a folder; int8: any encoder with a transformer.")]
EncoderFolder = Annotated[Path, Argument(help="The encoder's folder to write.")]
InferSentVersion = Annotated[int, _option("--version", help="InferSent's version, 1 or 2.")]
Vectors = Annotated[str, _option("--vectors", help="File of word vectors (infersent, expand).")]
VectorLimit = Annotated[int | None, _option("--limit", min=1, max=MOST, help="Use only the first vectors (expand).")]
ActivationText = Annotated[
    str, _option("--text", help="Corpus or file that activations are measured on (openvino-int8).")
]
Sentences = Annotated[str, Argument(metavar="INPUT", help="A corpus, or a file of sentences.")]
PairsFile = Annotated[Path, Argument(metavar="OUTPUT", help="The .csv file of pairs; a record is written beside it.")]
Forward = Annotated[str, _option("--forward", help="Marian model to translate with: a Hub id or a folder.")]
Backward = Annotated[str, _option("--backward", help="Marian model to translate back with.")]
Revisions = Annotated[tuple[str, str], _option("--revisions", help="Their Hub commits.")]
DecodingMode = Annotated[str, _option("--mode", help="greedy or sampling")]
Temperature = Annotated[float, _option("--temperature", min=0, max=MOST, help="For sampling.")]
SamplingSeed = Annotated[int, _option("--seed", min=0, max=LAST_SEED, help="For sampling.")]
MaxTokens = Annotated[int, _option("--max-tokens", max=MOST, help="Most tokens of a sentence, read or written.")]
TranslatedAtOnce = Annotated[int, _option("--batch-size", panel=WORK, max=MOST, help="Sentences translated at once.")]
SentenceLimit = Annotated[int | None, _option("--limit", max=MOST, help="Translate only the first sentences.")]

# Drafts.
TaskSource = Annotated[
    Path | None, Argument(help="CSV, TSV, JSON lines or parquet; or a folder with train, dev, test files.")
]
HubDataset = Annotated[str, _option("--hub", help="A dataset on the Hub instead of files: OWNER/NAME.")]
Revision = Annotated[str, _option("--revision", help="Its branch, tag or commit; the card keeps the commit.")]
Subset = Annotated[str, _option("--subset", help="Its configuration (subset), if it has several.")]
Columns = Annotated[
    list[str],
    _repeated("--columns", help="Columns, where they are not found: sentence1=A,sentence2=B,gold=C; sentence, label."),
]
CheckpointSource = Annotated[Path, Argument(help="A checkpoint's folder, or a file of word vectors.")]
DraftName = Annotated[str, _option("--name", help="Its name; default that of the file or folder.")]
MethodName = Annotated[str, Argument(help="Its name, and that of its module: letters, digits and '_'.")]
DraftsFolder = Annotated[Path, _option("--out", panel=OUTPUT, help="Folder of cards, for --cards of other commands.")]
Force = Annotated[bool, _option("--force", panel=OUTPUT, help="Write again what is there already.")]


class Given(frozenset[str]):
    """The options that were typed, by their long names, and arguments by their names."""

    @classmethod
    def of(cls, context: Context) -> "Given":
        """What was typed of a command."""
        return cls(
            long_name(one)
            for one in context.command.params
            if (source := context.get_parameter_source(str(one.name))) is not None and source.name == "COMMANDLINE"
        )

    def apart(self, first: str, *others: str) -> None:
        """Raise StsbenchError where an option was typed beside one that leaves it without effect."""
        if first in self:
            self.idle(f"beside {first}", *others)

    def needs(self, first: str, *others: str) -> None:
        """Raise StsbenchError where an option was typed without another that gives it effect."""
        if first not in self:
            self.idle(f"without {first}", *others)

    def idle(self, where: str, *names: str) -> None:
        """Raise StsbenchError where an option was typed that has no effect in this place."""
        for name in names:
            if name in self:
                raise StsbenchError(f"{name} has no effect {where}; leave it out")


def long_name(parameter: Any) -> str:  # noqa: ANN401 - typer's own classes of parameters have no public name
    """What an option is called, ``--name``; an argument's own name."""
    return next((name for name in parameter.opts if name.startswith("--")), str(parameter.name))


def retyped(context: Context, *names: str) -> list[str]:
    """Options as they are typed, by their long names: those that differ from their defaults, each of many by itself."""
    words: list[str] = []
    declared = {long_name(one): one for one in context.command.params}
    for flag in names:
        value, default = context.params[str(declared[flag].name)], declared[flag].default
        given = value if isinstance(value, list | tuple) else [] if value == default else [value]
        words += [word for one in given for word in ([flag] if one is True else [flag, str(one)])]
    return words


def check_figure(flag: str, path: Path | None) -> None:
    """Raise StsbenchError where a figure's file has no ending of one."""
    if path is not None and path.suffix.removeprefix(".") not in FIGURES:
        raise StsbenchError(f"{flag} '{path}': give a file that ends in .{', .'.join(FIGURES)}")


def kept_in(store: Path | None, *, no_store: bool) -> Path | Literal["default"] | None:
    """Where embeddings are kept: ``--store``, the user's cache folder, or nowhere but in memory."""
    return None if no_store else store or "default"


FORMATS_BY_ENDING = {
    ".md": "markdown", ".tex": "latex", ".html": "html", ".csv": "csv", ".json": "json", ".svg": "svg", ".png": "png",
    ".pdf": "pdf",
}  # fmt: skip
"""What a file's name says of its format, where no other is asked for."""


def written_as(output: str, out: Path | None, *, as_json: bool) -> str:
    """The format of a table: JSON, the one that was asked for, or the one that the file's name ends in."""
    if as_json:
        return "json"
    return FORMATS_BY_ENDING.get(out.suffix.lower(), output) if out is not None and output == "terminal" else output


def parse_seeds(text: str) -> list[int]:
    """Read a comma list of whole numbers."""
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise StsbenchError(f"--seeds '{text}': give whole numbers, such as 0,1,2") from error
    if min(seeds) < 0 or max(seeds) > LAST_SEED:
        raise StsbenchError(f"--seeds '{text}': a seed is not negative and below {1 << 32}")
    return seeds


def parse_assignments(assign: Sequence[str]) -> dict[str, Any]:
    """Read ``key=value`` texts; a value is a TOML value where it can be, else the text itself."""
    import tomllib

    params: dict[str, Any] = {}
    for one in assign:
        key, equals, value = one.partition("=")
        if not equals or not key.strip():
            raise StsbenchError(f"--set '{one}': give key=value, such as pooling=cls")
        if key.strip() in params:
            raise StsbenchError(f"--set {key.strip()} is given twice")
        try:
            params[key.strip()] = tomllib.loads(f"value = {value}")["value"]
        except ValueError:
            params[key.strip()] = value
    if problem := key_among(params):
        raise StsbenchError(f"--set: {problem}")
    return params
