"""Encoders as users write them, odd and legal: each is scored, or refused in one line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import stsbench
from stsbench.core.errors import StsbenchError

SOURCE = """
import abc, dataclasses, functools, typing
import numpy as np
import torch

def rows(sentences):
    return np.array([[len(s), s.count("a"), s.count("e"), 1.0] for s in sentences], dtype=np.float32)

class Usual:
    name, fingerprint = "usual", "1"
    def encode(self, sentences): return self.of(rows(sentences))
    def of(self, rows): return rows

class Property(Usual):
    @property
    def fingerprint(self): return "p"
class Slots:
    __slots__ = ("name", "fingerprint", "size")
    def __init__(self, size: int = 3): self.name, self.fingerprint, self.size = "slots", "s", size
    def encode(self, sentences): return rows(sentences)
@dataclasses.dataclass
class Data:
    size: int = 3
    name: str = "data"
    fingerprint: str | None = None
    def encode(self, sentences): return rows(sentences)
@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    name: str = "frozen"
    fingerprint: str | None = "f"
    def encode(self, sentences): return rows(sentences)
class Named(typing.NamedTuple):
    name: str = "named"
    fingerprint: str | None = "n"
    def encode(self, sentences): return rows(sentences)
class Module(torch.nn.Module):
    name, fingerprint = "module", "m"
    dtype, device = torch.float32, torch.device("cpu")
    def encode(self, sentences): return torch.tensor(rows(sentences))
class Estimator(Usual):
    def fit(self, x, y=None): return self
class Untrue(Usual):
    def __bool__(self): return False
    def __len__(self): return 0
    def __eq__(self, other): raise TypeError("cannot be compared")
    __hash__ = None
class Any(Usual):
    def __init__(self, **given): self.given = given
@functools.lru_cache
def kept() -> Usual: return Usual()
def plain(): return Usual()
ready = Usual()

class Tensor(Usual):
    def of(self, rows): return torch.tensor(rows)
class ReadOnly(Usual):
    def of(self, rows):
        rows.flags.writeable = False
        return rows
class Reused(Usual):
    kept = np.empty((5000, 4), dtype=np.float32)
    def of(self, rows):
        self.kept[: len(rows)] = rows
        return self.kept[: len(rows)]
class Noted(Usual):
    notes = ("with care",)

class Learning(Usual):
    def of(self, rows): return torch.tensor(rows).requires_grad_()
class Brains(Usual):
    def of(self, rows): return torch.tensor(rows).bfloat16()
class Later(Usual):
    async def encode(self, sentences): return rows(sentences)
class Yielding(Usual):
    def encode(self, sentences): yield from rows(sentences)
class Abstract(abc.ABC):
    name, fingerprint = "abstract", None
    @abc.abstractmethod
    def encode(self, sentences): ...
class Needy(Usual):
    def encode(self, sentences, size): return rows(sentences)
class Positional(Usual):
    def __init__(self, size: int = 3, /): self.size = size
class Tokens(Usual):
    def tokenize(self, sentences): return [s.split() for s in sentences]
    def embed_tokens(self, tokens, rows): return None
class Batches(Usual):
    def tokenize(self, sentences):
        from stsbench.encoders.tokens import TokenIds
        return TokenIds.from_lists([[1] for _ in sentences])
    def embed_tokens(self, tokens, rows): return None
class Over(Usual):
    base = Usual()
    def over(self, base): return None
    def fit_texts(self, sentences): return self
class Unfitted(Usual):
    def fit_texts(self, sentences): return None
class Fitted(Usual):
    fit = "target"
    def fit_texts(self, sentences): return self
