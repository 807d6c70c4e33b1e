"""Draft an encoder's card from a checkpoint's folder or a file of word vectors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import EncoderError
from stsbench.core.toml import card_lines, toml
from stsbench.data.card_draft import UNKNOWN, CardLocation, Draft
from stsbench.encoders.cached_files import read_optional_json
from stsbench.encoders.described import describe
from stsbench.encoders.load import load_named
from stsbench.encoders.words.vectors import read_blocks

KEY_COMMENTS = {
    "kind": "docs/encoders.md has the kinds and the parameters of each",
    "method": "what tables print beside the name, such as SimCSE",
    "supervision": "what it was trained on: none, nli, sts, pairs or translation",
    "overlap": "whether its training text holds test sentences: none, text, gold or unknown",
    "paper": "where it is described, or 'none'",
}
"""What a draft explains about a key of the card, as a comment above it."""
FRONT_MATTER = "---\n"
"""The line around the metadata at the top of a model's README."""


class _CardDraft(NamedTuple):
    """The values of a card, its parameters, and doubts by key."""

    values: dict[str, Any]
    params: dict[str, Any]
    doubts: dict[str, str]


def draft_encoder(source: Path, location: CardLocation, made_by: str = "stsbench") -> Draft:
    """Draft the card of an encoder: a checkpoint's folder or a file of word vectors.

    A card is a TOML file that describes an encoder. Values that the files do not tell are
    ``UNKNOWN``, for the author to fill in. A guess is marked as unsure in a comment.

    Args:
        source: The folder or file.
        location: The name of the new card and the path to write it to; nothing is written here.
        made_by: The program or command that makes the draft, for the first line of the card.

    Returns:
        The text of the card by its path; a line on what was found; and the doubts about values.

    Raises:
        EncoderError: There is no such folder or file, or the checkpoint cannot be used.
        DataError: The file is none of word vectors.
    """
    if not source.exists():
        raise EncoderError(
            f"'{source}' does not exist; give a checkpoint's folder or a file of word vectors"
        )
    draft = _draft_of_folder(source) if source.is_dir() else _draft_of_vectors(source)
    # `draft.values` replaces some of these, such as the kind if the source is a folder.
    values: dict[str, Any] = {
        "name": location.name,
        "kind": "words",
        "method": UNKNOWN,
        "backbone": UNKNOWN,
        "supervision": "none",
        "overlap": "unknown",
        "paper": UNKNOWN,
        "license": UNKNOWN,
        **draft.values,
    }
    # No file tells what an encoder was trained on, so the supervision is always in doubt.
    supervision_doubt = "the files do not tell what it was trained on: none is taken"
    doubts = {"supervision": supervision_doubt, **draft.doubts}
    missing = [key for key, value in values.items() if value in (UNKNOWN, "")]
    # The comment above each key of the card.
    comments = _add_doubts(KEY_COMMENTS, doubts)
    # `card_lines` writes a line per key, below its comment.
    lines = [
        f"# A draft of {made_by}. '{UNKNOWN}' is yours to fill in.",
        *card_lines(values, comments),
        "",
        "[params]",
        *card_lines(draft.params, comments),
    ]
    settings = [
        f"{key} {toml(value)}"
        for key, value in draft.params.items()
        if key not in ("model", "file")
    ]
    summary = f"kind {values['kind']}, {', '.join(settings) or 'run as its files say'}"
    return Draft(
        files={location.path: "\n".join(lines) + "\n"},
        findings=[f"{location.path}: {summary}"],
        doubts=[*doubts.values(), f"not in the files: {', '.join(missing)}"],
    )


def _add_doubts(comments: Mapping[str, str], doubts: Mapping[str, str]) -> dict[str, str]:
    """Return comments on the keys of a card, in which doubts about their values are added.

    Args:
        comments: The explanation of each key, by key.
        doubts: Why the value of a key may be wrong, by key.

    Returns:
        For each key the explanation, the doubt, or both with a semicolon between them.
    """
    all_comments = dict(comments)
    for key, doubt in doubts.items():
        # Without an explanation the comment begins with "unsure".
        all_comments[key] = f"{comments.get(key, '')}; unsure: {doubt}".lstrip("; ")
    return all_comments


def _draft_of_vectors(path: Path) -> _CardDraft:
    """Return the values, the parameters and the doubts for the card of a file of word vectors.

    Raises:
        DataError: The file is none of word vectors.
    """
    # The first word and its vector, which has the size of all.
    block = next(read_blocks(path, limit=1))
    return _CardDraft(
        values={
            "method": "Mean of word vectors",
            "backbone": path.stem,
            "dimensions": block.vectors.shape[1],
        },
        params={"file": str(path.resolve()), "tokens": "whitespace"},
        doubts={
            "tokens": "'whitespace' is SentEval's recipe, 'sbert' that of sentence-transformers"
        },
    )


def _draft_of_folder(folder: Path) -> _CardDraft:
    """Return the values, the parameters and the doubts for the card of a checkpoint's folder.

    Raises:
        EncoderError: The checkpoint cannot be used.
    """
    # The loaded encoder, and notes on settings that its files do not have: its `assumptions`.
    named_encoder = load_named(str(folder))
    # The kind of encoder and its parameters, from the checkpoint's files.
    description = describe(folder, Catalogue())
    params: dict[str, Any] = {"model": str(folder.resolve()), **description.params}
    doubts = {}
    subfolder = str(description.params.get("subfolder", ""))
    config = read_optional_json(folder / subfolder / "config.json")
    if description.kind == "transformer":
        max_length = getattr(named_encoder.encoder, "max_length", None)
        if max_length is not None:
            params["max_length"] = max_length
    if description.kind in ("transformer", "sentence_transformer"):
        params.setdefault("dtype", "float32")
        stored_dtype = str(config.get("dtype") or config.get("torch_dtype") or "float32")
        if stored_dtype != params["dtype"]:
            doubts["dtype"] = (
                f"the weights are stored in {stored_dtype}; it runs in {params['dtype']}"
            )
    for assumption in named_encoder.assumptions:
        # With modules the pooling is known, and only a prompt may be in doubt.
        doubts["prompt" if description.has_modules else "pooling"] = assumption
    # The license and the model that it was trained from, if the README states them.
    stated = _read_front_matter(folder / "README.md")
    base_model = stated.get("base_model", "").rpartition("/")[2]
    values: dict[str, Any] = {
        "kind": description.kind,
        "backbone": str(base_model or config.get("model_type") or UNKNOWN),
        "license": stated.get("license", UNKNOWN),
    }
    # With modules an embedding may have another size than the transformer's states.
    size = config.get("hidden_size")
    if isinstance(size, int) and not (folder / "modules.json").is_file():
        values["dimensions"] = size
    return _CardDraft(values, params, doubts)


def _read_front_matter(path: Path) -> dict[str, str]:
    """Return ``license`` and ``base_model`` from the top of a model's README, if it states them.

    In models of the Hub they are YAML between two lines of ``---``. Only plain values of one line
    are read. A missing file, or one without such a block, gives an empty table.
    """
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    if not text.startswith(FRONT_MATTER):
        return {}
    front_matter = text.removeprefix(FRONT_MATTER).partition(f"\n{FRONT_MATTER}")[0]
    matches = re.findall(
        r"^(license|base_model): *[\"']?([\w./ -]+?)[\"']? *$", front_matter, re.MULTILINE
    )
    return dict(matches)
