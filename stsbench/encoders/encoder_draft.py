"""An encoder's card drafted from a checkpoint's folder or a file of word vectors: what its files say, and what they leave open."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from stsbench.core.cards import card_lines, toml
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import EncoderError
from stsbench.data.task_draft import UNKNOWN, CardLocation, Draft
from stsbench.encoders.checkpoint import read_optional_json
from stsbench.encoders.described import describe
from stsbench.encoders.load import load_named
from stsbench.encoders.words.vectors import read_blocks

COMMENTS = {
    "kind": "docs/encoders.md has the kinds and the parameters of each",
    "method": "what tables print beside the name, such as SimCSE",
    "supervision": "what it was trained on: none, nli, sts, pairs or translation",
    "overlap": "whether its training text holds test sentences: none, text, gold or unknown",
    "paper": "where it is described, or 'none'",
}
"""What is said above a key of the card."""
FIRST = "---\n"
"""What a model's README begins with where it states facts."""


def draft_encoder(source: Path, home: CardLocation) -> Draft:
    """Draft the card of a checkpoint's folder or a file of word vectors; raises EncoderError or DataError."""
    if not source.exists():
        raise EncoderError(
            f"'{source}' does not exist; give a checkpoint's folder or a file of word vectors"
        )
    facts: dict[str, Any] = {
        "name": home.name,
        "kind": "words",
        "method": UNKNOWN,
        "backbone": UNKNOWN,
    }
    facts |= {"supervision": "none", "overlap": "unknown", "paper": UNKNOWN, "license": UNKNOWN}
    notes = {"supervision": "the files do not tell what it was trained on: none is taken"}
    if source.is_dir():
        params = _of_folder(source, facts, notes)
    else:
        block = next(read_blocks(source, limit=1))
        facts |= {
            "method": "Mean of word vectors",
            "backbone": source.stem,
            "dimensions": block.vectors.shape[1],
        }
        notes["tokens"] = "'whitespace' is SentEval's recipe, 'sbert' that of sentence-transformers"
        params = {"file": str(source.resolve()), "tokens": "whitespace"}
    missing = [key for key, value in facts.items() if value in (UNKNOWN, "")]
    unsure = [*notes.values(), f"not in the files: {', '.join(missing)}"]
    comments = COMMENTS | {
        k: f"{COMMENTS.get(k, '')}; unsure: {note}".lstrip("; ") for k, note in notes.items()
    }
    lines = [
        f"# A draft of 'stsbench new encoder'. '{UNKNOWN}' is yours to fill in.",
        *card_lines(facts, comments),
    ]
    lines += ["", "[params]", *card_lines(params, comments)]
    said = [f"{key} {toml(value)}" for key, value in params.items() if key not in ("model", "file")]
    return Draft(
        files={home.path: "\n".join(lines) + "\n"},
        found=[f"{home.path}: kind {facts['kind']}, {', '.join(said) or 'run as its files say'}"],
        unsure=unsure,
        command=f"stsbench run -e {home.name} -t quickstart {home.option()}",
    )


def _of_folder(folder: Path, facts: dict[str, Any], notes: dict[str, str]) -> dict[str, Any]:
    """The parameters that run a checkpoint; what its files state goes into facts and notes of the card."""
    encoder, described = load_named(str(folder)), describe(folder, Catalogue())
    params: dict[str, Any] = {"model": str(folder.resolve()), **described.params}
    config = read_optional_json(folder / str(described.params.get("subfolder", "")) / "config.json")
    if (
        described.kind == "transformer"
        and (length := getattr(encoder.encoder, "max_length", None)) is not None
    ):
        params["max_length"] = length
    if described.kind in ("transformer", "sentence_transformer"):
        params.setdefault("dtype", "float32")
        stored = str(config.get("dtype") or config.get("torch_dtype") or "float32")
        if stored != params["dtype"]:
            notes["dtype"] = f"the weights are stored in {stored}; it runs in {params['dtype']}"
    if encoder.assumptions:
        notes["pooling"] = "the files tell no pooling: the mean of all tokens is taken"
    readme = folder / "README.md"
    text = readme.read_text(encoding="utf-8", errors="replace") if readme.is_file() else ""
    head = text.removeprefix(FIRST).partition(f"\n{FIRST}")[0] if text.startswith(FIRST) else ""
    stated = dict(
        re.findall(r"^(license|base_model): *[\"']?([\w./ -]+?)[\"']? *$", head, re.MULTILINE)
    )
    backbone = (
        stated.get("base_model", "").rpartition("/")[2] or config.get("model_type") or UNKNOWN
    )
    facts |= {
        "kind": described.kind,
        "backbone": str(backbone),
        "license": stated.get("license", UNKNOWN),
    }
    if (
        isinstance(size := config.get("hidden_size"), int)
        and not (folder / "modules.json").is_file()
    ):
        facts["dimensions"] = size
    return params
