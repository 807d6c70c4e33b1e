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

DELETION_MARKER = "[DEL]"
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
    """Return one contiguous run of words, from a random start (SimCSE's crop, table 2).

    Args:
        words: The words of a sentence.
        rate: The share of the words to delete, rounded down; one word at least stays.
        rng: The generator of the draw.
    """
    kept_length = len(words) - _number_to_delete(words, rate)
    start = int(rng.integers(len(words) - kept_length + 1))
    return list(words[start : start + kept_length])


def delete_words(words: Sequence[str], *, rate: float, rng: np.random.Generator) -> list[str]:
    """Return a sentence without a share of its words, at random positions (SimCSE, table 2).

    Args:
        words: The words of a sentence.
        rate: The share of the words to delete, rounded down; one word at least stays.
        rng: The generator of the draw.
    """
    deleted_positions = set(
        rng.choice(len(words), _number_to_delete(words, rate), replace=False).tolist()
    )
    return [word for position, word in enumerate(words) if position not in deleted_positions]


def delete_one_word(words: Sequence[str], *, rng: np.random.Generator) -> list[str]:
    """Delete one word if there are at least two (SimCSE's table 2)."""
    return delete_words(words, rate=1 / max(1, len(words)), rng=rng)


def delete_each(words: Sequence[str], *, rate: float, rng: np.random.Generator) -> list[str]:
    """Return a sentence in which each word was deleted independently (TSDAE's noise).

    If all would be deleted, one random word stays.

    Args:
        words: The words of a sentence.
        rate: The probability that a word is deleted.
        rng: The generator of the draws.
    """
    is_kept = rng.random(len(words)) > rate
    if len(words) and not is_kept.any():
        is_kept[rng.integers(len(words))] = True
    return [word for word, stays in zip(words, is_kept, strict=True) if stays]


_INNER_WORD_PATTERN = re.compile(r"\w(.*\w)?", re.S)
"""A word from its first to its last letter or digit."""


def replace_synonyms(
    words: Sequence[str],
    *,
    synonyms: Synonyms,
    rng: np.random.Generator,
    rate: float = 0.3,
    single: bool = False,
) -> list[str]:
    """Return a sentence with some words replaced by synonyms, as CLEAR and SimCSE do.

    Words are tried in random order until enough are replaced; a word without synonyms is passed
    over. Punctuation at both ends of a word stays, and the synonym is capitalised as the word was.
    SimCSE's paper names the library nlpaug (WordNet).

    Args:
        words: The words of a sentence.
        synonyms: A function from a word in lower case to its synonyms.
        rng: The generator of all draws.
        rate: The share of the words to replace, rounded down (CLEAR).
        single: Replace one word, whatever the rate (SimCSE).
    """
    new_words = list(words)
    n_remaining = 1 if single else _number_in_share(words, rate)
    # Without a word to replace nothing is drawn.
    positions = rng.permutation(len(words)).tolist() if n_remaining else []
    for position in positions:
        # The word from its first to its last letter or digit.
        core_match = _INNER_WORD_PATTERN.search(words[position])
        choices = synonyms(core_match[0].lower()) if core_match else []
        if core_match and choices:
            synonym = str(choices[int(rng.integers(len(choices)))])
            if core_match[0][0].isupper():
                synonym = synonym[0].upper() + synonym[1:]
            before = words[position][: core_match.start()]
            after = words[position][core_match.end() :]
            new_words[position] = before + synonym + after
            n_remaining -= 1
        if not n_remaining:
            break
    return new_words


def replace_masked(
    words: Sequence[str], *, fill: Fill, rng: np.random.Generator, rate: float = 0.15
) -> list[str]:
    """Return a sentence with some words replaced by a masked language model's guesses.

    This is SimCSE's "MLM 15%".

    Args:
        words: The words of a sentence.
        fill: A function from the words and some positions to a new word for each position.
        rng: The generator of the positions.
        rate: The share of the words to replace, rounded; at least one word, unless the rate is 0.
    """
    count = min(len(words), max(1, round(len(words) * rate))) if rate else 0
    positions = np.sort(rng.choice(len(words), count, replace=False)).tolist()
    new_words = list(words)
    guesses = fill(words, positions) if positions else []
    for position, new_word in zip(positions, guesses, strict=True):
        new_words[position] = new_word
    return new_words


