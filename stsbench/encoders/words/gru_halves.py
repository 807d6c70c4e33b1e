"""Encoders made of GRUs side by side: Skip-Thoughts (Kiros et al. 2015) and Quick-Thoughts (Logeswaran & Lee 2018).

Each half has its own word table and GRU and embeds the whole sentence with its last state; the
halves are scaled to length 1 one by one and joined. Unknown words are read as one word of the
vocabulary, never dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from stsbench.encoders.devices import check_device, pick_device
from stsbench.encoders.engine.tokens import TokenIds
from stsbench.encoders.seams import FloatArray
from stsbench.encoders.words.folder import WordFolder
from stsbench.encoders.words.tokenisers import libraries, tokeniser
from stsbench.errors import CardError, EncoderError, choose, did_you_mean
from stsbench.provenance.identity import fingerprint

if TYPE_CHECKING:
    import torch

    from stsbench.encoders.words.recurrent import Gru

CODE_VERSION = 1
"""Raise when a change here can change an embedding: stored ones are then not reused."""


class Half(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One GRU and its word table."""

    word_size: int
    hidden: int
    """Size of the state, of each direction."""
    bidirectional: bool = False
    cell: Literal["torch", "tensorflow"] = "torch"

    @property
    def size(self) -> int:
        """Size of its embedding."""
        return self.hidden * (2 if self.bidirectional else 1)

    def shapes(self, words: int) -> dict[str, tuple[int, ...]]:
        """The weights' shapes, where the vocabulary has this many words."""
        shapes: dict[str, tuple[int, ...]] = {"embedding": (words, self.word_size)}
        for i in range(2 if self.bidirectional else 1):
            shapes |= {f"gru.directions.{i}.{name}": shape for name, shape in self._cell_shapes().items()}
        return shapes

    def _cell_shapes(self) -> dict[str, tuple[int, ...]]:
        w, h = self.word_size, self.hidden
        names = {"weight_ih": (w,), "weight_hh": (h,), "bias_ih": (), "bias_hh": ()}
        shapes: dict[str, dict[str, tuple[int, ...]]] = {
            "torch": {f"gru.{name}_l0": (3 * h, *rest) for name, rest in names.items()},
            "tensorflow": {
                "gates.weight": (2 * h, w + h),
                "gates.bias": (2 * h,),
                "candidate.weight": (h, w + h),
                "candidate.bias": (h,),
            },
        }
        return choose("cell", self.cell, shapes)


class HalvesConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``config.json`` of a saved Skip-Thoughts or Quick-Thoughts encoder."""

    halves: dict[str, Half]
    unknown: str
    """The word that unknown words are read as."""
    eos: str = ""
    """The word for a sentence's end, where the vocabulary has one."""
    lowercase: bool = False

    def shapes(self, words: int) -> dict[str, tuple[int, ...]]:
        """The weights' shapes, where the vocabulary has this many words."""
        return {
            f"{name}.{key}": shape for name, half in self.halves.items() for key, shape in half.shapes(words).items()
        }


