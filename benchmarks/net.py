"""Write everything that a user can hold as one JSON file, and compare it with another commit's.

    python -m benchmarks.net now.json                        # writes it: 90 seconds of one core
    python -m benchmarks.net now.json --against before.json  # prints differences; exit code 1
    python -m benchmarks.net now.json --only schemas,cards   # some sections alone; 'all' adds
                                                             # commands on real data

Both files must come from one machine, with one set of packages and the same STSBENCH_DATA,
STSBENCH_VECTORS and STSBENCH_MODELS: fingerprints hold versions, and numbers are compared to their
last bit. Everything is reached by a command, by the public interface, by a registry, or by an
import at the top of this file: names inside the package are no fact of it.
"""

from __future__ import annotations

import os
import sys
import tempfile

WORLD = tempfile.mkdtemp(prefix="stsbench-net-")
# The Hub's library, torch and stsbench read these when they are imported.
os.environ |= {
    "HF_HOME": f"{WORLD}/hub",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "OMP_NUM_THREADS": "1",
    "COLUMNS": "80",
}
os.environ |= {"STSBENCH_CACHE": f"{WORLD}/cache", "TOKENIZERS_PARALLELISM": "false"}
for _name in ("STSBENCH_RUNS", "FORCE_COLOR", "GITHUB_ACTIONS", "TTY_COMPATIBLE"):
    os.environ.pop(_name, None)

import argparse
import hashlib
import inspect
import io
import json
import pkgutil
import shlex
import shutil
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import asdict, is_dataclass, replace
from difflib import unified_diff
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import numpy as np
import pyarrow.parquet as pq

import stsbench
from stsbench.analysis.context import ANALYSES
from stsbench.bench.run import EXECUTORS
from stsbench.cli.app import make_app
from stsbench.cli.main import main as run_command
from stsbench.core.cards import recipe_digest, task_digest
from stsbench.core.provenance import encoder_identity
from stsbench.data.readers.registry import READERS
from stsbench.encoders.kinds import ENCODERS
from stsbench.encoders.load import load_named
from stsbench.evaluators.registry import EVALUATORS, all_protocols
from stsbench.recipes.train import LAUNCHERS
from stsbench.recipes.trainer import TRAINERS
from stsbench.results.record import cell_id, digest_fields, protocol_key
from stsbench.studies.carriers import CARRIERS
from stsbench.training.loop.loop import train_learner
from stsbench.training.methods.registry import METHODS
from tests import made_up
from tests.encoders.made_checkpoints import save_all, save_bert
from tests.encoders.tiny import MAKES
from tests.evaluators import test_relatedness, test_retrieval
from tests.evaluators.probe import helpers as probe_data
from tests.evaluators.probe.test_evaluator import three_splits
from tests.golden.test_golden import call, commands, plain, write_world
from tests.test_registries import table
from tests.training.methods.every_method import CASES, DRAWN, WHOLE, made as make_learner
from tests.training.students import run_facts, save_masked_lm, sentences
from tests.training.words.test_rounds import METHODS as WORD_METHODS, method as make_word_method

