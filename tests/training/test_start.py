"""What a student starts from."""

from __future__ import annotations

import pytest
from transformers import (
    AlbertConfig,
    BertConfig,
    DistilBertConfig,
    GPT2Config,
    ModernBertConfig,
    PreTrainedConfig,
    T5Config,
)

from stsbench.training.start import dropouts


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (BertConfig(), {"hidden_dropout_prob", "attention_probs_dropout_prob"}),
        (AlbertConfig(), {"hidden_dropout_prob", "attention_probs_dropout_prob"}),
        (DistilBertConfig(), {"dropout", "attention_dropout"}),
        (GPT2Config(), {"resid_pdrop", "embd_pdrop", "attn_pdrop"}),
        (T5Config(), {"dropout_rate"}),
        (ModernBertConfig(), {"attention_dropout", "embedding_dropout", "mlp_dropout"}),
    ],
)
def test_every_dropout_of_the_body_is_known_and_none_of_a_head(config: PreTrainedConfig, expected: set[str]):
    assert set(dropouts(config.to_dict())) == expected
