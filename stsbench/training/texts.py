"""Augmentations of a sentence's words, before it is tokenised.

The augmentations are those of SimCSE's tables 1 and 2, and CLEAR's four. Words are what blanks
divide (``text.split()``), as in SimCSE (its author in the repository's issue 231). Neither paper
published code for these, and CLEAR's defaults are from memory, not checked against the paper.
Every function takes the words and a random generator and returns new words, at least one: no
sentence is emptied. An empty list stays empty. Synonyms come from WordNet or a table, other words
from a masked language model.

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
from stsbench.data.readers.text import read_lines
from stsbench.encoders.backends import open_device
from stsbench.encoders.checkpoint import Checkpoint, find_checkpoint
from stsbench.encoders.transformer.backbone import load_model, load_tokenizer

DELETED = "[DEL]"
"""The special token that CLEAR puts in place of words; the tokenizer must have it added."""
Augment = Callable[..., list[str]]
"""A function of words and a generator ``rng`` that returns new words."""
Synonyms = Callable[[str], Sequence[str]]
"""A function from a word in lower case to its synonyms without itself; see
:func:`load_synonyms`."""
Fill = Callable[[Sequence[str], Sequence[int]], Sequence[str]]
"""A function of words and positions that returns a new word for each position: a masked language
model's guesses."""
Indices = npt.NDArray[np.int64]


def word_augmentation(augment: Augment, rng: np.random.Generator) -> Callable[[str], str]:
    """Return a function that changes the words of a text, drawing from a generator."""
    return lambda text: " ".join(augment(text.split(), rng=rng))


def crop(words: Sequence[str], *, rate: float, rng: np.random.Generator) -> list[str]:
    """Keep one contiguous run of words (SimCSE's crop, table 2).

    Args:
        words: The words of a sentence.
        rate: The share of the words to leave out, rounded down.
        rng: The generator of the draw.
    """
    kept_length = len(words) - _count_deletions(words, rate)
    start = int(rng.integers(len(words) - kept_length + 1))
    return list(words[start : start + kept_length])


def delete_words(words: Sequence[str], *, rate: float, rng: np.random.Generator) -> list[str]:
    """Delete a share of the words, anywhere (SimCSE's word deletion, table 2).

    Args:
        words: The words of a sentence.
        rate: The share of the words to delete, rounded down; one word at least stays.
        rng: The generator of the draw.
    """
    deleted_positions = set(
        rng.choice(len(words), _count_deletions(words, rate), replace=False).tolist()
    )
    return [word for position, word in enumerate(words) if position not in deleted_positions]


def delete_one_word(words: Sequence[str], *, rng: np.random.Generator) -> list[str]:
    """Delete one word if there are at least two (SimCSE's table 2)."""
    return delete_words(words, rate=1 / max(1, len(words)), rng=rng)


def delete_each(words: Sequence[str], *, rate: float, rng: np.random.Generator) -> list[str]:
    """Delete each word independently; keep at least one (TSDAE).

    Args:
        words: The words of a sentence.
        rate: The probability that a word is deleted.
        rng: The generator of the draws.
    """
    is_kept = rng.random(len(words)) > rate
    if len(words) and not is_kept.any():
        is_kept[rng.integers(len(words))] = True
    return [word for word, stays in zip(words, is_kept, strict=True) if stays]


_WORD_WITHOUT_PUNCTUATION = re.compile(r"\w(.*\w)?", re.S)
"""A word from its first to its last letter or digit."""


def replace_synonyms(
    words: Sequence[str],
    *,
    synonyms: Synonyms,
    rng: np.random.Generator,
    rate: float = 0.3,
    single: bool = False,
) -> list[str]:
    """Replace words that have synonyms by one of them, as CLEAR and SimCSE do.

    Words are tried in random order. Punctuation at both ends of a word stays, and a capital.
    SimCSE names nlpaug (WordNet).

    Args:
        words: The words of a sentence.
        synonyms: A function from a word in lower case to its synonyms.
        rng: The generator of all draws.
        rate: The share of the words to replace, rounded down (CLEAR).
        single: Replace one word, whatever the rate (SimCSE).
    """
    new_words = list(words)
    count = 1 if single else _count_share(words, rate)
    # Without a word to replace nothing is drawn.
    positions = rng.permutation(len(words)).tolist() if count else []
    for position in positions:
        core_match = _WORD_WITHOUT_PUNCTUATION.search(words[position])
        choices = synonyms(core_match[0].lower()) if core_match else []
        if core_match and choices:
            synonym = str(choices[int(rng.integers(len(choices)))])
            # The synonym is capitalised as the word was.
            synonym = synonym[0].upper() + synonym[1:] if core_match[0][0].isupper() else synonym
            new_words[position] = (
                words[position][: core_match.start()]
                + synonym
                + words[position][core_match.end() :]
            )
            count -= 1
        if not count:
            break
    return new_words