class GruHalvesEncoder:
    """Embeds with the halves of a saved encoder, each of length 1; a sentence without words is the zero vector."""

    KIND = "skip_thoughts"

    def __init__(
        self,
        model: str,
        *,
        name: str = "",
        revision: str = "unpinned",
        halves: Sequence[str] = (),
        tokens: str = "whitespace",
        append_eos: bool = False,
        normalise: bool = True,
        device: str = "auto",
    ) -> None:
        """Find the folder.

        Args:
            model: a folder written by a training run or by ``stsbench convert``.
            name: what results call the encoder.
            revision: the Hub commit, where ``model`` is a Hub id.
            halves: which of the folder's halves to join, in this order; default all.
            tokens: ``whitespace`` for text that is tokenised already, else ``ptb``.
            append_eos: end every sentence with the vocabulary's own word for that, as in training.
            normalise: scale each half to length 1, as the papers' code does.
            device: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``.
        """
        check_device(device)
        self.name = name or model
        self.folder = WordFolder(model, revision=revision)
        self.revision = self.folder.revision
        self.config = self.folder.config(HalvesConfig)
        for half in halves:
            if half not in self.config.halves:
                known = ", ".join(self.config.halves)
                raise CardError(
                    f"{self.folder.path} has no half '{half}'{did_you_mean(half, self.config.halves)}; it has {known}"
                )
        self.halves = tuple(halves or self.config.halves)
        if append_eos and not self.config.eos:
            raise CardError(f"append_eos: the vocabulary of {self.folder.path} has no word for a sentence's end")
        self.split = tokeniser(tokens, lowercase=self.config.lowercase)
        self.tokens, self.append_eos, self.normalise, self.device = tokens, append_eos, normalise, device

    @cached_property
    def fingerprint(self) -> str:
        """The hash of all that decides an embedding."""
        return fingerprint(
            {
                "kind": self.KIND,
                "code": CODE_VERSION,
                "files": self.folder.digests(),
                "halves": self.halves,
                "tokens": self.tokens,
                "append_eos": self.append_eos,
                "normalise": self.normalise,
            },
            libraries(self.tokens),
        )

    @cached_property
    def vocabulary(self) -> dict[str, int]:
        """Each word's row; of a doubled word the first."""
        words = self.folder.words()
        rows = {word: row for row, word in reversed(list(enumerate(words)))}
        for needed in filter(None, (self.config.unknown, self.config.eos)):
            if needed not in rows:
                raise EncoderError(f"{self.folder.path}: vocab.txt lacks the word '{needed}' that config.json names")
        return rows

    @cached_property
    def networks(self) -> dict[str, tuple[torch.Tensor, Gru]]:
        """Each half's word table (words, w) and GRU."""
        from stsbench.encoders.words.recurrent import Gru

        tensors = self.folder.tensors(self.config.shapes(len(self.folder.words())))
        networks = {}
        for name in self.halves:
            half = self.config.halves[name]
            gru = Gru(half.word_size, half.hidden, bidirectional=half.bidirectional, cell=half.cell)
            start = f"{name}.gru."
            gru.load_state_dict({key.removeprefix(start): t for key, t in tensors.items() if key.startswith(start)})
            networks[name] = (tensors[f"{name}.embedding"], gru.eval().to(pick_device(self.device)))
        return networks

    @property
    def device_used(self) -> str | None:
        """The device the GRUs are on; None where they were never loaded."""
        if "networks" not in self.__dict__:
            return None
        _, gru = next(iter(self.networks.values()))
        return str(next(gru.parameters()).device)

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, d)."""
        import torch

        from stsbench.encoders.words.recurrent import embed_planned

        def embed(ids: npt.NDArray[np.int64], lengths: torch.Tensor) -> torch.Tensor:
            parts = []
            for table, gru in self.networks.values():
                device = next(gru.parameters()).device
                last = gru(table[torch.from_numpy(ids).clamp(min=0)].to(device), lengths)
                parts.append(torch.nn.functional.normalize(last, dim=1) if self.normalise else last)
            return torch.cat(parts, dim=1)

        size = sum(self.config.halves[name].size for name in self.halves)
        return embed_planned(self.ids(sentences), embed, d=size)

    def ids(self, sentences: Sequence[str]) -> TokenIds:
        """Return the rows of each sentence's words."""
        unknown = self.vocabulary[self.config.unknown]
        end = [self.vocabulary[self.config.eos]] if self.append_eos else []
        return TokenIds.from_lists(
            [[self.vocabulary.get(word, unknown) for word in self.split(sentence)] + end for sentence in sentences]
        )

    def unknown(self, sentences: Sequence[str]) -> list[str]:
        """Return the sentences without a known word."""
        return [s for s in sentences if not any(word in self.vocabulary for word in self.split(s))]


class SkipThoughtsEncoder(GruHalvesEncoder):
    """Skip-Thoughts: uni-skip, bi-skip or both (combine-skip, 4,800 values as released)."""


class QuickThoughtsEncoder(GruHalvesEncoder):
    """Quick-Thoughts: [f; g], 2,400 values as released; MC-QT joins two such models."""

    KIND = "quick_thoughts"
