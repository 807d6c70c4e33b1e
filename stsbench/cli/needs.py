"""What an encoder card needs to run here, and how near it can come to its published scores."""

from __future__ import annotations

from importlib.util import find_spec

from stsbench import settings
from stsbench.cards import REPRODUCIBLE, Catalogue, EncoderCard

CHECKPOINTS = ("transformer", "sentence_transformer")
FOLDERS = ("infersent", "skip_thoughts", "quick_thoughts", "fastsent")


def to_run(card: EncoderCard, catalogue: Catalogue) -> str:
    """What must be there to run an encoder, and whether it is."""
    params = card.params
    if "base" in params:
        base = str(params["base"])
        known = base in catalogue.paths("baselines")
        of_base = f": {to_run(catalogue.encoder(base), catalogue)}" if known else ""
        return f"{_texts(str(params.get('fit', 'target')))}; the encoder {base}{of_base}"
    if "package" in params:
        there = find_spec(str(params["package"])) is not None
        return f"the Python package {params['package']}, which is {'' if there else 'not '}installed"
    if card.kind == "use":
        there = find_spec("tensorflow") is not None
        return f"TensorFlow, which is {'' if there else 'not '}installed, and {params['model']} or --set model=FOLDER"
    if "model" in params:
        revision = str(params.get("revision", "unpinned"))
        return f"the checkpoint {params['model']} ({revision[:12]}) from the Hub, or --set model=FOLDER"
    if card.kind in CHECKPOINTS:
        return "a checkpoint that is on no Hub: --set model=FOLDER"
    if card.kind in FOLDERS:
        return "a folder made by 'stsbench convert' or by a recipe: --set model=FOLDER"
    if card.kind == "words":
        folder, file = settings.vectors_folder(), str(params.get("file", ""))
        there = folder is not None and (folder / file).is_file()
        return f"the file {file}, which is {'' if there else 'not '}in STSBENCH_VECTORS"
    return "nothing but its own code"


def how_exact(card: EncoderCard) -> str:
    """How near its scores can come to the published ones."""
    return REPRODUCIBLE[card.reproducible]


def _texts(fit: str) -> str:
    if fit.partition(".")[0].partition("+")[0] == "target":
        return "each task's own sentences"
    return f"the sentences of {fit}"
