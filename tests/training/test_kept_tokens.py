"""Token ids that are kept are those of a tokenizer, which reads each text once, whichever process asks."""

import multiprocessing

import numpy as np
import pytest

from stsbench.encoders.engine.tokens import TokenIds
from stsbench.training import kept_tokens
from stsbench.training.kept_tokens import KeptTokens
from stsbench.training.seams import Rows

TEXTS = ["four words are here", "aa bb cc", "a b c d e", "one more text that is longer"]
CHARACTERS = np.array([len(text) for text in TEXTS])


class Tokenizer:
    """A token a word, its length; remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, rows: Rows) -> TokenIds:
        self.asked += rows.tolist()
        return TokenIds.from_lists([[len(word) for word in TEXTS[row].split()] for row in rows.tolist()])


def lists(tokens: TokenIds) -> list[list[int]]:
    return [tokens.ids[a:b].tolist() for a, b in zip(tokens.offsets, tokens.offsets[1:], strict=False)]


def test_each_text_is_tokenised_once_and_comes_in_the_order_asked_for():
    tokenizer = Tokenizer()
    kept = KeptTokens(CHARACTERS, tokenizer)
    assert lists(kept(np.array([3, 0]))) == [[3, 4, 4, 4, 2, 6], [4, 5, 3, 4]]
    assert lists(kept(np.array([0, 1, 3, 0]))) == [[4, 5, 3, 4], [2, 2, 2], [3, 4, 4, 4, 2, 6], [4, 5, 3, 4]]
    assert tokenizer.asked == [3, 0, 1]


def test_a_text_of_more_tokens_than_there_is_room_for_is_tokenised_each_time():
    tokenizer = Tokenizer()
    kept = KeptTokens(CHARACTERS, tokenizer)
    assert [lists(kept(np.array([2]))) for _ in range(2)] == [[[1] * 5]] * 2
    assert tokenizer.asked == [2, 2]


def test_of_a_large_corpus_nothing_is_kept(monkeypatch):
    monkeypatch.setattr(kept_tokens, "MOST_CHARACTERS", 20)
    tokenizer = Tokenizer()
    kept = KeptTokens(CHARACTERS, tokenizer)
    assert [lists(kept(np.array([1]))) for _ in range(2)] == [[[2, 2, 2]]] * 2
    assert tokenizer.asked == [1, 1]


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
def test_what_a_forked_process_tokenised_is_kept_here_too():
    tokenizer = Tokenizer()
    kept = KeptTokens(CHARACTERS, tokenizer)
    child = multiprocessing.get_context("fork").Process(target=kept, args=(np.array([0, 3]),))
    child.start()
    child.join()
    assert lists(kept(np.array([3, 0]))) == [[3, 4, 4, 4, 2, 6], [4, 5, 3, 4]]
    assert tokenizer.asked == []