Facts = dict[str, Any]
CHECKOUT = Path(__file__).parents[1]
RESULTS = CHECKOUT / "results/project"
REGISTRIES_OF_CARDS = (ENCODERS, METHODS, EVALUATORS, READERS, ANALYSES)
"""Registries whose rows are called with a user's values."""
OTHER_REGISTRIES = (EXECUTORS, LAUNCHERS, TRAINERS, CARRIERS)
PUBLIC_MODULES = {
    "stsbench.analysis": ("alignment", "uniformity"),
    "stsbench.encoders.flow": ("GlowFlow",),
    "stsbench.encoders.whitening": ("Whitening",),
    "stsbench.training.augment": (
        "token_shuffle",
        "token_cutoff",
        "feature_cutoff",
        "embedding_dropout",
    ),
    "stsbench.training.objectives": ("info_nce", "nt_xent", "self_guided", "contrastive_tension"),
    "stsbench.training.spans": ("sample_spans",),
}
"""The names beside ``stsbench.__all__`` that docs show."""
SHOWN_KINDS = {
    "tasks": "task",
    "encoders": "encoder",
    "recipes": "recipe",
    "corpora": "corpus",
    "suites": "suite",
}
SHOWN_KINDS |= {"tables": "table", "protocols": "protocol"}
"""By list, the key of a row's name."""
WITH_JSON = (
    "run -e own_encoders:Hashed -t quickstart",
    "run -e own_encoders:Hashed -t quickstart --dry-run",
    "run -e own_encoders:Broken -t quickstart-en",
    "train little --cards cards --base base --dry-run",
    "train little --cards cards --base base --seeds 1",
    "sweep values.toml --cards cards --base base --text text.txt --dry-run",
    "reproduce simcse-table-3 --small --base base --dry-run",
    "show little --cards cards",
    "doctor",
    "leaderboard --suite quickstart",
    "leaderboard --table simcse-5 --add hashed:Ours",
    "export --format model-index -e minilm",
    "export --format eval-results -e minilm",
    "export --format every-eval-ever -e minilm",
    "export --format mteb --out mteb",
    "compare minilm hashed",
    "parity own_encoders:Hashed own_encoders:ready -t quickstart-en",
    "check results --against results/lock.json",
    "lock --out more-lock.json",
    "verify",
    "data verify quickstart",
    "data overlap text.txt --tasks quickstart",
)
"""Commands after the quick story whose JSON keys are facts; its values hold times and machines."""


def sha(content: bytes | str) -> str:
    """Hash a content, short."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()[
        :16
    ]


def value_of(value: object) -> Any:
    """Return a default as plain values, without the names of our classes and functions."""
    if is_dataclass(value) and not isinstance(value, type):
        return {key: value_of(inner) for key, inner in asdict(value).items()}
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    if isinstance(value, Mapping):
        return {str(key): value_of(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [value_of(inner) for inner in value]
    return value if value is None or isinstance(value, bool | int | float | str) else "an object"


# Schemas of what is written and read.


def import_all() -> None:
    """Import every module, so that every record is known."""
    for module in pkgutil.walk_packages(stsbench.__path__, "stsbench."):
        if not module.name.endswith("__main__"):
            with suppress(ImportError):
                import_module(module.name)


def subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    """Yield all classes below one."""
    for inner in type.__subclasses__(kind):
        yield inner
        yield from subclasses(inner)


def inlined(schema: Any, components: Mapping[str, Any]) -> Any:
    """Return a schema with its parts in it, without the names and docstrings of our classes."""
    if isinstance(schema, list):
        return [inlined(inner, components) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return inlined(components[schema["$ref"]], components)
    facts = {
        key: inner
        for key, inner in schema.items()
        if key not in ("title", "description", "properties")
    }
    facts = {
        key: inner if key == "default" else inlined(inner, components)
        for key, inner in facts.items()
    }
    if "properties" in schema:
        facts["properties"] = {
            name: inlined(inner, components) for name, inner in schema["properties"].items()
        }
        facts["order"] = " ".join(schema["properties"])
    return facts


def schema_of(hint: Any) -> Any:
    """Make the JSON Schema of a type, with what has none as ``an object``."""
    (schema,), components = msgspec.json.schema_components(
        (hint,), schema_hook=lambda kind: {"type": "an object"}, ref_template="{name}"
    )
    return inlined(schema, components)


def schemas() -> Facts:
    """Return the JSON Schema of every record, by its fields."""
    import_all()
    facts: Facts = {}
    for kind in set(subclasses(msgspec.Struct)):
        fields = " ".join(field.encode_name for field in msgspec.structs.fields(kind))
        if fields and kind.__module__.startswith("stsbench."):
            facts.setdefault(fields, []).append(schema_of(kind))
    return {
        fields: dict(
            enumerate(
                sorted(kind_schemas, key=lambda schema: json.dumps(schema, sort_keys=True)), 1
            )
        )
        for fields, kind_schemas in facts.items()
    }


# Names, parameters and keys.


def parameters_of(function: Callable[..., Any]) -> Facts:
    """Return by name each parameter's position, default and, if msgspec can describe it, type."""
    hints: dict[str, Any] = {}
    with suppress(Exception):
        annotated: Any = function
        if isinstance(function, type):
            annotated = function.__init__  # type: ignore[misc]
        hints = get_type_hints(annotated, include_extras=True)
    facts: Facts = {}
    for position, (name, parameter) in enumerate(inspect.signature(function).parameters.items()):
        position_text = "keyword" if parameter.kind is parameter.KEYWORD_ONLY else str(position)
        required = parameter.default is parameter.empty
        facts[name] = {
            "position": position_text,
            "default": "required" if required else value_of(parameter.default),
        }
        if name in hints:
            with suppress(Exception):
                facts[name]["type"] = schema_of(hints[name])
    return facts