def replace_masked(
    words: Sequence[str], *, fill: Fill, rng: np.random.Generator, rate: float = 0.15
) -> list[str]:
    """Replace words by the guesses of a masked language model (SimCSE's MLM 15%).

    Args:
        words: The words of a sentence.
        fill: Returns a new word for each position.
        rng: The generator of the positions.
        rate: The share of the words to replace, rounded, at least one; 0 for none.
    """
    count = min(len(words), max(1, round(len(words) * rate))) if rate else 0
    positions = np.sort(rng.choice(len(words), count, replace=False)).tolist()
    new_words = list(words)
    guesses = fill(words, positions) if positions else []
    for position, new_word in zip(positions, guesses, strict=True):
        new_words[position] = new_word
    return new_words


def clear_delete_words(
    words: Sequence[str], *, rng: np.random.Generator, rate: float = 0.7, marker: str = DELETED
) -> list[str]:
    """Replace each run of deleted words by one marker (CLEAR's word deletion).

    Args:
        words: The words of a sentence.
        rng: The generator of the draw.
        rate: The share of the words to delete, rounded down; one word at least stays.
        marker: The word that stands for deleted ones.
    """
    deleted_positions = set(
        rng.choice(len(words), _count_deletions(words, rate), replace=False).tolist()
    )
    marked_words = [
        marker if position in deleted_positions else word for position, word in enumerate(words)
    ]
    # Keep the first marker of each run.
    return [
        word
        for position, word in enumerate(marked_words)
        if position not in deleted_positions or position - 1 not in deleted_positions
    ]


def clear_delete_spans(
    words: Sequence[str],
    *,
    rng: np.random.Generator,
    spans: int = 5,
    rate: float = 0.05,
    marker: str = DELETED,
) -> list[str]:
    """Replace spans by one marker each (CLEAR's span deletion).

    Short sentences have room for fewer spans, and keep at least one word.

    Args:
        words: The words of a sentence.
        rng: The generator of all draws.
        spans: The maximum number of spans.
        rate: The length of a span as a share of the words, rounded, at least one word.
        marker: The word that stands for a deleted span.
    """
    starts, length = _draw_spans(words, spans, rate, max_words=len(words) - 1, rng=rng)
    new_words: list[str] = []
    next_position = 0
    for start in starts.tolist():
        new_words += [*words[next_position:start], marker]
        next_position = start + length
    return [*new_words, *words[next_position:]]


def clear_reorder(
    words: Sequence[str], *, rng: np.random.Generator, pairs: int = 5, rate: float = 0.05
) -> list[str]:
    """Swap pairs of spans of equal length (CLEAR's reordering).

    Args:
        words: The words of a sentence.
        rng: The generator of all draws.
        pairs: The maximum number of pairs; a short sentence has room for fewer.
        rate: The length of a span as a share of the words, rounded, at least one word.
    """
    starts, length = _draw_spans(
        words, max_spans=2 * pairs, rate=rate, max_words=len(words), rng=rng
    )
    shuffled_starts = rng.permutation(starts)
    new_words = list(words)
    # Each span is in one pair; of an odd number the last is left.
    for first, second in zip(shuffled_starts[0::2], shuffled_starts[1::2], strict=False):
        new_words[first : first + length] = words[second : second + length]
        new_words[second : second + length] = words[first : first + length]
    return new_words


def next_sentences(
    document_ids: Indices, *, rng: np.random.Generator, reach: int = 1
) -> tuple[Indices, Indices]:
    """Pair every sentence with one of the next of its document (SimCSE's next-sentence objectives).

    Args:
        document_ids: The document of each sentence, (n,); the sentences of a document lie together,
            in order.
        rng: The generator of all draws.
        reach: The number of next sentences to choose from, 1 and 3 in the paper; near the end of a
            document there are fewer.

    Returns:
        The rows (m,) of the anchors and of the sentence that follows each. The last sentence of a
        document is no anchor.
    """
    n_sentences = len(document_ids)
    last_rows = np.zeros(0, np.int64)
    if n_sentences:
        ends_document = np.append(document_ids[1:] != document_ids[:-1], True)
        last_rows = np.flatnonzero(ends_document)
    document_lengths = np.diff(last_rows, prepend=-1)
    # For each sentence the last row of its document.
    last_row_of_document = np.repeat(last_rows, document_lengths)
    n_following = last_row_of_document - np.arange(n_sentences)
    n_choices = np.minimum(n_following, reach)  # 0 for the last sentence
    anchors = np.flatnonzero(n_choices)
    # At least the next row, and up to ``reach`` rows on.
    return anchors, anchors + 1 + rng.integers(n_choices[anchors])


