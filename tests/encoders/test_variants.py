"""Variants of an encoder: whose parameters they are, what they are called, what they embed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError, EncoderError
from stsbench.encoders.fitted import VariantEncoder, find_variant, variant_specs
from stsbench.encoders.load import load_encoder, load_named
from tests.encoders.fakes import Plain

PLAIN = "tests.encoders.fakes:Plain"
TEXTS = [f"sentence {i}" for i in range(40)]


class Short(Plain):
    """A user's own that has such a parameter itself."""

    def __init__(self, dimensions: int = 3) -> None:
        super().__init__("short", f"short {dimensions}", dimensions)


class Anything(Plain):
    """One that takes whatever it is given."""

    def __init__(self, **given: Any) -> None:
        super().__init__("anything", None)
        self.given = given


class Slotted:
    """One that takes no weak references."""

    __slots__ = ("fingerprint", "name")

    def __init__(self) -> None:
        self.name, self.fingerprint = "slotted", "slotted-1"

    def encode(self, sentences: Sequence[str]) -> Any:
        return np.ones((len(sentences), 4), dtype=np.float32)


MADE = Plain("made")


def test_fewer_dimensions():
    encoder = load_encoder(PLAIN, params={"dimensions": 2})
    expected = Plain().encode(TEXTS)[:, :2]
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, rtol=0, atol=1e-6)
    with pytest.raises(
        EncoderError, match="dimensions = 5: the embeddings have 4; give 4 or fewer"
    ):
        load_encoder(PLAIN, params={"dimensions": 5}).encode(TEXTS)


@pytest.mark.parametrize("kept", ["int8", "uint8"])
def test_integers_are_fitted_on_texts(kept):
    encoder: Any = load_encoder(PLAIN, params={"embeddings": kept, "dimensions": 3})
    with pytest.raises(EncoderError, match=r"fitted on texts \(stsb.train\); call fit_texts"):
        encoder.encode(TEXTS)
    fitted = encoder.fit_texts(TEXTS)
    found = fitted.encode(TEXTS)
    low, high = (-128, 127) if kept == "int8" else (0, 255)
    assert found.min(axis=0).tolist() == [low] * 3
    assert found.max(axis=0).tolist() == [high] * 3
    # Ranges are kept, and are those of the texts.
    again = load_encoder(PLAIN, params={"embeddings": kept, "dimensions": 3}).fit_texts(TEXTS)  # type: ignore[attr-defined]
    assert again.texts_to_embed() == ()
    assert np.array_equal(again.encode(TEXTS[:3]), found[:3])
    assert encoder.fit_texts(TEXTS[:9]).fingerprint != fitted.fingerprint


@pytest.mark.parametrize(("kept", "numbers"), [("binary", {-1.0, 1.0}), ("ubinary", {0.0, 1.0})])
def test_bits(kept, numbers):
    found = load_encoder(PLAIN, params={"embeddings": kept}).encode(TEXTS)
    assert set(np.unique(found).tolist()) == numbers
    assert np.array_equal(found > 0, Plain().encode(TEXTS) > 0)


def test_names_and_fingerprints_tell_variants_apart(tiny):
    asked: list[dict[str, Any]] = [
        {},
        {"dimensions": 2},
        {"dimensions": 3},
        {"embeddings": "binary"},
        {"embeddings": "ubinary"},
        {"embeddings": "int8"},
        {"embeddings": "int8", "dimensions": 3},
    ]
    known = [load_named(PLAIN, params=params) for params in asked]
    assert len({one.fingerprint for one in known}) == len({one.name for one in known}) == len(asked)
    assert known[-1].name == "plain+dimensions=3+embeddings=int8"
    assert load_named(f"{PLAIN}+dimensions=3+embeddings=int8").fingerprint == known[-1].fingerprint
    both = [load_encoder(tiny["bert"], params={"dimensions": d}) for d in (2, 3)]
    assert [one.name.rpartition("+")[2] for one in both] == ["dimensions=2", "dimensions=3"]
    # Another base makes another variant.
    other = load_named(PLAIN, params={"dimensions": 2, "d": 5})
    assert other.fingerprint not in {one.fingerprint for one in known}


