"""Types of the options and arguments of commands, each with its help text."""

# Annotations stay objects here, which typer reads: text would be evaluated at every start.
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, CallbackParam, Context as Context, Option

from stsbench.cli.wording import card_folders
from stsbench.core.errors import StsbenchError
from stsbench.core.names import has_empty_name, split_names
from stsbench.plots.labels import FIGURES, parse_width

if TYPE_CHECKING:
    from stsbench.core.catalogue import Catalogue

MAX_COUNT = 10**9
"""No count that is meant is larger."""
MAX_SEED = (1 << 32) - 1
COUNT: dict[str, Any] = {"min": 1, "max": MAX_COUNT}
FOLDERS, OUTPUT, WORK = "Data and folders", "Output", "How the work is done"
ROWS = "Which rows"
OPTION_GROUPS = (ROWS, FOLDERS, WORK, OUTPUT)
"""The titles of groups of options in a command's help; options without a group come first."""


def complete_names(*kinds: str) -> Callable[[str], Iterator[str]]:
    """Return a function that a shell calls to complete the last name of a comma list.

    Args:
        kinds: The kinds of names to propose, as for :func:`list_names`.

    Returns:
        A function of what the user has typed so far. It yields that text with each name that may
        end it.
    """

    def complete(incomplete: str) -> Iterator[str]:
        # Only the name behind the last comma is completed.
        before, comma, prefix = incomplete.rpartition(",")
        names = dict.fromkeys(name for kind in kinds for name in list_names(kind))
        yield from (f"{before}{comma}{name}" for name in names if name.startswith(prefix))

    return complete


def list_names(kind: str) -> Iterable[str]:
    """Return the names of one kind.

    They are "suites", "tables", "analyses", and the folders of cards: "tasks", "baselines" of
    encoders, "trainers" of recipes.
    """
    if kind == "tables":
        from stsbench.boards.published.rows import list_tables

        return list_tables()
    if kind == "analyses":
        from stsbench.analysis.context import ANALYSES

        return ANALYSES.names()
    catalogue = make_catalogue()
    # Both are dicts by name.
    return catalogue.suites() if kind == "suites" else catalogue.paths(kind)


def make_catalogue(folders: Sequence[Path] = ()) -> "Catalogue":
    """Return the catalogue of all cards, including those in the user's folders.

    Commands that are advised by messages then name these folders.
    """
    from stsbench.core.catalogue import Catalogue

    if folders:
        card_folders.set(folders)
    return Catalogue(folders)


encoder_names = complete_names("baselines", "trainers")
recipe_names = complete_names("trainers")
task_names = complete_names("suites", "tasks")


def split_repeated_names(parameter: CallbackParam, values: list[str]) -> list[str]:
    """Return the names of an option that may be repeated, in one list.

    Args:
        parameter: The option, as typer passes it; errors name it.
        values: Its values, each of which is a comma list of names.

    Raises:
        StsbenchError: A name is empty, or there are values but no name in them.
    """
    option = parameter.opts[0]
    # The first value with nothing between two commas, or beside one.
    list_with_gap = next(filter(has_empty_name, values), None)
    if list_with_gap:
        raise StsbenchError(f"{option} '{list_with_gap}': a name is missing beside a comma")
    names = [name for value in values for name in split_names(value)]
    if values and not names:
        raise StsbenchError(f"{option} '{','.join(values)}' is empty")
    return names


def _check_figure_path(parameter: CallbackParam, path: Path | None) -> Path | None:
    """Return the path of a figure unchanged, after checking its ending.

    Args:
        parameter: The option, which the error names.
        path: The path; None if the option was not typed.

    Raises:
        StsbenchError: The ending is not one of ``FIGURES``: svg, png, pdf.
    """
    if path is not None and path.suffix.removeprefix(".") not in FIGURES:
        raise StsbenchError(
            f"{parameter.opts[0]} '{path}': give a file that ends in .{', .'.join(FIGURES)}"
        )
    return path