def nothing(): return None
def embed(sentences): return rows(sentences)
"""
WORKS = [
    "Usual", "Property", "Slots", "Data", "Frozen", "Named", "Module", "Estimator",
    "Untrue", "Any", "kept", "plain", "ready", "Tensor", "ReadOnly", "Reused", "Noted",
    "Fitted",
]  # fmt: skip
REFUSED = {
    "Learning": "encoder 'usual' returned a Tensor that is not an array (n, d) of numbers: Can't call numpy() on Tensor that requires",
    "Brains": "encoder 'usual' returned a Tensor that is not an array (n, d) of numbers: Got unsupported ScalarType BFloat16",
    "Later": "encoder 'usual' returned a coroutine that is not an array (n, d) of numbers",
    "Yielding": "encoder 'usual' returned a generator that is not an array (n, d) of numbers",
    "Abstract": "encoder 'odd_encoders:Abstract': Abstract is an abstract class; give one that has all its methods",
    "Needy": "encode of Needy must take the sentences alone: missing a required argument: 'size'",
    "Tokens": "encoder 'usual': tokenize returned a list; beside embed_tokens it must return the TokenIds",
    "Batches": "encoder 'usual' returned a NoneType that is not an array (n, d) of numbers",
    "Unfitted": "what fit_texts of Unfitted returned: NoneType has no 'name'",
    "Over": "what a post-processor's over(base) returned has no fit_texts; it is None",
    "nothing": "encoder 'odd_encoders:nothing': NoneType has no 'name'",
    "embed": "encoder 'odd_encoders:embed': missing a required key: 'sentences'",
}


@pytest.fixture(autouse=True)
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "odd_encoders.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("odd_encoders", None)
    yield
    sys.modules.pop("odd_encoders", None)


@pytest.mark.parametrize("name", WORKS)
def test_it_is_scored_as_the_usual_one(name, tmp_path):
    usual, odd = (
        next(stsbench.iterate(f"odd_encoders:{one}", "quickstart-en", store=tmp_path))
        for one in ("Usual", name)
    )
    assert odd.score == usual.score
    assert (name == "Noted") is ("with care" in odd.notes)
    assert (name == "Module") is (odd.run["dtype"] == "float32")


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_in_one_line(name, tmp_path):
    with pytest.raises(StsbenchError) as caught:
        next(stsbench.iterate(f"odd_encoders:{name}", "quickstart-en", store=tmp_path))
    assert REFUSED[name] in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        (
            "Slots",
            {"size": 5},
            "Slots takes no attributes (__slots__?), so its parameters cannot be kept with it",
        ),
        ("Frozen", {"name": "x"}, "Frozen takes no attributes (__slots__?)"),
        ("Positional", {"size": 5}, "'size' parameter is positional only"),
        ("ready", {"size": 5}, "is made already; it takes no parameters (size)"),
        ("Data", {"sise": 5}, "unknown key 'sise'; did you mean 'size'?"),
        ("Data", {"size": "5"}, "key 'size'"),
    ],
)
def test_parameters_that_it_cannot_take_are_refused_in_one_line(name, params, message):
    with pytest.raises(StsbenchError) as caught:
        stsbench.load_encoder(f"odd_encoders:{name}", params=params)
    assert message in str(caught.value)


def test_given_parameters_tell_embeddings_apart():
    from stsbench.core.provenance import encoder_identity

    three, five = (
        stsbench.load_encoder("odd_encoders:Any", params={"size": size}) for size in (3, 5)
    )
    assert None is not encoder_identity(three) != encoder_identity(five)


CARD = """name = "Odd"
method = "odd"
backbone = "none"
paper = "none"
license = "none"
supervision = "none"
overlap = "none"
kind = "odd_encoders:{}"
"""


@pytest.mark.parametrize("name", ["Property", "Frozen", "Module", "kept"])
def test_a_card_that_makes_it_is_scored_under_the_cards_name(name, tmp_path):
    card = tmp_path / "odd.toml"
    card.write_text(CARD.format(name))
    (of_card,) = stsbench.evaluate(card, "quickstart-en", store=None)
    (usual,) = stsbench.evaluate("odd_encoders:Usual", "quickstart-en", store=None)
    assert (of_card.encoder, of_card.overlap, of_card.score) == ("odd", "none", usual.score)