def registries() -> Facts:
    """Return the rows of every table of names, with their parameters."""
    facts: Facts = {}
    for registry in (*REGISTRIES_OF_CARDS, *OTHER_REGISTRIES):
        facts[registry.kind] = {"names": list(registry.table), "group": registry.group}
    for registry in REGISTRIES_OF_CARDS:
        for name in registry.table:
            facts[registry.kind][name] = attempt(lambda: parameters_of(registry.load(name)))  # noqa: B023 - called here
    facts["other tables"] = {
        " ".join(names): "in this order" for names in map(table_names, made_up.ROWS)
    }
    return facts


def table_names(address: str) -> list[str]:
    """Read the names of the table at an address."""
    return list(map(str, table(address)))


def public() -> Facts:
    """Return the public names with their parameters, and those of their methods."""
    values = {f"stsbench.{name}": getattr(stsbench, name) for name in stsbench.__all__}
    for module, names in PUBLIC_MODULES.items():
        values |= {
            f"{module}.{name}": getattr(import_module(module), name, "absent") for name in names
        }
    facts: Facts = {}
    for name, value in values.items():
        facts[name] = attempt(lambda: parameters_of(value)) if callable(value) else value_of(value)  # noqa: B023
        for member in dir(value) if isinstance(value, type) else ():
            inner = inspect.getattr_static(value, member)
            if member.startswith("_") or not defined_here(value, member):
                continue
            method = getattr(value, member)
            facts[f"{name}.{member}"] = (
                attempt(lambda: parameters_of(method)) if callable(method) else type(inner).__name__  # noqa: B023
            )
    return facts


def defined_here(kind: type, member: str) -> bool:
    """Return whether a member is defined in our own classes."""
    defining_classes = [base for base in kind.__mro__ if member in vars(base)]
    return bool(defining_classes) and defining_classes[0].__module__.startswith("stsbench")


def protocols() -> Facts:
    """List the key of every protocol."""
    return {
        f"{name} of {evaluator}": protocol_key(fields)
        for name, by_evaluator in all_protocols().items()
        for evaluator, fields in by_evaluator.items()
    }


def cards() -> Facts:
    """Return the output of ``list`` and ``show`` for every card, and the hashes of cards."""
    catalogue, facts = stsbench.Catalogue(), Facts()
    facts["tasks"] = {name: task_digest(catalogue.task(name)) for name in catalogue.paths("tasks")}
    facts["recipes"] = {
        name: recipe_digest(catalogue.recipe(name)) for name in catalogue.paths("trainers")
    }
    facts["encoders"] = {
        name: catalogue.encoder_digest(catalogue.encoder(name))
        for name in catalogue.paths("baselines")
    }
    for kind, key in SHOWN_KINDS.items():
        rows = json.loads(printed(["list", kind, "--json"]))
        facts[f"list {kind}"] = {row[key]: row for row in rows}
        facts[f"show {kind}"] = {row[key]: json_of(["show", row[key], "--json"]) for row in rows}
    return facts


