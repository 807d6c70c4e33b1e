"""From a name to an encoder: what a card without a checkpoint says."""

import pytest

from stsbench.data.verify import file_digest
from stsbench.encoders.loading import find_encoder
from stsbench.errors import EncoderError, SourceError


def test_a_card_without_a_checkpoint_says_where_to_get_one():
    with pytest.raises(SourceError, match="consert-bert-base.*--set model=FOLDER"):
        find_encoder("consert-bert-base")


def test_a_folder_whose_files_the_card_knows_is_the_cards_own_encoder(tmp_path, tiny):
    card = tmp_path / "mine.toml"
    digest = file_digest(tiny["bert"] / "model.safetensors")
    head = "\n".join(f'{key} = "x"' for key in ("name", "method", "backbone", "paper", "license"))
    text = f'{head}\nkind = "transformer"\nsupervision = "none"\noverlap = "none"\n'
    card.write_text(f'{text}[params.sha256]\n"model.safetensors" = "{digest}"\n')
    with pytest.raises(SourceError, match="the card of 'mine' names no checkpoint to fetch; pass --set model=FOLDER"):
        find_encoder(str(card))
    folder = str(tiny["bert"])
    assert find_encoder(str(card), params={"model": folder}).name == "mine"
    assert find_encoder(str(card), params={"model": folder, "pooling": "max"}).name == "mine+pooling=max"
    with pytest.raises(EncoderError, match="not the file its card names"):
        find_encoder(str(card), params={"model": str(tiny["roberta"])})
    # Without hashes any folder would pass for the card's own.
    card.write_text(text)
    assert find_encoder(str(card), params={"model": folder}).name == f"mine+model={tiny['bert'].name}"
