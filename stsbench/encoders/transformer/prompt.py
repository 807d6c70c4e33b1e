"""The text around a sentence: a prompt before it, or a template with a place for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stsbench.errors import CardError

PLACE = "{}"
"""Where the sentence goes in a template."""
ENDINGS = (".", "?", '"', "'")
"""What PromptBERT's evaluation takes for the end of a sentence; an exclamation mark is not among them."""


@dataclass(frozen=True)
class Prompt:
    """What is put around every sentence before it is tokenised.

    Args:
        text: put before the sentence.
        template: put around the sentence, which goes where ``{}`` stands, once or twice.
        add_full_stop: first put a full stop after a sentence that does not end in one of ``. ? " '``.

    Raises:
        CardError: text and template are both given, or the template has neither one place nor two.
    """

    text: str = ""
    template: str = ""
    add_full_stop: bool = False

    def __post_init__(self) -> None:
        """Check what is given."""
        if self.text and self.template:
            raise CardError("give 'prompt' or 'prompt_template', not both")
        if self.template and self.places not in (1, 2):
            raise CardError("prompt_template needs one {} where the sentence goes, or two for echo embeddings")

    @property
    def places(self) -> int:
        """How often the sentence stands in what is embedded."""
        return self.template.count(PLACE) if self.template else 1

    def facts(self) -> list[str]:
        """What decides an embedding, for its fingerprint."""
        escaped = self.text.replace("{", "{{").replace("}", "}}")
        return [self.text, self.template or f"{escaped}{PLACE}", *(["add_full_stop"] if self.add_full_stop else [])]

    def around(self, sentences: Sequence[str]) -> Sequence[str]:
        """Return the sentences with this text around each."""
        if self.add_full_stop:
            sentences = [with_full_stop(sentence) for sentence in sentences]
        parts = self.template.split(PLACE) if self.template else [self.text, ""]
        return [sentence.join(parts) for sentence in sentences] if any(parts) or len(parts) > 2 else sentences


def with_full_stop(sentence: str) -> str:
    """Return the sentence with the full stop that PromptBERT's evaluation adds; the empty one stays empty."""
    return sentence if not sentence or sentence.endswith(ENDINGS) else f"{sentence}."
