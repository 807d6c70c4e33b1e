"""Augmentations of a sentence's words, before it is tokenised: SimCSE's tables 1 and 2, and CLEAR's four.

Words are what blanks divide (``text.split()``), as in SimCSE (its author in the repository's issue 231); neither
paper published code for these, and CLEAR's defaults are from memory, not checked against the paper. Every function
takes the words and a random generator and returns new words, one at least: no sentence is emptied. An empty list
stays one. Synonyms come from WordNet or a table, other words from a masked language model.

Gao et al. 2021, https://arxiv.org/abs/2104.08821; Wu et al. 2020, https://arxiv.org/abs/2012.15466.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import transformers

from stsbench.core.errors import DataError, EncoderError, SourceError, StsbenchError
from stsbench.data.readers.files import read_lines
from stsbench.encoders.backends import open_device
from stsbench.encoders.checkpoint import Checkpoint, find_checkpoint
from stsbench.encoders.transformer.backbone import load_model, load_tokenizer

DELETED = "[DEL]"
"""What CLEAR puts where words were: a special token, which the tokenizer is to be given."""
Augment = Callable[..., list[str]]
"""Words and a generator ``rng`` to new words."""
Synonyms = Callable[[str], Sequence[str]]
"""A word in lower case to its synonyms, itself not among them; see :func:`load_synonyms`."""
Fill = Callable[[Sequence[str], Sequence[int]], Sequence[str]]
"""Words and positions to a new word for each position: a masked language model's guesses."""
Indices = npt.NDArray[np.int64]


def word_augmentation(augment: Augment, rng: np.random.Generator) -> Callable[[str], str]:
    """Return what changes the words of a text, drawing from a generator."""
    return lambda text: " ".join(augment(text.split(), rng=rng))


def crop(words: Sequence[str], *, rate: float, rng: np.random.Generator) -> list[str]:
    """Keep one run of words, leaving out ``rate`` of them, rounded down (SimCSE's crop)."""
    keep = len(words) - _share(words, rate)
    start = int(rng.integers(len(words) - keep + 1))
    return list(words[start : start + keep])


def delete_words(words: Sequence[str], *, rate: float, rng: np.random.Generator) -> list[str]:
    """Leave out ``rate`` of the words, rounded down, anywhere (SimCSE's word deletion)."""
    gone = set(rng.choice(len(words), _share(words, rate), replace=False).tolist())
    return [word for at, word in enumerate(words) if at not in gone]


def delete_one_word(words: Sequence[str], *, rng: np.random.Generator) -> list[str]:
    """Leave out one word, if there are two (SimCSE's table 2)."""
    return delete_words(words, rate=1 / max(1, len(words)), rng=rng)


def delete_each(words: Sequence[str], *, rate: float, rng: np.random.Generator) -> list[str]:
    """Leave out each word by itself with a chance of ``rate``; where none is left, one of them stays (TSDAE)."""
    kept = rng.random(len(words)) > rate
    if len(words) and not kept.any():
        kept[rng.integers(len(words))] = True
    return [word for word, stays in zip(words, kept, strict=True) if stays]


_CORE = re.compile(r"\w(.*\w)?", re.S)


def replace_synonyms(
    words: Sequence[str],
    *,
    synonyms: Synonyms,
    rng: np.random.Generator,
    rate: float = 0.3,
    one: bool = False,
) -> list[str]:
    """Replace ``rate`` of the words, rounded down, as far as they have synonyms (CLEAR), or ``one`` of them (SimCSE).

    Words are tried in random order; punctuation at a word's ends stays, and a capital. SimCSE names nlpaug (WordNet).
    """
    new, count = list(words), 1 if one else _part(words, rate)
    for at in rng.permutation(len(words)).tolist() if count else []:
        core = _CORE.search(words[at])
        choices = synonyms(core[0].lower()) if core else []
        if core and choices:
            word = str(choices[int(rng.integers(len(choices)))])
            word = word[0].upper() + word[1:] if core[0][0].isupper() else word
            new[at] = words[at][: core.start()] + word + words[at][core.end() :]
            count -= 1
        if not count:
            break
    return new


def replace_masked(
    words: Sequence[str], *, fill: Fill, rng: np.random.Generator, rate: float = 0.15
) -> list[str]:
    """Replace ``rate`` of the words, rounded, one at least, by a masked language model's guesses (SimCSE's MLM 15%)."""
    count = min(len(words), max(1, round(len(words) * rate))) if rate else 0
    chosen = np.sort(rng.choice(len(words), count, replace=False)).tolist()
    new = list(words)
    for at, word in zip(chosen, fill(words, chosen) if chosen else [], strict=True):
        new[at] = word
    return new


