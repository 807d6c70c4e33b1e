"""What a checkpoint's files do not say of how it is run: by the card that names it, by its family, or assumed.

Most checkpoints of papers are bare transformers. Their documentation tells the pooling and the prompt, the files
do not; taking the mean of unsupervised SimCSE, say, gives numbers that look right and are nobody's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from stsbench.cards.catalogue import Catalogue
from stsbench.encoders.kinds import SERVED


class Family(NamedTuple):
    """How the documentation of some Hub ids has them run, where that is not the mean of all tokens."""

    ids: re.Pattern[str]
    pooling: str
    normalise: bool
    prompt: str
    source: str

    def params(self) -> dict[str, Any]:
        """Parameters of the kind ``transformer``."""
        return {"pooling": self.pooling, "normalise": self.normalise, "prompt": self.prompt}


def _family(ids: str, pooling: str, source: str, *, normalise: bool = False, prompt: str = "") -> Family:
    return Family(re.compile(ids, re.IGNORECASE), pooling, normalise, prompt, source)


SIMCSE = "https://github.com/princeton-nlp/SimCSE"
FAMILIES = (
    _family(r"princeton-nlp/unsup-simcse-.*", "cls_before_pooler", SIMCSE),
    _family(r"princeton-nlp/sup-simcse-.*", "cls", SIMCSE),
    _family(r"voidism/diffcse-.*", "cls_before_pooler", "https://arxiv.org/abs/2204.10298"),
    _family(r"ffgcc/esimcse-.*", "cls_before_pooler", "https://arxiv.org/abs/2109.04380"),
    _family(r"ffgcc/infocse-.*", "cls_before_pooler", "https://arxiv.org/abs/2210.06432"),
    _family(r"baai/bge-.*-en-v1\.5", "cls_before_pooler", "https://huggingface.co/BAAI/bge-base-en-v1.5", normalise=True),
    _family(
        r"intfloat/(multilingual-)?e5-(small|base|large)(-v2|-unsupervised)?",
        "mean",
        "https://huggingface.co/intfloat/e5-base-v2",
        normalise=True,
        prompt="query: ",
    ),
)  # fmt: skip


def family_of(model: str) -> Family | None:
    """The family of a Hub id, None where none is known."""
    return next((family for family in FAMILIES if family.ids.fullmatch(model)), None)


def assumptions(family: Family | None, *, has_modules: bool, given: Mapping[str, Any], for_sts: str = "") -> list[str]:
    """Notes for the results of a checkpoint without a card: what its files do not say and was taken for granted.

    Args:
        family: what is known of its documentation.
        has_modules: whether it has sentence-transformers' files, which say how it is run.
        given: the parameters that the user gave: these are no assumption.
        for_sts: a prompt for STS that its files have under this name and do not use by default.
    """
    if for_sts and not {"prompt", "prompt_name", "prompt_template"} & {*given}:
        return [f"run with the default prompt of its files; they have one for STS: --set prompt_name={for_sts}"]
    if has_modules:
        if family is None or not family.prompt or {"prompt", "prompt_name"} & {*given}:
            return []
        return [
            f"run as its files say; its documentation puts '{family.prompt}' before every sentence "
            f"({family.source}): --set 'prompt=\"{family.prompt}\"'"
        ]
    usual = family.params() if family else {"pooling": "mean", "normalise": False, "prompt": ""}
    taken = {key: value for key, value in usual.items() if key not in given}
    if not {"pooling", "prompt"} & {*taken} or "prompt_template" in given:
        return []
    told = ", ".join(f"{key} {_shown(value)}" for key, value in taken.items())
    why = f"from the documentation of its family ({family.source})" if family else "assumed"
    return [f"no card and no sentence-transformers files say how to run it; {why}: {told}"]


def _shown(value: object) -> str:
    return (
        {"": "none", True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, str | bool) else str(value)
    )


def cards_of(model: str, catalogue: Catalogue) -> list[str]:
    """The encoder cards whose checkpoint is this model of the Hub."""
    cards = {name: catalogue.encoder(name) for name in catalogue.paths("baselines")}
    wanted = model.casefold()
    return [
        name
        for name, card in cards.items()
        # A server's name for a model says nothing of its weights.
        if card.kind not in SERVED
        and str(card.params.get("model", "")).casefold() == wanted
        and not card.params.get("subfolder")
    ]


def told_of_several(model: str, cards: Sequence[str]) -> str:
    """What to tell whoever names a model that several cards describe."""
    return f"{model} is run as its files say; cards that describe it otherwise or so: {', '.join(cards)}"