def clear_delete_words(
    words: Sequence[str],
    *,
    rng: np.random.Generator,
    rate: float = 0.7,
    marker: str = DELETION_MARKER,
) -> list[str]:
    """Return a sentence with a share of its words deleted, each run of them marked by one word.

    This is CLEAR's word deletion.

    Args:
        words: The words of a sentence.
        rng: The generator of the draw.
        rate: The share of the words to delete, rounded down; one word at least stays.
        marker: The word that is put in place of each run of deleted words; by default ``[DEL]``.
    """
    deleted_positions = set(
        rng.choice(len(words), _number_to_delete(words, rate), replace=False).tolist()
    )
    marked_words = [
        marker if position in deleted_positions else word for position, word in enumerate(words)
    ]
    # Of each run of markers keep the first: the one whose preceding word was not deleted.
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
    marker: str = DELETION_MARKER,
) -> list[str]:
    """Return a sentence with random spans of words deleted, each marked by one word.

    This is CLEAR's span deletion. Spans have equal lengths and do not overlap.

    Args:
        words: The words of a sentence.
        rng: The generator of all draws.
        spans: The number of spans; fewer if the sentence is short, so that a word stays.
        rate: The length of a span as a share of the words, rounded, at least one word.
        marker: The word that is put in place of each span; by default ``[DEL]``.
    """
    # The first positions of the spans, rising.
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
    """Return a sentence with random pairs of spans swapped (CLEAR's reordering).

    Spans have equal lengths and do not overlap.

    Args:
        words: The words of a sentence.
        rng: The generator of all draws.
        pairs: The number of pairs; fewer if the sentence is short.
        rate: The length of a span as a share of the words, rounded, at least one word.
    """
    # The first positions of the spans.
    starts, length = _draw_spans(
        words, max_spans=2 * pairs, rate=rate, max_words=len(words), rng=rng
    )
    shuffled_starts = rng.permutation(starts)
    new_words = list(words)
    # Two consecutive spans make a pair; with an odd number the last one stays where it is.
    for first, second in zip(shuffled_starts[0::2], shuffled_starts[1::2], strict=False):
        new_words[first : first + length] = words[second : second + length]
        new_words[second : second + length] = words[first : first + length]
    return new_words


def next_sentences(
    document_ids: Indices, *, rng: np.random.Generator, reach: int = 1
) -> tuple[Indices, Indices]:
    """Pair every sentence with one of the next of its document (SimCSE's next-sentence objectives).

    Args:
        document_ids: The number of each sentence's document, (n,); the sentences of a document are
            consecutive and in order.
        rng: The generator of all draws.
        reach: The number of next sentences of which one is drawn, 1 and 3 in the paper; near the
            end of a document there are fewer.

    Returns:
        The indices (m,) of the first sentences of the pairs, and those of the second ones. The
        last sentence of a document is no first sentence.
    """
    n_sentences = len(document_ids)
    last_rows = np.zeros(0, np.int64)
    if n_sentences:
        ends_document = np.append(document_ids[1:] != document_ids[:-1], True)
        last_rows = np.flatnonzero(ends_document)
    document_lengths = np.diff(last_rows, prepend=-1)
    # For each sentence the index of the last sentence of its document.
    last_row_of_document = np.repeat(last_rows, document_lengths)
    n_following = last_row_of_document - np.arange(n_sentences)
    n_choices = np.minimum(n_following, reach)  # 0 for the last sentence
    first_sentences = np.flatnonzero(n_choices)
    # A draw of 0 is the next sentence.
    second_sentences = first_sentences + 1 + rng.integers(n_choices[first_sentences])
    return first_sentences, second_sentences


def _number_in_share(words: Sequence[str], rate: float) -> int:
    """Return the number of words in a share of them, rounded down."""
    # 0.29 of 100 words is 29, though the product of the floats falls short of it.
    return int(len(words) * rate + 1e-9)