def results() -> Facts:
    """Return the cell and score of every committed result, and if its name and digest are right."""
    facts: Facts = {}
    for path in sorted(RESULTS.glob("*/*.json")):
        fields = json.loads(path.read_text(encoding="utf-8"))
        cell = cell_id(
            fields["protocol"], fields["fingerprint"], fields["train_seed"], fields["eval_seed"]
        )
        digest = fields.pop("digest", "")
        stands = "digest right" if digest_fields(fields) == digest else "digest wrong"
        named = "name right" if path.name.endswith(f".{cell}.json") else "name wrong"
        facts[f"{path.parent.name}/{path.name}"] = f"{cell} {fields['score']!r} {stands}, {named}"
    return facts


# Commands.


def printed(words: list[str]) -> str:
    """Run a command and return what it prints, or its error."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run_command(words)
    return out.getvalue() if code == 0 else f"{err.getvalue()}[exit {code}]"


def json_of(words: list[str]) -> Any:
    """Run a command and return its JSON, or the lines of its error."""
    text = plain(printed(words), Path(WORLD))
    try:
        return json.loads(text)
    except ValueError:
        return text.splitlines()


def help_texts() -> Facts:
    """Return the help of every command, found from the command line itself."""
    facts: Facts = {}
    groups: list[tuple[list[str], Any]] = [([], make_app())]
    while groups:
        words, group = groups.pop()
        facts[" ".join(["stsbench", *words])] = printed([*words, "--help"]).splitlines()
        groups += [
            ([*words, name], inner) for name, inner in getattr(group, "commands", {}).items()
        ]
    return facts


def boards() -> Facts:
    """Return the numbers of every suite and table from the committed results.

    The output of other commands on these results is added.
    """
    suites = [row["suite"] for row in json.loads(printed(["list", "suites", "--json"]))]
    tables = [row["table"] for row in json.loads(printed(["list", "tables", "--json"]))]
    from_results = ["--results", str(RESULTS)]
    lines = [["leaderboard", "--suite", name, "--format", "csv", *from_results] for name in suites]
    # Published numbers alone: suites and the tables below show the measured ones.
    lines += [
        ["leaderboard", "--table", name, "--format", "csv", "--show", "published"]
        for name in tables
    ]
    lines += [
        ["leaderboard", "--table", name, "--format", "csv", *from_results]
        for name in ("simcse-5", "sgopt-1")
    ]
    lines += [
        ["leaderboard", "--suite", "sts", "--format", kind, *from_results]
        for kind in ("json", "markdown", "latex", "html")
    ]
    lines += [
        ["leaderboard", "--suite", "sts", "--ranks", *from_results],
        ["compare", "minilm", "minilm-l4-mlm", "--json", *from_results],
        ["verify", "--json", str(RESULTS)],
        ["lock", str(RESULTS), "--out", "committed-lock.json"],
        ["check", str(RESULTS), "--against", "committed-lock.json", "--json"],
    ]
    return {
        shlex.join(words).replace(str(RESULTS), "COMMITTED"): plain(
            call(words), Path(WORLD)
        ).splitlines()
        for words in lines
    }


def quick_story() -> Facts:
    """Run the commands that need no data."""
    return story_facts("quick")


def data_story() -> Facts:
    """Run the commands that need real data; empty without it."""
    return story_facts("data") if os.environ.get("STSBENCH_DATA") else {}


def story_facts(story: str) -> Facts:
    """Return the output of a story's commands, to the last digit, and the files that they leave.

    The stories are those of tests/golden.
    """
    world = Path(WORLD) / story
    world.mkdir()
    write_world(world, Path(WORLD) / "masked-lm")
    os.environ["STSBENCH_CACHE"] = str(world / "cache")
    os.chdir(world)
    sys.modules.pop("own_encoders", None)
    sys.path.insert(0, str(world))
    facts: Facts = {}
    for line in commands(story):
        text = plain(call(shlex.split(line.removeprefix("~ "))), world)
        repeats = sum(name.partition(" #")[0] == line for name in facts)
        facts[f"{line} #{repeats + 1}" if repeats else line] = text.splitlines()
    paths = [path for path in sorted(world.rglob("*")) if not path.is_relative_to(world / "base")]
    # Blocks of a store are cut by the clock, and numba's files are named by their times.
    facts["files"] = {
        str(path.relative_to(world)): keys_in(path)
        for path in paths
        if path.suffix not in (".npy", ".pyc", ".nbi", ".nbc") and "__pycache__" not in path.parts
    }
    for line in WITH_JSON if story == "quick" else ():
        text, exit_code = call([*shlex.split(line), "--json"]).rstrip().rsplit("\n", 1)
        facts[f"keys of {line} --json"] = [exit_code, *keys_of_json(text)]
    sys.path.remove(str(world))
    os.chdir(WORLD)
    return facts


def keys_of_json(text: str) -> list[str]:
    """List the keys of the JSON that a command prints, without its lines on stderr."""
    try:
        return paths_in(json.loads(text.partition("\n[stderr]")[0]))
    except ValueError:
        return plain(text, Path(WORLD)).splitlines()


def keys_in(path: Path) -> Any:
    """Return the keys of a JSON or TOML file or the columns of a table; empty for other files."""
    try:
        match path.suffix:
            case ".json":
                return list(paths_in(json.loads(path.read_text())))
            case ".jsonl":
                return list(paths_in([json.loads(line) for line in path.read_text().splitlines()]))
            case ".toml":
                return list(paths_in(tomllib.loads(path.read_text())))
            case ".parquet":
                return [f"{field.name}: {field.type}" for field in pq.read_schema(path)]
            case ".csv":
                return path.read_text().splitlines()[:1]
    except ValueError as error:
        return f"cannot be read: {error}"
    return ""


def paths_in(value: Any) -> list[str]:
    """Return the keys of nested tables with the types of their values.

    All elements of a list are described together.
    """
    if isinstance(value, dict):
        return [
            f"{key}.{inner}".rstrip(".")
            for key, element in value.items()
            for inner in paths_in(element)
        ] or ["{}"]
    if isinstance(value, list):
        return list(
            dict.fromkeys(f"[]{inner}" for element in value for inner in paths_in(element))
        ) or ["[]"]
    return [f": {type(value).__name__}"]


# Numbers.


def encoders() -> Facts:
    """Return the identity and some embeddings of every encoder that loads here."""
    catalogue = stsbench.Catalogue()
    specs = {name: name for name in catalogue.paths("baselines")}
    specs |= {path.name: path.name for path in RESULTS.iterdir() if "+" in path.name}
    if models := os.environ.get("STSBENCH_MODELS"):
        specs |= {
            f"MODELS/{path.name}": str(path) for path in Path(models).iterdir() if path.is_dir()
        }
    bert = save_bert(Path(WORLD) / "bert")
    specs |= {
        f"saved {name}": str(path) for name, path in save_all(Path(WORLD) / "saved", bert).items()
    }
    specs |= {
        f"tiny {name}": str(make(Path(WORLD) / "tiny" / name)) for name, make in MAKES.items()
    }
    return {name: attempt(lambda: encoder_facts(spec)) for name, spec in sorted(specs.items())}  # noqa: B023


def encoder_facts(spec: str) -> Facts:
    """Load one encoder and embed with it."""
    texts = ["A man is playing a guitar.", *sentences(40)]
    named_encoder = load_named(spec)
    encoder, facts = (
        named_encoder.encoder,
        {"name": named_encoder.name, "identity": encoder_identity(named_encoder.encoder)},
    )
    if hasattr(encoder, "fit_texts"):
        encoder = encoder.fit_texts(texts)
        facts["fitted"] = encoder_identity(encoder)
    embeddings = np.asarray(encoder.encode(texts[:5]))
    return facts | {
        "embeddings": f"{embeddings.dtype} {embeddings.shape} {sha(embeddings.tobytes())}"
    }


def evaluators() -> Facts:
    """Return every evaluator's scores on small data by each protocol, and the recomputed ones."""
    relatedness, retrieval, labelled = (
        test_relatedness.make_task(),
        test_retrieval.make_task(),
        three_splits(),
    )
    (one_split, one_embed), (pairs, pairs_embed) = (
        probe_data.make_split(120),
        probe_data.make_pairs(90),
    )
    (pairs_test, test_embed) = probe_data.make_pairs(60, seed=5)
    pairs_embed.vectors.update(test_embed.vectors)
    in_folds: Facts = {"all": one_split}
    data: dict[str, list[tuple[Any, Any]]] = {
        "sts": [({"test": relatedness[0]["test"]}, relatedness[1])],
        "relatedness": [relatedness],
        "retrieval": [retrieval],
        "probe": [
            labelled,
            (in_folds, one_embed),
            ({"train": pairs, "test": pairs_test}, pairs_embed),
        ],
    }
    facts: Facts = {}
    for name in EVALUATORS.table:
        factory = EVALUATORS.load(name)
        for title, protocol in factory.PROTOCOLS.items():
            if name == "retrieval":
                protocol = replace(
                    protocol, **test_retrieval.SIZES, max_epochs=5, learning_rate=0.01
                )
            for number, (splits, embed) in enumerate(data[name]):
                facts[f"{name} {title} {number}"] = attempt(
                    lambda: scores_of(factory(protocol), splits, embed)  # noqa: B023
                )  # noqa: B023
    return facts