def _count_share(words: Sequence[str], rate: float) -> int:
    """Return the number of words in a share of them, rounded down."""
    # 0.29 of 100 words is 29, though the product of the floats falls short of it.
    return int(len(words) * rate + 1e-9)


def _count_deletions(words: Sequence[str], rate: float) -> int:
    """Return the number of words to delete: a share rounded down, but never all of them."""
    return max(0, min(_count_share(words, rate), len(words) - 1))


def _draw_spans(
    words: Sequence[str], max_spans: int, rate: float, max_words: int, rng: np.random.Generator
) -> tuple[Indices, int]:
    """Draw spans of one length that do not overlap; each possible set of spans is equally likely.

    Args:
        words: The words of a sentence.
        max_spans: The maximum number of spans.
        rate: The length of a span as a share of the words, rounded, at least one word.
        max_words: The maximum number of words that all spans cover together.
        rng: The generator of the draw.

    Returns:
        The starts of the spans (k,) in order, and their common length in words.
    """
    length = max(1, round(len(words) * rate))
    count = min(max_spans, max(0, max_words) // length) if rate else 0
    # Shrink each span to one word: then a set of spans is a set of words, which is drawn here.
    n_shrunk_words = len(words) - count * (length - 1)
    shrunk_starts = np.sort(rng.choice(n_shrunk_words, count, replace=False))
    # Grown again, each span moves all later ones by the words that it gains.
    starts = shrunk_starts + np.arange(count) * (length - 1)
    return starts, length


def load_synonyms(source: str) -> Synonyms:
    """Load the synonyms of WordNet, through nltk (extra ``wordnet``), or of a table of the user.

    WordNet's synonyms are the other single words of every synset that contains a word or its base
    form. Function words have none (WordNet has "a" as a vitamin), nor do words of one letter.

    Args:
        source: ``wordnet``, or the path of a table: a file with a word and its synonyms on each
            line, separated by tabs. Case is ignored in the word.

    Raises:
        StsbenchError: nltk is not installed.
        SourceError: The data of WordNet are not on this machine.
        DataError: The table is missing or broken.
    """
    if source != "wordnet":
        table: dict[str, tuple[str, ...]] = {}
        for number, line in enumerate(read_lines(Path(source)), 1):
            word, *synonyms = (column.strip() for column in line.split("\t"))
            if not word or not any(synonyms):
                raise DataError(
                    f"{source}: line {number}: needs a word and its synonyms, divided by tabs"
                )
            table[word.lower()] = _distinct(word, [*table.get(word.lower(), ()), *synonyms])
        return lambda word: table.get(word, ())
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    wordnet = _load_wordnet()

    @cache
    def lookup(word: str) -> Sequence[str]:
        # Of function words WordNet knows only unlikely senses.
        if len(word) < 2 or word in ENGLISH_STOP_WORDS:
            return ()
        lemmas = [
            lemma
            for synset in wordnet.synsets(word)
            for lemma in synset.lemma_names()
            # Several words.
            if "_" not in lemma
        ]
        return _distinct(word, lemmas)

    return lookup


def _distinct(word: str, candidates: Iterable[str]) -> tuple[str, ...]:
    """Return the candidates that are not the word itself, each once, in order."""
    return tuple(
        dict.fromkeys(
            candidate for candidate in candidates if candidate and candidate.lower() != word.lower()
        )
    )


def _load_wordnet() -> Any:  # noqa: ANN401 - nltk has no types
    """Load the English WordNet through nltk.

    Raises:
        StsbenchError: nltk is not installed.
        SourceError: The data of WordNet are not on this machine.
    """
    try:
        import nltk
        from nltk.corpus.reader.wordnet import WordNetCorpusReader
    except ImportError as error:
        raise StsbenchError(
            "synonyms need nltk", hint="install it with: pip install 'stsbench[wordnet]'"
        ) from error
    # As a folder, or as the archive that nltk's downloader leaves.
    for resource in ("corpora/wordnet", "corpora/wordnet.zip/wordnet/"):
        try:
            folder = nltk.data.find(resource)
        except LookupError:
            continue
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The multilingual functions")
            # To map the wordnets of other languages takes seconds, and they are not read.
            english_reader = type(
                "EnglishReader", (WordNetCorpusReader,), {"map_wn": lambda *unused: None}
            )
            return english_reader(folder, None)
    raise SourceError(
        "no WordNet here",
        hint="get it once: 'python -m nltk.downloader wordnet', or use a table of synonyms",
    )


WORD_STARTS = ("Ġ", "▁")
"""The prefixes of tokens that begin a word in byte-pair and SentencePiece vocabularies. WordPiece
has a prefix for the other parts of words."""


class MaskedFill:
    """A function from words and positions to the likeliest other word for each, all masked at once.

    SimCSE's "MLM 15%" uses BERT-base and specifies no more. Here a guess is one whole word of the
    vocabulary, with a letter or digit, and never the word that is replaced. Words beyond the
    model's longest input stay.
    """

    def __init__(self, model: str, *, device: str = "auto") -> None:
        """Load a masked language model.

        Args:
            model: The folder of a checkpoint, or its name on the Hub.
            device: The device to compute on; ``auto`` chooses one.

        Raises:
            EncoderError: The checkpoint is no masked language model.
            SourceError: It is not available.
        """
        checkpoint = find_checkpoint(model)
        self.tokenizer, masked_model = load_masked_language_model(checkpoint)
        self.device = open_device(device)
        self.model = masked_model.eval().to(self.device)
        self.max_length = checkpoint.max_length()
        self.words: list[str] = whole_words(self.tokenizer, masked_model.config.vocab_size)
        self.is_no_word = torch.tensor([not word for word in self.words], device=self.device)

    def __call__(self, words: Sequence[str], positions: Sequence[int]) -> list[str]:
        """Return a new word for each position; all of them are masked at once.

        Args:
            words: The words of a sentence.
            positions: The positions to fill, in order.

        Returns:
            A word for each position; the old one if it is beyond the model's longest input.
        """
        masked = list(words)
        for position in positions:
            masked[position] = self.tokenizer.mask_token
        batch = self.tokenizer(
            " ".join(masked),
            truncation=self.max_length is not None,
            max_length=self.max_length,
            return_tensors="pt",
        ).to(self.device)
        is_masked = batch["input_ids"][0] == self.tokenizer.mask_token_id
        with torch.inference_mode():
            logits = self.model(**batch).logits[0, is_masked]  # (masks, vocabulary)
            logits = logits.masked_fill(self.is_no_word, -torch.inf)
        # For each mask its likeliest tokens: among eight at least one is a word that differs from
        # the old one by more than case.
        likeliest_tokens = logits.topk(min(8, len(self.words))).indices.tolist()
        new_words = [words[position] for position in positions]
        # The input is cut at its end, so there may be fewer masks than positions: the positions
        # that were cut off keep their word.
        for index, token_ids in enumerate(likeliest_tokens):
            old_word = new_words[index].lower()
            guesses = (self.words[token_id] for token_id in token_ids)
            new_words[index] = next(
                guess for guess in guesses if guess and guess.lower() != old_word
            )
        return new_words


def load_masked_language_model(checkpoint: Checkpoint) -> tuple[Any, Any]:
    """Load the tokenizer and the model of a checkpoint on the CPU.

    Args:
        checkpoint: The checkpoint of a masked language model, with its head.

    Raises:
        EncoderError: The checkpoint is no masked language model.
    """
    tokenizer = load_tokenizer(checkpoint)
    model, missing = load_model(transformers.AutoModelForMaskedLM, checkpoint, dtype="float32")
    if missing or tokenizer.mask_token_id is None:
        problem = (
            f"the weights lack '{missing[0]}'" if missing else "its tokenizer has no mask token"
        )
        raise EncoderError(f"{checkpoint.folder}: no masked language model: {problem}")
    return tokenizer, model


def whole_words(tokenizer: Any, vocabulary_size: int) -> list[str]:  # noqa: ANN401 - transformers is untyped
    """Return the word of each token; empty for special tokens, parts of words and punctuation.

    Vocabularies mark either the tokens that begin a word (RoBERTa's ``Ġ``, SentencePiece's ``▁``)
    or those that continue one (BERT's ``##``).

    Args:
        tokenizer: A tokenizer of transformers.
        vocabulary_size: The number of logits of the model: it may have more than the tokenizer has
            tokens, and the rest are no words.
    """
    tokens = tokenizer.convert_ids_to_tokens(range(min(vocabulary_size, len(tokenizer))))
    tokens += [""] * (vocabulary_size - len(tokens))
    special_tokens = set(tokenizer.all_special_tokens)
    has_word_starts = any(token.startswith(WORD_STARTS) for token in tokens)
    words = []
    for token_id, token in enumerate(tokens):
        starts_word = (
            token.startswith(WORD_STARTS) if has_word_starts else not token.startswith("##")
        )
        is_word = starts_word and token and token not in special_tokens
        word = tokenizer.decode([token_id]).strip() if is_word else ""
        words.append(word if word.isalnum() else "")
    return words