def _number_to_delete(words: Sequence[str], rate: float) -> int:
    """Return the number of words to delete: a share rounded down, but never all of them."""
    return max(0, min(_number_in_share(words, rate), len(words) - 1))


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
    n_spans = min(max_spans, max(0, max_words) // length) if rate else 0
    # Imagine each span shrunk to one word. In the shorter sentence a set of spans is a set of
    # words, which is drawn here.
    n_shrunk_words = len(words) - n_spans * (length - 1)
    shrunk_starts = np.sort(rng.choice(n_shrunk_words, n_spans, replace=False))
    # When the spans regain their length, each moves all later ones by ``length - 1`` words.
    starts = shrunk_starts + np.arange(n_spans) * (length - 1)
    return starts, length


def load_synonyms(source: str) -> Synonyms:
    """Return a function from a word in lower case to its synonyms; it has none for unknown words.

    The synonyms come from WordNet, through the library nltk, or from a table of the user. In
    WordNet they are the other single words of every set of synonyms (synset) that contains the word
    or its base form. Words of one letter and function words have none: WordNet knows "a" only as a
    vitamin.

    Args:
        source: ``wordnet``, or the path of a table: a file with a word and its synonyms on each
            line, separated by tabs. The word may be in any case.

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
            # A word may be on several lines. Each synonym once, without the word itself (in any
            # case) and empty columns: a tuple, in their order.
            all_synonyms = [*table.get(word.lower(), ()), *synonyms]
            table[word.lower()] = _distinct_without(word, all_synonyms)
        return lambda word: table.get(word, ())
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    wordnet = _load_wordnet()

    @cache
    def find_synonyms(word: str) -> Sequence[str]:
        """Return a word's synonyms in WordNet, without the word itself; empty if there are none."""
        # Of function words WordNet knows only unlikely senses.
        if len(word) < 2 or word in ENGLISH_STOP_WORDS:
            return ()
        # A synset is a set of synonyms; an underscore in a name divides several words.
        lemmas = [
            lemma
            for synset in wordnet.synsets(word)
            for lemma in synset.lemma_names()
            if "_" not in lemma
        ]
        return _distinct_without(word, lemmas)

    return find_synonyms


def _distinct_without(word: str, candidates: Iterable[str]) -> tuple[str, ...]:
    """Return the candidates that are not the word itself, each once, in order."""
    return tuple(
        dict.fromkeys(
            candidate for candidate in candidates if candidate and candidate.lower() != word.lower()
        )
    )


def _load_wordnet() -> Any:  # noqa: ANN401 - nltk has no types
    """Load the English WordNet, a dictionary of synonyms, through the library nltk.

    Returns:
        A corpus reader of nltk; its method ``synsets`` finds a word's sets of synonyms.

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
    # The data may be a folder, or the archive that nltk's downloader leaves.
    for resource in ("corpora/wordnet", "corpora/wordnet.zip/wordnet/"):
        try:
            folder = nltk.data.find(resource)
        except LookupError:
            continue
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The multilingual functions")
            # A subclass whose ``map_wn`` does nothing: nltk's would spend seconds on the wordnets
            # of other languages, which are not read here.
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
        """Load a masked language model and find the whole words in its vocabulary.

        Args:
            model: The folder of a checkpoint, or its name on the Hugging Face Hub.
            device: The device to compute on; ``auto`` chooses one.

        Raises:
            EncoderError: The checkpoint is no masked language model.
            SourceError: It is not available.
        """
        checkpoint = find_checkpoint(model)
        self.tokenizer, masked_model = load_masked_language_model(checkpoint)
        self.device = open_device(device)
        self.model = masked_model.eval().to(self.device)
        # In tokens; None if the model has no longest input.
        self.max_length = checkpoint.max_length()
        # The word of each token id, letters and digits only; empty for a token that is no word.
        self.words: list[str] = whole_words(self.tokenizer, masked_model.config.vocab_size)
        self.is_no_word = torch.tensor([not word for word in self.words], device=self.device)

    def __call__(self, words: Sequence[str], positions: Sequence[int]) -> list[str]:
        """Return the model's likeliest new word for each position; all are masked at once.

        A new word differs from the old one by more than case.

        Args:
            words: The words of a sentence.
            positions: The positions of the words to replace, rising.

        Returns:
            A word for each position; the old one if it is beyond the model's longest input.
        """
        mask_token = self.tokenizer.mask_token
        # A mask in the sentence itself stands for no position.
        masked = [word.replace(mask_token, " ") for word in words]
        for position in positions:
            masked[position] = mask_token
        batch = self.tokenizer(
            " ".join(masked),
            truncation=self.max_length is not None,
            max_length=self.max_length,
            return_tensors="pt",
        ).to(self.device)
        is_masked = batch["input_ids"][0] == self.tokenizer.mask_token_id
        with torch.inference_mode():
            logits = self.model(**batch).logits[0, is_masked]  # (masks, vocabulary)
            # Only tokens that are whole words can be drawn; ``self.words`` holds their words.
            logits = logits.masked_fill(self.is_no_word, -torch.inf)
        # For each mask its likeliest tokens. Eight are enough: among them is always a word that
        # differs from the old one by more than case.
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
    """Return the tokenizer and the model of a masked language model's checkpoint, on the CPU.

    Args:
        checkpoint: The checkpoint of a masked language model, with its head.

    Raises:
        EncoderError: The checkpoint is no masked language model.
    """
    tokenizer = load_tokenizer(checkpoint)
    # ``missing`` are the names of the weights that the checkpoint lacks.
    model, missing = load_model(transformers.AutoModelForMaskedLM, checkpoint, dtype="float32")
    if missing or tokenizer.mask_token_id is None:
        problem = (
            f"the weights lack '{missing[0]}'" if missing else "its tokenizer has no mask token"
        )
        raise EncoderError(f"{checkpoint.folder}: no masked language model: {problem}")
    return tokenizer, model


def whole_words(tokenizer: Any, vocabulary_size: int) -> list[str]:  # noqa: ANN401 - transformers is untyped
    """Return for each token id the word that the token is, or "" if it is no whole word.

    Special tokens, parts of words and punctuation are no whole words. Vocabularies mark either the
    tokens that begin a word (RoBERTa's ``Ġ``, SentencePiece's ``▁``: ``WORD_STARTS``) or those that
    continue one (BERT's ``##``).

    Args:
        tokenizer: A tokenizer of transformers.
        vocabulary_size: The number of token ids in the model, which may exceed the tokenizer's
            number of tokens; the further ids are no words.
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