def scores_of(evaluator: Any, splits: Any, embed: Any) -> Facts:
    """Score with one evaluator, and once more from its items."""
    scores = evaluator(splits, embed, seed=0)
    recomputed = evaluator.recompute(scores.per_item)
    facts = {key: value_of(value) for key, value in asdict(scores).items() if key != "per_item"}
    items = {
        name: sha(repr(np.asarray(column).tolist())) for name, column in scores.per_item.items()
    }
    return {
        **facts,
        "items": items,
        "made again": recomputed.score,
        "interval again": list(recomputed.interval),
    }


def training() -> Facts:
    """Return the losses and the saved weights of two steps of every method on a small model."""
    folder, facts = Path(WORLD) / "training", Facts()
    trained = {type_of(METHODS.load(name)): name for name in METHODS.table}
    for case in (*CASES, *DRAWN, *WHOLE):
        facts[case] = attempt(lambda: learner_facts(case, folder / sha(case)))  # noqa: B023
        trained.pop(type_of({**CASES, **DRAWN, **WHOLE}[case][0]), None)
    for name in WORD_METHODS:
        facts[name] = attempt(lambda: word_facts(name, folder / name))  # noqa: B023
        trained.pop(type_of(METHODS.load(name)), None)
    return facts | {"methods that no case trains": sorted(trained.values())}


