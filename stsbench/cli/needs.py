"""What an encoder card needs to run here, and how near it can come to its published scores."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from stsbench import settings
from stsbench.cards.catalogue import Catalogue
from stsbench.cards.facts import EncoderCard
from stsbench.cards.recipe import REPRODUCIBLE, RecipeCard

CHECKPOINTS = ("transformer", "sentence_transformer")
FOLDERS = ("infersent", "skip_thoughts", "quick_thoughts", "fastsent")

PROGRAMS = ("use", "openai")


def to_run(card: EncoderCard, catalogue: Catalogue) -> str:
    """What must be there to run an encoder, and whether it is."""
    params = card.params
    if card.reproducible == "quoted":
        return "weights that nobody has published"
    if "base" in params:
        return _texts_and_base(card, catalogue)
    if "package" in params:
        there = settings.package_folder(str(params["package"])) is not None
        return f"the Python package {params['package']}, which is {'' if there else 'not '}installed"
    if card.kind in PROGRAMS:
        return _program(card.kind, params)
    if "model" in params:
        revision = str(params.get("revision", "unpinned"))
        return f"the checkpoint {params['model']} ({revision[:12]}) from the Hub, or --set model=FOLDER"
    if card.kind in CHECKPOINTS:
        return "a checkpoint that is on no Hub: --set model=FOLDER"
    if card.kind in FOLDERS:
        return "a folder made by 'stsbench convert' or by a recipe: --set model=FOLDER"
    return _vector_file(str(params.get("file", ""))) if card.kind == "words" else "nothing but its own code"


def _program(kind: str, params: Mapping[str, Any]) -> str:
    """What must run an encoder that is not run by us."""
    if kind == "openai":
        key = f", and its key in {params['key_variable']}" if params.get("key_variable") else ""
        return f"the server at {params.get('url') or '--set url=ADDRESS'}{key}"
    there = find_spec("tensorflow") is not None
    return f"TensorFlow, which is {'' if there else 'not '}installed, and {params['model']} or --set model=FOLDER"


def _vector_file(file: str) -> str:
    folder = settings.vectors_folder()
    there = folder is not None and (folder / file).is_file()
    return f"the file {file}, which is {'' if there else 'not '}in STSBENCH_VECTORS"


def _texts_and_base(card: EncoderCard, catalogue: Catalogue) -> str:
    base = str(card.params["base"])
    known = base in catalogue.paths("baselines")
    of_base = f": {to_run(catalogue.encoder(base), catalogue)}" if known else ""
    return f"{_texts(str(card.params.get('fit', 'target')))}; the encoder {base}{of_base}"


def to_train(name: str, card: RecipeCard, catalogue: Catalogue) -> str:
    """What must be there to train a recipe, whose name may say which values are replaced."""
    return f"'stsbench train {shlex.quote(name)}', {_start(card)}, on {_corpus(card.data.corpus, catalogue)}"


def _start(card: RecipeCard) -> str:
    base = card.base
    if base.recipe:
        return f"from what the recipe {base.recipe} has left for the same seed"
    if base.model:
        return f"from the checkpoint {base.model} ({base.revision[:12]}) of the Hub or --base FOLDER"
    return f"from --base FOLDER ({base.note})" if base.note and base.note != SCRATCH else SCRATCH


SCRATCH = "trained from scratch"
"""What a recipe notes of its base where it has none."""


def _corpus(name: str, catalogue: Catalogue) -> str:
    corpora = catalogue.corpora()
    if name not in corpora:
        return f"the file {name}"
    corpus = corpora[name]
    if corpus.tasks:
        return f"{name}, text of the evaluation data"
    home = f"the file {corpus.file or corpus.path} in STSBENCH_CORPORA"
    return f"{name}: {home}{f', or {corpus.repo} of the Hub' if corpus.repo else ''}, or --text FILE"


def how_exact(card: EncoderCard | RecipeCard) -> str:
    """How near its scores can come to the published ones."""
    if isinstance(card, RecipeCard) and not card.published:
        return "no published scores are its own"
    return REPRODUCIBLE[card.reproducible]


def _texts(fit: str) -> str:
    if fit.partition(".")[0].partition("+")[0] == "target":
        return "each task's own sentences"
    return f"the sentences of {fit}"