def _check_width(width: str | None) -> str | None:
    """Return the width of a figure as it is, or None; raise StsbenchError if it is no width."""
    if width is not None:
        parse_width(width)
    return width


def _apply_config(context: Context, config: Path | None) -> Path | None:
    """Make the settings of the project's file the defaults of the command's other options."""
    if not context.resilient_parsing:
        from stsbench.cli.config import read_defaults

        context.default_map = read_defaults(config, is_run=context.info_name == "run")
    return config


def _option(
    text: str,
    flags: str = "",
    complete: Any = None,  # noqa: ANN401
    *,
    panel: str | None = None,
    **more: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """Return the library typer's description of an option, for the annotation of a parameter.

    Args:
        text: The help of the option.
        flags: Its names with a blank between, such as "--tasks -t"; empty for the name of its
            parameter. A switch needs its flag: otherwise typer adds a ``--no-`` option.
        complete: A function that completes its value; None for no completion.
        panel: The title of its group in the command's help; None for no group.
        more: Further arguments of ``typer.Option``.
    """
    return Option(*flags.split(), help=text, rich_help_panel=panel, autocompletion=complete, **more)


def _argument(text: str, complete: Any = None, **more: Any) -> Any:  # noqa: ANN401
    return Argument(help=text, autocompletion=complete, **more)


_folder, _work, _output = (partial(_option, panel=panel) for panel in (FOLDERS, WORK, OUTPUT))
# Options that may be repeated; with names they accept a comma list each time.
_many = partial(_option, default_factory=list, show_default=False)
_names = partial(_many, callback=split_repeated_names)
_arguments = partial(_argument, default_factory=list, show_default=False)
_suite = partial(
    _option,
    "Suites and tasks to show, comma list; default the first suite that there are results of.",
    complete=task_names,
)


# What is measured.
EncoderArguments = Annotated[
    list[str],
    _arguments(
        "Encoders: card names, Hub ids, folders, card files.",
        callback=split_repeated_names,
        complete=encoder_names,
    ),
]
EncoderOption = Annotated[
    list[str], _names("The same as an option, comma list.", "--encoder -e", encoder_names)
]
SimilarityFiles = Annotated[
    list[Path],
    _many("A file with the scores of pairs, as an encoder; may be repeated.", "--similarities"),
]
Encoders = Annotated[list[str], _names("Encoders, comma list.", "--encoder -e", encoder_names)]
OnlyEncoders = Annotated[
    list[str], _names("Only these encoders, comma list.", "--encoder -e", encoder_names)
]
AgainstEncoders = Annotated[
    list[str], _names("Check only against these encoders, comma list.", "", encoder_names)
]
ComparedEncoders = Annotated[
    list[str],
    _argument(
        "Names of encoders in the results folder, or folders of results, comma lists too.",
        callback=split_repeated_names,
    ),
]
FirstEncoder = Annotated[
    str, _argument("An encoder: a card's name, a Hub id, a folder or a card file.", encoder_names)
]
SecondEncoder = Annotated[str, _argument("The encoder that should be the same.", encoder_names)]
TaskArguments = Annotated[
    list[str],
    _arguments("Tasks and suites.", callback=split_repeated_names, complete=task_names),
]
Tasks = Annotated[
    str | None,
    _option(
        "Tasks and suites, comma list, or 'available': all with data here; default suite 'sts'.",
        "--tasks -t",
        task_names,
    ),
]
TasksToScore = Annotated[
    str, _option("Tasks and suites to score, comma list.", "--tasks -t", task_names)
]
OnlyTasks = Annotated[str | None, _option("Only these tasks and suites.", "--tasks -t", task_names)]
OneTask = Annotated[str, _option("The task whose sentences to use.", "--tasks -t", task_names)]
TaskOfReport = Annotated[
    str | None,
    _option(
        "The task whose sentences the figures use; default stsb, or the first that is scored.",
        "--tasks -t",
        task_names,
    ),
]
SuiteName = Annotated[str | None, _suite("--suite --tasks -t")]
SuiteOfReport = Annotated[str | None, _suite("--suite")]
Protocols = Annotated[
    str | None, _option("Protocols, comma list, e.g. simcse or wmean,logreg.", "--protocol -p")
]
Protocol = Annotated[str | None, _option("The protocol by which to score.", "--protocol -p")]
OnlyProtocol = Annotated[str | None, _option("Only results of this protocol.", "--protocol -p")]
Split = Annotated[str | None, _option("Score this split (default: test).")]
TimedSplit = Annotated[str, _option("Embed the sentences of this split.")]
EvaluationSeeds = Annotated[str, _option("Evaluation seeds, comma list.")]
ResultNames = Annotated[
    list[str], _names("The names of the encoders in results, one per encoder.", "--name")
]
EncoderParameters = Annotated[
    list[str], _many("Replace a parameter of the encoder, e.g. dtype=bfloat16.", "--set")
]
AnalysisParameters = Annotated[
    list[str], _many("Replace a parameter of the analysis, e.g. k=10; may be repeated.", "--set")
]
Variants = Annotated[
    list[str],
    _many("Values of 'dimensions' or 'embeddings' to score, e.g. embeddings=float32,int8."),
]
CleanScores = Annotated[
    list[str],
    _names(
        "Also score without items in these corpora or files; 'own': the recipe's corpus; "
        "'copies': other splits and folds."
    ),
]
MinSimilarity = Annotated[
    float | None,
    _option(
        "Also find near-duplicates with at least this similarity, e.g. 0.8 (needs rensa).",
        min=0.5,
        max=1,
    ),
]
Analysis = Annotated[str, _argument("The analysis.", complete_names("analyses"))]
Figures = Annotated[str, _option("Figures to include, comma list.")]
Title = Annotated[str, _option("The title of the page.")]
Margin = Annotated[
    float,
    _option("Points by which scores of encoders that are the same may differ.", min=0, max=100),
]
BatchSize = Annotated[int, _option("Sentences per batch.", **COUNT)]
Rounds = Annotated[int, _option("Number of repeats; their median is printed.", min=1, max=1000)]

# What is trained.
Recipe = Annotated[str, _argument("A recipe, or a recipe's TOML file.", recipe_names)]
TimedRecipes = Annotated[
    list[str], _names("Recipes to train and time, comma list.", "--recipe -r", recipe_names)
]
AblationTable = Annotated[
    str, _argument("A table or figure of a paper.", complete_names("trainers/tables"))
]
SweepCard = Annotated[Path, _argument("The sweep's TOML file.")]
RecipeSeeds = Annotated[
    str, _option("Training seeds, comma list, one run per seed; default the recipe's, else 0.")
]
AblationSeeds = Annotated[
    str, _option("Training seeds, comma list; default each recipe's, with --small only its first.")
]
RecipeValues = Annotated[
    list[str], _many("Replace a value of the recipe, e.g. temperature=0.1.", "--set")
]
BaseModel = Annotated[str, _option("Start from this checkpoint (folder, Hub id or encoder).")]
SmallRecipes = Annotated[
    bool, _option("Train small recipes that a CPU can train, from your base (--base).", "--small")
]
TrainingText = Annotated[str | None, _option("Train on this corpus or file.")]
RunName = Annotated[str, _option("Name of the trained encoder; default that of the recipe.")]
KeptWeights = Annotated[
    str | None, _option("Keep the 'best' weights by development score, or the 'last' weights.")
]
TimedSteps = Annotated[
    int | None, _option("Train this many steps and estimate the whole run from them.", **COUNT)
]

# Folders.
DataFolder = Annotated[Path | None, _folder("Folder of evaluation data; default STSBENCH_DATA.")]
TextFolder = Annotated[Path | None, _folder("Folder of training text; default STSBENCH_CORPORA.")]
CorporaToFill = Annotated[Path | None, _folder("Folder to write into; default STSBENCH_CORPORA.")]
ResultsFolder = Annotated[Path, _folder("Results folder.")]
OptionalResultsFolder = Annotated[Path | None, _folder("Results folder; default 'results'.")]
ResultsArgument = Annotated[Path, _argument("Results folder.")]
VerifiedResults = Annotated[Path, _argument("Results folder, or the folder of one encoder in it.")]
PackedArgument = Annotated[Path, _argument("Folder that 'stsbench results pack' wrote.")]
PackedFolder = Annotated[Path, _output("Folder to write to.", "--out")]
MtebFolder = Annotated[
    Path | None, _folder("Folder of MTEB's result files, to show as imported rows.")
]
StoreFolder = Annotated[Path | None, _folder("Folder of stored embeddings.")]
NoStore = Annotated[bool, _folder("Keep embeddings in memory only.", "--no-store")]
CardFolders = Annotated[
    list[Path], _many("Folder with your own cards; may be repeated.", "--cards", panel=FOLDERS)
]
DefaultsFile = Annotated[
    Path | None,
    _folder(
        "Settings file; default stsbench.toml in the current folder or above.",
        "--config",
        is_eager=True,
        callback=_apply_config,
    ),
]
RunsFolder = Annotated[Path | None, _folder("Folder of runs; default STSBENCH_RUNS, or 'runs'.")]
SweepFolder = Annotated[
    Path | None, _folder("Folder for the table and the cards of the best; default sweeps/CARD.")
]

# How the work is done.
Fresh = Annotated[bool, _work("Score again, even if the results folder has the score.", "--fresh")]
FreshTraining = Annotated[
    bool, _work("Train again from the start, even if a run is finished or stopped.", "--fresh")
]
SkipConfirmation = Annotated[
    bool, _work("With --fresh: delete checkpoints without asking.", "--yes")
]
ScoringExecutor = Annotated[
    str, _work("Where to run: local, ray (this machine or RAY_ADDRESS), ray://HOST:PORT.")
]
TrainingLauncher = Annotated[
    str, _work("Where to train: local, ray (this machine or RAY_ADDRESS), ray://HOST:PORT.")
]
ScoringDevices = Annotated[
    str | None,
    _work("A process each for GPUs of this machine: 4, or cuda:0,cuda:2; or for cpu,cpu."),
]
GpusPerEncoder = Annotated[
    int | None,
    _work(
        "GPUs (without a GPU: cores) per encoder; default all that are free.",
        **COUNT,
    ),
]
Timeout = Annotated[
    float | None,
    _work("With --devices or --on ray: seconds after which a job that hangs is ended.", **COUNT),
]
Devices = Annotated[
    int | None, _work("With --on ray: GPUs (without a GPU: cores) that train together.", **COUNT)
]
Cores = Annotated[int, _work("With --on ray and no GPU: cores per training.", **COUNT)]
Workers = Annotated[
    int | None,
    _work("Processes that prepare batches; default 0, on a GPU up to 4.", min=0, max=64),
]
Device = Annotated[str, _work("auto, cpu or cuda")]
Deterministic = Annotated[
    bool, _work("Use only deterministic operations (slower on a GPU).", "--deterministic")
]
CheckpointSeconds = Annotated[float, _work("Seconds between checkpoints.", min=0)]
ReportTo = Annotated[list[str], _many("Log to tensorboard, wandb, …; may be repeated.", panel=WORK)]
DryRun = Annotated[
    bool,
    _work(
        "Score nothing; print which scores exist or are missing, and how many sentences to embed.",
        "--dry-run",
    ),
]
DryTraining = Annotated[
    bool,
    _work(
        "Train nothing; print what is done, what is missing and how long it takes, if known.",
        "--dry-run",
    ),
]
CompareSeed = Annotated[int, _option("Seed of all random draws.", min=0, max=MAX_SEED)]
DifferenceMargin = Annotated[
    float | None,
    _option("Also test whether differences are smaller than these points.", min=0, max=100),
]
PlannedDifference = Annotated[
    float | None,
    _option(
        "Also print the items and seeds that a difference of these points needs.",
        min=0.01,
        max=100,
    ),
]
AllPairs = Annotated[
    bool, _option("Compare every two encoders, not all with the first.", "--all-pairs")
]
Independent = Annotated[
    bool, _option("Treat items that share a sentence as independent.", "--independent")
]

# Boards.
TableName = Annotated[
    str | None,
    _option(
        "A table of a paper or of stsbench, or your own TOML file.",
        complete=complete_names("tables"),
    ),
]
ShownNumbers = Annotated[
    str | None,
    _option("published, measured, difference, both, or merged (measured if it exists)."),
]
ExactAverages = Annotated[
    bool, _option("Print exact averages, and all digits that sources print.", "--exact")
]
AddedRows = Annotated[
    list[str], _names("Add the measured row of an encoder, NAME or NAME:LABEL, comma list.")
]
SignificanceAgainst = Annotated[
    str | None,
    _option("Mark measured scores that differ significantly from this encoder's."),
]
ShownIntervals = Annotated[
    str,
    _output("95% intervals as text: average (a column), all (a line below each row), or none."),
]
MaxLines = Annotated[
    int | None,
    _output("LaTeX: divide a table between rows, into floats of at most so many lines.", **COUNT),
]
RowsOnly = Annotated[
    bool, _output("No head and no legend, and with --add only the added rows.", "--rows-only")
]
Detectable = Annotated[
    bool,
    _option(
        "Mark published scores too near to the next better one for a test to see: of --table, or "
        "of a suite of MTEB's.",
        "--detectable",
    ),
]
Ranks = Annotated[
    bool,
    _option("Add rank intervals, and letters that show ties; needs per-item columns.", "--ranks"),
]
RowLanguage = Annotated[
    str | None, _option("Only models made for this language: German or de.", panel=ROWS)
]
MaxParameters = Annotated[
    str | None, _option("Only models of at most this size: 500M, 1.5B.", panel=ROWS)
]
License = Annotated[
    str | None,
    _option("Only models whose licence begins like this: apache, mit.", "--license", panel=ROWS),
]
OnlyOpen = Annotated[bool, _option("Only models whose weights can be had.", "--open", panel=ROWS)]
SortedBy = Annotated[
    str | None,
    _option(
        "Sort the rows of each group by this column: average, size, ms, dimensions, a task.",
        panel=ROWS,
    ),
]
FactColumns = Annotated[
    list[str], _names("Add columns: size, dimensions, ms (to embed a sentence).", panel=ROWS)
]
MaxMilliseconds = Annotated[
    float | None,
    _option("Only encoders that embed a sentence in so many ms: 50.", min=0, panel=ROWS),
]
Top = Annotated[int | None, _option("The first so many rows of each group.", panel=ROWS, **COUNT)]

# Checks.
NewResults = Annotated[Path, _argument("The results folder (or lock file) to check.")]
Against = Annotated[
    Path, _option("A results folder or lock file, or 'published' for papers' scores.")
]
RuleName = Annotated[str, _option("absolute or statistical")]
Tolerances = Annotated[
    list[str], _many("Points that a score may fall: 0.5; for one class half=0.2; may be repeated.")
]
Looks = Annotated[
    int,
    _option("Checks planned against the same old scores; divides the level.", min=1, max=10**6),
]
SeedDeviation = Annotated[
    float | None,
    _option("Known deviation of scores over training seeds, in points.", min=0, max=100),
]
FallMargin = Annotated[
    float | None,
    _option("Points that do not matter: a fall shown to be smaller is accepted.", min=0, max=100),
]
Exact = Annotated[bool, _option("Also fail if a score rises beyond its tolerance.", "--exact")]
Strict = Annotated[bool, _option("End with exit code 2 if a score is not verified.", "--strict")]
AllowMissing = Annotated[
    bool, _option("Accept that the new results lack some of the old scores.", "--allow-missing")
]
Junit = Annotated[Path | None, _output("Write JUnit XML to this file.")]
Github = Annotated[bool, _output("Print GitHub annotations.", "--github")]
Summary = Annotated[Path | None, _output("Append a markdown summary to this file.")]
LockFile = Annotated[Path, _output("The lock file.")]
LockToUpdate = Annotated[
    Path | None, _output("A lock file whose rows are brought up to date too.", "--lock")
]

# Output.
AsJson = Annotated[bool, _output("Print JSON on stdout, for scripts.", "--json")]
BareScore = Annotated[bool, _output("Print only the score, or a suite's mean.", "--bare -b")]
Verbose = Annotated[bool, _output("Also print every subset or class.", "--verbose -v")]
TextsFile = Annotated[
    Path | None,
    _output("Write to this file: .jsonl, or .txt with one sentence a line.", "--out"),
]
WritesPairs = Annotated[
    bool, _output("Write the pairs of sentences, for a pair scorer.", "--pairs")
]
TableFile = Annotated[Path | None, _output("Write to this file instead of the terminal.")]
BoardFormat = Annotated[
    str,
    _output("terminal, markdown, latex, html, csv, json, or a figure: svg, png or pdf", "--format"),
]
CompareFormat = Annotated[str, _output("terminal, markdown, latex, csv or json", "--format")]
PlainFormat = Annotated[str, _output("terminal, markdown or json", "--format")]
ExportFormat = Annotated[
    str, _output("mteb, model-index, eval-results or every-eval-ever", "--format")
]
ExportFile = Annotated[
    Path | None,
    _output("mteb: a folder; model-index: a model card to write or complete; else a file."),
]
ReportFile = Annotated[Path, _output("The HTML file to write.")]
AnalysisFiles = Annotated[
    list[Path],
    _many("Write to this file: .json, .csv, .svg, .png or .pdf; may be repeated.", panel=OUTPUT),
]
OverlapFile = Annotated[
    Path | None, _output("Write the found items, or the counts, to this .csv or .json.")
]
Plot = Annotated[
    Path | None,
    _output(
        "Also draw the scores (of run: with --variants), or the differences that are compared, to "
        "this .svg, .png or .pdf.",
        callback=_check_figure_path,
    ),
]
FigureWidth = Annotated[
    str | None,
    _output(
        "The width of a figure: column (3.3in), page (6.75in), or as 8.4cm.",
        callback=_check_width,
    ),
]
CurvePlot = Annotated[
    Path | None,
    _output(
        "Draw the training curves of runs (comma list) to this .svg, .png or .pdf file.",
        callback=_check_figure_path,
    ),
]

# Cards and data.
KindName = Annotated[
    str, _argument("tasks, encoders, recipes, suites, corpora, tables, ablations or protocols")
]
Language = Annotated[str | None, _option("Only what is in this language, by its code: en, de, zh.")]
AnyName = Annotated[
    str,
    _argument(
        "A task, suite, encoder, recipe, corpus, table, run or protocol.",
        complete_names("tasks", "baselines", "trainers", "suites"),
    ),
]
TryHub = Annotated[
    bool,
    _option("Fetch two small tasks and a small checkpoint from the Hub, and score it.", "--hub"),
]
NamesToFetch = Annotated[
    list[str], _argument("Tasks, suites or corpora.", callback=split_repeated_names)
]
NamesToVerify = Annotated[
    list[str], _arguments("Tasks or suites; default all whose data are in a folder.")
]
LintedSources = Annotated[
    list[str],
    _arguments(
        "Tasks, suites, and files or folders of data that are no task yet.", complete=task_names
    ),
]
IgnoredChecks = Annotated[list[str], _names("Do not make these checks, comma list.", "--ignore")]
CorpusArguments = Annotated[
    list[str],
    _arguments(
        "Corpora, or files of training text.", metavar="[CORPUS]...", callback=split_repeated_names
    ),
]
CorpusToMake = Annotated[
    str, Argument(metavar="CORPUS", help="A corpus that is not published as a file.")
]
CocoSource = Annotated[
    Path, _argument("Folder of the published train.pkl, valid.pkl and test.pkl.")
]
CocoTarget = Annotated[Path, _argument("Folder to write safetensors and JSON into.")]

# Converting and translating.
Conversion = Annotated[
    str, _argument("infersent, skip_thoughts, expand, onnx-int8, openvino-int8.")
]
Weights = Annotated[
    Path, _argument("infersent1.pkl, a folder, or for int8 any encoder with a transformer.")
]
EncoderFolder = Annotated[Path, _argument("The folder to write.")]
InferSentVersion = Annotated[int, _option("InferSent's version, 1 or 2.", min=1, max=2)]
Vectors = Annotated[str, _option("File of word vectors (infersent, expand).")]
VectorLimit = Annotated[int | None, _option("Use only this many vectors (expand).", **COUNT)]
ActivationText = Annotated[
    str, _option("Corpus or file on which to measure activations (openvino-int8).")
]
Sentences = Annotated[str, Argument(metavar="INPUT", help="A corpus, or a file of sentences.")]
PairsFile = Annotated[
    Path, Argument(metavar="OUTPUT", help="The .csv file of pairs; a record is written beside it.")
]
Forward = Annotated[str, _option("Marian model to translate with: a Hub id or a folder.")]
Backward = Annotated[str, _option("Marian model to translate back with.")]
Revisions = Annotated[tuple[str, str], _option("Hub commits of these two models.")]
DecodingMode = Annotated[str, _option("greedy or sampling")]
Temperature = Annotated[float, _option("Temperature of sampling.", min=0, max=MAX_COUNT)]
SamplingSeed = Annotated[int, _option("Seed of sampling.", min=0, max=MAX_SEED)]
MaxTokens = Annotated[
    int, _option("Maximum number of tokens of a sentence and of its translation.", max=MAX_COUNT)
]
TranslatedAtOnce = Annotated[int, _work("Sentences per batch.", max=MAX_COUNT)]
SentenceLimit = Annotated[int | None, _option("Translate only this many sentences.", max=MAX_COUNT)]

# Drafts.
TaskSource = Annotated[
    Path | None,
    _argument("CSV, TSV, Excel, JSON lines or parquet; or a folder with train, dev, test files."),
]
HubDataset = Annotated[str, _option("A dataset on the Hub instead of files: OWNER/NAME.")]
Revision = Annotated[str, _option("Branch, tag or commit of --hub; the card stores the commit.")]
Subset = Annotated[str, _option("Configuration (subset) of --hub, if there are several.")]
Columns = Annotated[
    list[str],
    _many("Columns that are not found: sentence1=A,sentence2=B,gold=C, or sentence=A,label=B."),
]
Labels = Annotated[bool, _option("Treat the values to predict as classes.", "--labels")]
Scale = Annotated[str, _option("Lowest and highest possible score, such as 1..10; default found.")]
DropUnscored = Annotated[bool, _option("Leave out rows without a score.", "--drop-unscored")]
DataLanguages = Annotated[str, _option("Languages of the data, such as de; default found.")]
CheckpointSource = Annotated[Path, _argument("A checkpoint's folder, or a file of word vectors.")]
DraftName = Annotated[str, _option("Name of the card; default that of the file or folder.")]
MethodName = Annotated[
    str, _argument("Name of the method and its module: letters, digits and '_'.")
]
DraftsFolder = Annotated[Path, _output("Folder to write to; use it as --cards of other commands.")]
Force = Annotated[bool, _output("Overwrite existing files.", "--force")]