def type_of(kind: type) -> str:
    """Name a class by its address."""
    return f"{kind.__module__}.{kind.__qualname__}"


def learner_facts(case: str, folder: Path) -> Facts:
    """Train a method of the common loop for two steps."""
    folder.mkdir(parents=True)
    learner = make_learner(Path(WORLD) / "masked-lm", case, dropout=0.1)
    outcome = train_learner(
        learner, run_facts(folder, 20, training={"steps": 2}, selection={"every": 1})
    )
    tensors = sorted(
        sha(tensor.detach().numpy().tobytes()) for tensor in learner.state_dict().values()
    )
    learner.save(folder / "saved")
    return {
        "curve": list(map(curve_point, outcome.curve)),
        "weights": sha(repr(tensors)),
        **saved_facts(folder / "saved"),
    }


def word_facts(name: str, folder: Path) -> Facts:
    """Train a method that trains itself."""
    folder.mkdir(parents=True)
    method, columns = make_word_method(name, folder)
    outcome = method.fit(columns, folder=folder / "saved", seed=3, validate=None)
    return {"curve": list(map(curve_point, outcome.curve)), **saved_facts(folder / "saved")}


def curve_point(point: Mapping[str, Any]) -> str:
    """Write one validation without its times."""
    return json.dumps(
        {key: value for key, value in point.items() if key not in ("seconds", "tokens_per_second")}
    )


