"""``stsbench new`` and ``stsbench convert``: drafts of cards and methods, and folders of encoders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from stsbench.api.names import Names
from stsbench.cli import options as opt
from stsbench.cli.printing import say, say_words
from stsbench.core.cards import HubSource
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError, StsbenchError, choose, split_names
from stsbench.data.corpora.load import load_corpus
from stsbench.data.drafts import ROLES, Draft, draft_task, find_home, name_of
from stsbench.encoders.drafts import draft_encoder
from stsbench.encoders.load import load_encoder
from stsbench.recipes.drafts import draft_method


def new_task_command(
    context: opt.Context,
    source: opt.TaskSource = None,
    *,
    hub: opt.HubDataset = "",
    revision: opt.Revision = "main",
    subset: opt.Subset = "",
    name: opt.DraftName = "",
    columns: opt.Columns,
    out: opt.DraftsFolder = Path("cards"),
    force: opt.Force = False,
) -> None:
    """Draft the card of a task from a table of your own.

    Pairs with scores become an STS task, sentences or pairs with labels a classification task. The last line printed is the
    command that runs it.

    Example: stsbench new task pairs.csv
    Example: stsbench new task --hub mteb/biosses-sts
    """
    if (source is None) == (not hub):
        raise StsbenchError("give a file or folder, or --hub OWNER/NAME, not both")
    opt.Given.of(context).needs("--hub", "--revision", "--subset")
    parts = [name for text in columns for name in split_names(text)]
    roles = opt.parse_pairs("--columns", parts, "what it holds and its name, such as gold=score")
    for role in roles:
        choose("role in --columns", role, dict.fromkeys(ROLES))
    data: Path | HubSource
    if source is not None:
        data, called = source, name_of(source)
    else:
        data = HubSource(repo=hub, revision=revision, config=subset)
        called = name_of(Path(f"{'-'.join(filter(None, [hub.rpartition('/')[2], subset]))}.hub"))
    _write(draft_task(data, find_home(out, "tasks", name or called), columns=roles), force=force)


def new_encoder_command(
    source: opt.CheckpointSource,
    *,
    name: opt.DraftName = "",
    out: opt.DraftsFolder = Path("cards"),
    force: opt.Force = False,
) -> None:
    """Draft the card of an encoder.

    Example: stsbench new encoder checkpoints/final
    """
    _write(draft_encoder(source, find_home(out, "baselines", name or name_of(source))), force=force)


def new_method_command(
    name: opt.MethodName, *, out: opt.DraftsFolder = Path("cards"), force: opt.Force = False
) -> None:
    """Draft a training method and its recipe.

    Example: stsbench new method pull
    """
    _write(draft_method(find_home(out, "trainers", name)), force=force)


def _write(draft: Draft, *, force: bool) -> None:
    draft.write(force=force)
    for line in draft.found:
        say_words(line)
    for line in draft.unsure:
        say_words(f"unsure: {line}")
    say(draft.command)


FIRST = 10_000
"""The rows of a corpus that sentences are drawn from."""


def convert_command(
    context: opt.Context,
    kind: opt.Conversion,
    source: opt.Weights,
    out: opt.EncoderFolder,
    *,
    version: opt.InferSentVersion = 1,
    vectors: opt.Vectors = "",
    limit: opt.VectorLimit = None,
    text: opt.ActivationText = "wiki1m_head",
    corpora: opt.Corpora = None,
) -> None:
    """Make an encoder's folder.

    From published weights, of which tensors are read and nothing else, or from a transformer, in int8 for a runtime.

    Example: stsbench convert infersent infersent1.pkl infersent-1
    Example: stsbench convert openvino-int8 minilm minilm-int8 --text wiki1m_head
    """
    chosen = choose("conversion", kind, KINDS)
    others = {*chain(*(one.uses for one in KINDS.values()))} - {*chosen.uses}
    opt.Given.of(context).idle(f"with '{kind}'", *sorted(others))
    given = {"--version": version, "--vectors": vectors, "--limit": limit, "--text": text, "--corpora": corpora}
    how = chosen.convert(source, out, *(given[flag] for flag in chosen.uses))
    say(f"wrote {out}; run it with: stsbench run --encoder {out}{how or ''}")


def _infersent(source: Path, out: Path, version: int, vectors: str) -> None:
    from stsbench.encoders.words.recurrent import convert_infersent

    convert_infersent(source, out, version=1 if version == 1 else 2, vectors=vectors)


def _skip_thoughts(source: Path, out: Path) -> None:
    from stsbench.encoders.words.recurrent import convert_skip_thoughts

    convert_skip_thoughts(source, out)


def _expand(source: Path, out: Path, vectors: str, limit: int | None) -> None:
    from stsbench.encoders.words.recurrent import GruHalvesEncoder, expand_vocabulary

    encoder = load_encoder(_name(source))
    if not isinstance(encoder, GruHalvesEncoder):
        raise CardError(
            f"{source} is not a Skip-Thoughts or Quick-Thoughts encoder; only their vocabularies can be expanded"
        )
    if not vectors:
        raise CardError("expand needs --vectors, the file whose words the vocabulary is to have")
    expand_vocabulary(encoder, vectors, out, limit=limit)


def _onnx_int8(source: Path, out: Path) -> str:
    from stsbench.encoders.quantise import ONNX_FILE, quantise_onnx

    quantise_onnx(_name(source), out)
    return f" --set backend=onnx --set file={ONNX_FILE}"


def _openvino_int8(source: Path, out: Path, text: str, corpora: Path | None) -> str:
    from stsbench.encoders.quantise import OPENVINO_FILE, quantise_openvino

    quantise_openvino(_name(source), out, load_corpus(text, corpora=corpora, limit=FIRST))
    return f" --set backend=openvino --set file={OPENVINO_FILE}"


def _name(source: Path) -> str:
    return Names(Catalogue()).one_to_load(str(source))


class Conversion(NamedTuple):
    """A kind of conversion: what carries it out and says how to run the encoder, and the options it takes."""

    convert: Callable[..., str | None]
    uses: tuple[str, ...] = ()


KINDS: Mapping[str, Conversion] = {
    "infersent": Conversion(_infersent, ("--version", "--vectors")),
    "skip_thoughts": Conversion(_skip_thoughts),
    "expand": Conversion(_expand, ("--vectors", "--limit")),
    "onnx-int8": Conversion(_onnx_int8),
    "openvino-int8": Conversion(_openvino_int8, ("--text", "--corpora")),
}