def clear_delete_words(
    words: Sequence[str], *, rng: np.random.Generator, rate: float = 0.7, mark: str = DELETED
) -> list[str]:
    """Put one mark for each run of deleted words, ``rate`` of all, rounded down (CLEAR's word deletion)."""
    gone = set(rng.choice(len(words), _share(words, rate), replace=False).tolist())
    kept = [mark if at in gone else word for at, word in enumerate(words)]
    return [word for at, word in enumerate(kept) if at not in gone or at - 1 not in gone]


def clear_delete_spans(
    words: Sequence[str],
    *,
    rng: np.random.Generator,
    spans: int = 5,
    rate: float = 0.05,
    mark: str = DELETED,
) -> list[str]:
    """Put one mark for each of at most so many spans, of ``rate`` of the words, rounded, one at least (CLEAR's span deletion).

    Short sentences have room for fewer spans, and keep one word at least.
    """
    starts, length = _spans(words, spans, rate, len(words) - 1, rng)
    new: list[str] = []
    at = 0
    for start in starts.tolist():
        new += [*words[at:start], mark]
        at = start + length
    return [*new, *words[at:]]


def clear_reorder(
    words: Sequence[str], *, rng: np.random.Generator, pairs: int = 5, rate: float = 0.05
) -> list[str]:
    """Let at most so many pairs of spans, as :func:`clear_delete_spans` has them, change places (CLEAR's reordering)."""
    starts, length = _spans(words, 2 * pairs, rate, len(words), rng)
    drawn = rng.permutation(starts)
    new = list(words)
    for a, b in zip(drawn[0::2], drawn[1::2], strict=False):
        new[a : a + length], new[b : b + length] = words[b : b + length], words[a : a + length]
    return new


def next_sentences(
    document_ids: Indices, *, rng: np.random.Generator, reach: int = 1
) -> tuple[Indices, Indices]:
    """Pair every sentence with one of the next of its document (SimCSE's next-sentence objectives).

    ``document_ids`` (n,) say which document each sentence is of; a document's sentences lie together, in order.
    ``reach`` is how many sentences to choose from, 1 and 3 in the paper; near a document's end there are fewer.
    Returned are rows (m,) of anchors and of what follows each; the last sentence of a document is no anchor.
    """
    n = len(document_ids)
    last = (
        np.flatnonzero(np.append(document_ids[1:] != document_ids[:-1], True))
        if n
        else np.zeros(0, np.int64)
    )
    room = np.minimum(np.repeat(last, np.diff(last, prepend=-1)) - np.arange(n), reach)
    anchors = np.flatnonzero(room)
    return anchors, anchors + 1 + rng.integers(room[anchors])


def _part(words: Sequence[str], rate: float) -> int:
    # 0.29 of 100 words is 29, though the product of the floats falls short of it.
    return int(len(words) * rate + 1e-9)


def _share(words: Sequence[str], rate: float) -> int:
    # All but one at most are left out.
    return max(0, min(_part(words, rate), len(words) - 1))


