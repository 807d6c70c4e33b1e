"""From a name to an encoder: what a card without a checkpoint says."""

import pytest

from stsbench.encoders.loading import find_encoder, variant_name
from stsbench.errors import SourceError


def test_a_card_without_a_checkpoint_says_where_to_get_one():
    with pytest.raises(SourceError, match="consert-bert-base.*--set model=FOLDER"):
        find_encoder("consert-bert-base")


def test_a_changed_parameter_changes_the_name():
    assert variant_name("minilm", {"pooling": "max", "dtype": "bfloat16"}) == "minilm+dtype=bfloat16+pooling=max"
