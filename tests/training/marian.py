"""A Marian model of two layers of 16 with random weights, and a SentencePiece vocabulary learnt from a few lines."""

from __future__ import annotations

import io
import json
from pathlib import Path

import torch

LINES = [
    "a dog runs in the park",
    "the cat sleeps on a mat",
    "two men are playing chess",
    "ein hund läuft im park",
    "die katze schläft auf einer matte",
    "zwei männer spielen schach",
]


def make_marian(folder: Path, *, seed: int = 0) -> Path:
    """Write a checkpoint folder; another seed makes another model of the same vocabulary."""
    import sentencepiece
    from transformers import MarianConfig, MarianMTModel

    folder.mkdir(parents=True)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES * 5),
        model_writer=model,
        vocab_size=45,
        character_coverage=1.0,
        minloglevel=2,
    )
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(model.getvalue())
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    words = [
        "</s>",
        "<unk>",
        *(pieces.IdToPiece(i) for i in range(3, pieces.GetPieceSize())),
        "<pad>",
    ]
    (folder / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}))
    facts = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": "en",
        "target_lang": "de",
        "model_max_length": 512,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(facts))
    pad = len(words) - 1
    config = MarianConfig(
        vocab_size=len(words), d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, max_position_embeddings=64,
        pad_token_id=pad, eos_token_id=0, decoder_start_token_id=pad, forced_eos_token_id=0, init_std=0.5,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        MarianMTModel(config).save_pretrained(folder)
    return folder
