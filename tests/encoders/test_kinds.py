"""What makes an encoder, and what is refused before it is used."""

from typing import Any

import pytest

from stsbench.encoders.kinds import ENCODERS, FITTED, FROM_CHECKPOINT, SERVED, is_maker, make_encoder
from stsbench.errors import CardError
from tests.encoders.fakes import Plain


def test_each_kind_is_fitted_from_a_checkpoint_or_of_words():
    assert FITTED | FROM_CHECKPOINT | SERVED | {"words"} == set(ENCODERS.table)
    assert not FITTED & FROM_CHECKPOINT


def test_what_may_make_an_encoder_is_told_without_calling_it():
    def made() -> Plain:
        raise AssertionError

    def counted() -> int:
        raise AssertionError

    assert [is_maker(one) for one in (Plain, Plain(), made)] == [True, True, True]
    assert [is_maker(one) for one in (int, 3, counted, __import__("os").getcwd)] == [False, False, False, False]


def test_parameters_are_checked_and_the_name_is_told():
    class Named:
        fingerprint = None

        def __init__(self, name: str, size: int = 3) -> None:
            self.name, self.size = name, size

        def encode(self, sentences: list[str]) -> list[Any]:
            return []

    assert make_encoder(Named, "mine", {"size": 4}, "card").name == "mine"
    for params, message in (
        ({"sise": 4}, "card: unknown key 'sise'; did you mean 'size'"),
        ({"size": "4"}, "card: key 'size'"),
        ({"name": "other"}, "card: 'name' cannot be set"),
    ):
        with pytest.raises(CardError) as caught:
            make_encoder(Named, "mine", params, "card")
        assert message in str(caught.value)
    with pytest.raises(CardError, match=r"card is made already; it takes no parameters \(size\)"):
        make_encoder(Plain(), "mine", {"size": 3}, "card")  # type: ignore[arg-type]