def test_variants_share_their_base_while_it_is_in_use():
    first: Any = load_encoder(PLAIN, params={"dimensions": 2})
    second: Any = load_encoder(PLAIN, params={"embeddings": "binary"})
    other: Any = load_encoder(PLAIN, params={"dimensions": 2, "d": 6})
    assert first.base is second.base
    assert other.base is not first.base
    assert isinstance(
        load_encoder("tests.encoders.test_variants:Slotted", params={"dimensions": 2}),
        VariantEncoder,
    )


def test_what_an_encoder_takes_itself_is_its_own():
    own = load_encoder("tests.encoders.test_variants:Short", params={"dimensions": 2})
    assert isinstance(own, Short)
    assert own.d == 2
    both = load_encoder(
        "tests.encoders.test_variants:Short", params={"dimensions": 2, "embeddings": "binary"}
    )
    assert (both.encode(TEXTS).shape, find_variant(both).dimensions) == ((40, 2), None)  # type: ignore[union-attr]
    anything: Any = load_encoder(
        "tests.encoders.test_variants:Anything", params={"embeddings": "mine"}
    )
    assert anything.given == {"embeddings": "mine"}


def test_one_that_is_made_already_has_variants_too():
    found = load_encoder("tests.encoders.test_variants:MADE", params={"dimensions": 1})
    assert np.allclose(np.abs(found.encode(TEXTS)), 1)
    assert found.base is MADE  # type: ignore[attr-defined]


def test_a_card_may_name_a_variant(tmp_path: Path):
    card = tmp_path / "baselines" / "half.toml"
    card.parent.mkdir()
    head = f'name = "m"\nkind = "{PLAIN}"\nmethod = "m"\nbackbone = "none"\nsupervision = "none"\noverlap = "none"\n'
    card.write_text(head + 'paper = "none"\nlicense = "none"\n[params]\ndimensions = 2\n')
    catalogue = Catalogue([tmp_path])
    assert load_encoder("half", catalogue=catalogue).encode(TEXTS).shape == (40, 2)
    assert load_encoder(f"{card}+embeddings=binary", catalogue=catalogue).encode(TEXTS).shape == (
        40,
        2,
    )


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"dimensions": 0}, "key 'dimensions': expected a whole number >= 1, not 0"),
        ({"dimensions": "many"}, "key 'dimensions': expected a whole number, not 'many'"),
        (
            {"embeddings": "int4"},
            "key 'embeddings': 'int4' is not one of float32, int8, uint8, binary, ubinary",
        ),
        ({"embeddings": "float32"}, "embeddings = float32 is what they are; leave it out"),
        (
            {"dimensions": 2, "calibration": "target"},
            "calibration has no effect without embeddings = int8 or uint8",
        ),
        ({"dimension": 2}, "unknown key 'dimension'; did you mean 'dimensions'"),
    ],
)
def test_wrong_parameters(params, message):
    with pytest.raises(CardError, match=message):
        load_encoder(PLAIN, params=params)


def test_an_encoder_that_is_fitted_itself_has_none(tmp_path: Path):
    card = tmp_path / "white.toml"
    head = 'name = "m"\nkind = "whitening"\nmethod = "m"\nbackbone = "none"\nsupervision = "none"\noverlap = "none"\n'
    card.write_text(head + f'paper = "none"\nlicense = "none"\n[params]\nbase = "{PLAIN}"\n')
    with pytest.raises(
        CardError,
        match="'dimensions' is for encoders that are not fitted on texts, and this one is",
    ):
        load_encoder(str(card), params={"dimensions": 2})
    with pytest.raises(CardError, match=r"base '.*\+embeddings=int8' "):
        load_encoder(str(card), params={"base": f"{PLAIN}+embeddings=int8"})
    whitened: Any = load_encoder(str(card), params={"base": f"{PLAIN}+dimensions=3"})
    assert whitened.fit_texts(TEXTS).encode(TEXTS).shape == (40, 3)


def test_lists_of_values():
    assert variant_specs(
        "mine", {"dimensions": [4, 2], "embeddings": ["float32", "int8"]}, "target"
    ) == [
        "mine+dimensions=4",
        "mine+calibration=target+dimensions=4+embeddings=int8",
        "mine+dimensions=2",
        "mine+calibration=target+dimensions=2+embeddings=int8",
    ]
    assert variant_specs("mine", {"embeddings": ["float32", "binary"]}) == [
        "mine",
        "mine+embeddings=binary",
    ]
    with pytest.raises(CardError, match="`variants`: .* 'embeddings': 'int4' "):
        variant_specs("mine", {"embeddings": ["int4"]})