def saved_facts(folder: Path) -> Facts:
    """List the files of a saved encoder and hash its weights."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    hashes = {
        str(path.relative_to(folder)): sha(path.read_bytes())
        for path in files
        if path.suffix == ".safetensors"
    }
    return {"files": [str(path.relative_to(folder)) for path in files], "hashes": hashes}


# The whole.

SECTIONS: Mapping[str, Callable[[], Facts]] = {
    "schemas": schemas,
    "registries": registries,
    "public": public,
    "protocols": protocols,
    "cards": cards,
    "results": results,
    "help": help_texts,
    "boards": boards,
    "encoders": encoders,
    "evaluators": evaluators,
    "training": training,
    "quick story": quick_story,
    "data story": data_story,
}
SLOW = {"data story"}
"""The sections that are made only if they are named."""


def attempt(facts: Callable[[], Any]) -> Any:
    """Return the facts, or the error in a line.

    An error of a user is a fact; any other shows as a difference.
    """
    try:
        with redirect_stderr(io.StringIO()):
            return facts()
    except Exception as error:  # noqa: BLE001 - whatever fails is told as such
        kind = (
            "an error of a user"
            if isinstance(error, stsbench.StsbenchError)
            else type(error).__name__
        )
        return f"{kind}: {plain(str(error), Path(WORLD)).strip()}"


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield facts by their path; a list of texts is one fact."""
    if not isinstance(value, dict):
        yield path, value
        return
    for key, inner in value.items():
        yield from flat(inner, f"{path} / {key}" if path else str(key))


def differences(before: Facts, now: Facts) -> Iterator[str]:
    """Yield what differs, a fact and its two values."""
    old, new = dict(flat(before)), dict(flat(now))
    for path in sorted(old.keys() | new.keys()):
        old_value, new_value = old.get(path, []), new.get(path, [])
        if old_value == new_value and (path in old) == (path in new):
            continue
        if path not in old or path not in new:
            yield f"{path}: {'new' if path in new else 'gone'}"
        elif isinstance(old_value, list) and isinstance(new_value, list):
            yield path
            lines = unified_diff(
                list(map(str, old_value)), list(map(str, new_value)), lineterm="", n=0
            )
            yield from (
                f"    {line}" for line in lines if not line.startswith(("---", "+++", "@@"))
            )
        else:
            yield f"{path}\n    -{old_value}\n    +{new_value}"


def main() -> int:
    """Write the file and compare it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.net", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("out", type=Path, help="the file to write")
    parser.add_argument("--against", type=Path, help="an earlier file; what differs is printed")
    usual = [name for name in SECTIONS if name not in SLOW]
    parser.add_argument(
        "--only", default=",".join(usual), help=f"'all', or some of: {', '.join(SECTIONS)}"
    )
    options = parser.parse_args()
    out, against = (
        options.out.resolve(),
        options.against and json.loads(options.against.read_text(encoding="utf-8")),
    )
    names = list(SECTIONS) if options.only == "all" else options.only.split(",")
    warnings.simplefilter("ignore")
    vars(os)["fsync"] = lambda descriptor: None
    os.chdir(WORLD)
    save_masked_lm(Path(WORLD) / "masked-lm")
    facts = {}
    for name in names:
        facts[name] = attempt(SECTIONS[name])
        print(
            f"{name}: {len(dict(flat(facts[name]))):,} facts, {sum(os.times()[:2]):.0f} s of CPU "
            "so far",
            flush=True,
        )
    # As JSON has them: tuples as lists, keys as texts.
    text = json.dumps(facts, sort_keys=True, indent=1, ensure_ascii=False, default=str)
    out.write_text(text + "\n", encoding="utf-8")
    if against is None:
        return 0
    lines = list(
        differences({name: against[name] for name in names if name in against}, json.loads(text))
    )
    print(*lines, f"{len(lines)} lines of differences" if lines else "no difference", sep="\n")
    return 1 if lines else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        os.chdir("/")
        shutil.rmtree(WORLD, ignore_errors=True)
