import builtins

import pytest

from stsbench.encoders.words.tokenisers import tokeniser
from stsbench.errors import EncoderError, UnknownName

# By NLTK's word_tokenize and the released InferSent's own function around it.
SPLIT = {
    "I don't know, Mr. Smith's (cat) can't.": (
        ["I", "do", "n't", "know", ",", "Mr.", "Smith", "'s", "(", "cat", ")", "ca", "n't", "."],
        ["I", "don", "'t", "know", ",", "Mr.", "Smith", "'s", "(", "cat", ")", "can", "'t", "."],
    ),
    "\"Isn't\" it? $5.50 won't": (
        ["``", "Is", "n't", "''", "it", "?", "$", "5.50", "wo", "n't"],
        ["``", "Isn", "'t", "''", "it", "?", "$", "5.50", "wo", "n't"],
    ),
}


def test_white_space_parts_words():
    assert tokeniser("whitespace")(" The\tcat\u2003sat.\n") == ["The", "cat", "sat."]
    assert tokeniser("whitespace", lowercase=True)("The CAT") == ["the", "cat"]


@pytest.mark.parametrize("sentence", SPLIT)
def test_treebank_rules_and_their_moses_like_form(sentence):
    pytest.importorskip("nltk", reason="NLTK is not installed")
    ptb, moses = SPLIT[sentence]
    assert tokeniser("ptb")(sentence) == ptb
    # Glued only between two words: at the end of a text the released replacement finds nothing.
    assert tokeniser("moses")(sentence) == moses
    assert tokeniser("ptb", lowercase=True)(sentence)[0] == ptb[0].lower()
    assert tokeniser("moses")("") == []


def test_unknown_names_and_missing_nltk_are_one_line(monkeypatch):
    with pytest.raises(UnknownName, match="unknown tokens 'moss'; did you mean 'moses'"):
        tokeniser("moss")
    real = builtins.__import__

    def without_nltk(name, *rest):
        if name.startswith("nltk"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_nltk)
    with pytest.raises(EncoderError, match="need NLTK: pip install 'stsbench"):
        tokeniser("ptb")