def _spans(
    words: Sequence[str], count: int, rate: float, room: int, rng: np.random.Generator
) -> tuple[Indices, int]:
    """Starts (k,) in order and length of spans that do not overlap, every such set being as likely."""
    length = max(1, round(len(words) * rate))
    count = min(count, max(0, room) // length) if rate else 0
    # With each span shrunk to one word, a set of spans is a set of words.
    slots = np.sort(rng.choice(len(words) - count * (length - 1), count, replace=False))
    return slots + np.arange(count) * (length - 1), length


def load_synonyms(source: str) -> Synonyms:
    """Return the synonyms of WordNet, through nltk (extra ``wordnet``), or of a table of the user's own.

    WordNet's are the other single words of every synset that a word or its base form is in. Function words have
    none (WordNet knows "a" as a vitamin), nor have words of one letter. A table is a file with a word and its synonyms
    on each line, divided by tabs; case is ignored in the word. Raises StsbenchError: nltk is not installed;
    SourceError: WordNet's data are not on this machine; DataError: the table is missing or broken.
    """
    if source != "wordnet":
        table: dict[str, tuple[str, ...]] = {}
        for number, line in enumerate(read_lines(Path(source)), 1):
            word, *others = (cell.strip() for cell in line.split("\t"))
            if not word or not any(others):
                raise DataError(
                    f"{source}: line {number}: needs a word and its synonyms, divided by tabs"
                )
            table[word.lower()] = _distinct(word, [*table.get(word.lower(), ()), *others])
        return lambda word: table.get(word, ())
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    wordnet = _wordnet()

    @cache
    def lookup(word: str) -> Sequence[str]:
        if len(word) < 2 or word in ENGLISH_STOP_WORDS:
            return ()
        found = [
            name
            for synset in wordnet.synsets(word)
            for name in synset.lemma_names()
            if "_" not in name
        ]
        return _distinct(word, found)

    return lookup


def _distinct(word: str, others: Iterable[str]) -> tuple[str, ...]:
    return tuple(
        dict.fromkeys(other for other in others if other and other.lower() != word.lower())
    )


def _wordnet() -> Any:  # noqa: ANN401 - nltk has no types
    try:
        import nltk
        from nltk.corpus.reader.wordnet import WordNetCorpusReader
    except ImportError as error:
        raise StsbenchError(
            "synonyms need nltk; install it with: pip install 'stsbench[wordnet]'"
        ) from error
    for place in ("corpora/wordnet", "corpora/wordnet.zip/wordnet/"):
        try:
            folder = nltk.data.find(place)
        except LookupError:
            continue
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The multilingual functions")
            # Without the seconds it takes to map other languages' wordnets, which are not read.
            return type("EnglishReader", (WordNetCorpusReader,), {"map_wn": lambda *unused: None})(
                folder, None
            )
    raise SourceError(
        "no WordNet here; get it once: 'python -m nltk.downloader wordnet', or give a table of synonyms"
    )


WORD_STARTS = ("Ġ", "▁")
"""What byte-pair and SentencePiece vocabularies begin a word with; WordPiece marks the other parts of words."""


class MaskedFill:
    """Words and positions to the likeliest other word for each, all of them masked at once.

    SimCSE's "MLM 15%" uses BERT-base and says no more; here a guess is one whole word of the vocabulary, with a
    letter or digit, and never the word that was there. What lies behind the model's longest input stays.
    """

    def __init__(self, model: str, *, device: str = "auto") -> None:
        """Load a masked language model, a checkpoint's folder or its name on the Hub; raises where it cannot be had."""
        checkpoint = find_checkpoint(model)
        self.tokenizer, loaded = load_masked_language_model(checkpoint)
        self.device = open_device(device)
        self.model = loaded.eval().to(self.device)
        self.max_length = checkpoint.max_length()
        self.words: list[str] = whole_words(self.tokenizer, loaded.config.vocab_size)
        self.never = torch.tensor([not word for word in self.words], device=self.device)

    def __call__(self, words: Sequence[str], positions: Sequence[int]) -> list[str]:
        """Return a new word for each position, given in order."""
        masked = list(words)
        for at in positions:
            masked[at] = self.tokenizer.mask_token
        batch = self.tokenizer(
            " ".join(masked),
            truncation=self.max_length is not None,
            max_length=self.max_length,
            return_tensors="pt",
        ).to(self.device)
        asked = batch["input_ids"][0] == self.tokenizer.mask_token_id
        with torch.inference_mode():
            logits = self.model(**batch).logits[0, asked].masked_fill(self.never, -torch.inf)
        likeliest = logits.topk(min(8, len(self.words))).indices.tolist()
        new = [words[at] for at in positions]
        for place, found in enumerate(likeliest):
            guesses = (self.words[number] for number in found)
            new[place] = next(
                guess for guess in guesses if guess and guess.lower() != new[place].lower()
            )
        return new


def load_masked_language_model(checkpoint: Checkpoint) -> tuple[Any, Any]:
    """Load the tokenizer and the model of a checkpoint, on the CPU; raises EncoderError where it is no such model."""
    tokenizer = load_tokenizer(checkpoint)
    model, missing = load_model(transformers.AutoModelForMaskedLM, checkpoint, dtype="float32")
    if missing or tokenizer.mask_token_id is None:
        lacks = f"the weights lack '{missing[0]}'" if missing else "its tokenizer has no mask token"
        raise EncoderError(f"{checkpoint.folder}: no masked language model: {lacks}")
    return tokenizer, model


def whole_words(tokenizer: Any, size: int) -> list[str]:  # noqa: ANN401 - transformers is untyped
    """Each token's word, empty for special tokens, parts of words and punctuation."""
    tokens = tokenizer.convert_ids_to_tokens(range(min(size, len(tokenizer))))
    tokens += [""] * (size - len(tokens))
    special = set(tokenizer.all_special_tokens)
    begins = any(token.startswith(WORD_STARTS) for token in tokens)
    found = []
    for at, token in enumerate(tokens):
        whole = token.startswith(WORD_STARTS) if begins else not token.startswith("##")
        word = tokenizer.decode([at]).strip() if whole and token and token not in special else ""
        found.append(word if word.isalnum() else "")
    return found
