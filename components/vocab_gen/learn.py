"""Word counts -> vocabulary, by the trainers of the `tokenizers` library."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from bert_keras import byte_bpe
from bert_keras.errors import InputError
from bert_keras.tokenizer import SPECIAL_TOKENS, UNK
from components.vocab_gen.settings import VocabularySettings

# The trainer takes text, not counts: counts are scaled down to at most this many words of it.
MAX_WORDS_SHOWN = 50_000_000
WORDS_A_LINE = 10_000


def learn_wordpiece(
    counts: Mapping[str, int], vocab_size: int, settings: VocabularySettings, *, exact: bool
) -> list[str]:
    """A WordPiece vocabulary of `vocab_size` tokens, the same for the same counts.

    In order: special tokens, the alphabet, its "##x", then pieces as they are learned, the most useful first.

    Args:
        counts: words, as basic tokenization gives them, and how often each occurred.
        exact: whether fewer tokens than asked for are an error.

    Raises:
        InputError: the words support fewer tokens, or need more for their characters alone.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    words = {w: c for w, c in counts.items() if c >= settings.min_word_count}
    alphabet = _alphabet(words, settings.character_coverage)
    words = {w: c for w, c in words.items() if alphabet.issuperset(w)}
    # Given as special, in a fixed order: left to itself, the trainer numbers the "##x" in the order of a hash map with
    # a random seed, and breaks ties between merges by these numbers.
    inside = {f"##{character}" for word in words for character in word[1:]}
    pieces = [*SPECIAL_TOKENS, *sorted(alphabet), *sorted(inside)]
    if len(pieces) > vocab_size:
        raise InputError(
            f"the corpus needs a vocabulary of {len(pieces):,} tokens for its {len(alphabet):,} characters alone, "
            f"{vocab_size:,} were asked for: --set model.vocab_size={len(pieces)} or more, or a smaller "
            "vocabulary.character_coverage"
        )
    tokenizer = Tokenizer(models.WordPiece(unk_token=UNK))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=1,
        special_tokens=pieces,
        limit_alphabet=max(1, len(alphabet)),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_lines(words), trainer)
    ids = tokenizer.get_vocab()
    vocabulary = sorted(ids, key=ids.__getitem__)
    _check_size(len(vocabulary), vocab_size, len(words), exact)
    return vocabulary


def learn_byte_bpe(
    counts: Mapping[str, int], vocab_size: int, settings: VocabularySettings, *, exact: bool
) -> tuple[list[str], list[tuple[str, str]]]:
    """A byte-level BPE vocabulary of `vocab_size` tokens and its merges, the same for the same counts.

    In order: special tokens, the 256 characters for bytes, then pieces as they are learned.

    Args and Raises: as `learn_wordpiece`; words are those of `bert_keras.byte_bpe.words`.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    words = {w: c for w, c in counts.items() if c >= settings.min_word_count}
    least = len(byte_bpe.SPECIAL_TOKENS) + len(byte_bpe.byte_alphabet())
    if vocab_size < least:
        raise InputError(f"byte-level BPE needs at least {least} tokens for its bytes, {vocab_size} were asked for")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=1,
        special_tokens=[*byte_bpe.SPECIAL_TOKENS, *byte_bpe.byte_alphabet()],
        show_progress=False,
    )
    tokenizer.train_from_iterator(_lines(words), trainer)
    # The library tells merges only in its own format.
    model = json.loads(tokenizer.to_str())["model"]
    vocabulary = sorted(model["vocab"], key=model["vocab"].__getitem__)
    _check_size(len(vocabulary), vocab_size, len(words), exact)
    return vocabulary, [tuple(pair.split(" ") if isinstance(pair, str) else pair) for pair in model["merges"]]


def _check_size(size: int, wanted: int, num_words: int, exact: bool) -> None:
    if exact and size < wanted:
        raise InputError(
            f"the corpus supports a vocabulary of {size:,} tokens ({num_words:,} distinct words), "
            f"{wanted:,} were asked for: give more text, or --set model.vocab_size={size} or less"
        )


def _alphabet(words: Mapping[str, int], coverage: float) -> set[str]:
    """The fewest characters that cover so much of the text; of equally frequent ones the first by code point."""
    characters: dict[str, int] = {}
    for word, count in words.items():
        for character in word:
            characters[character] = characters.get(character, 0) + count
    left = sum(characters.values()) * coverage
    alphabet: set[str] = set()
    for character in sorted(characters, key=lambda c: (-characters[c], c)):
        if left <= 0:
            break
        alphabet.add(character)
        left -= characters[character]
    return alphabet


def _lines(words: Mapping[str, int]) -> Iterator[str]:
    """Text in which every word occurs as often as counted (scaled, at least once)."""
    scale = min(1.0, MAX_WORDS_SHOWN / max(1, sum(words.values())))
    for word, count in words.items():
        left = max(1, round(count * scale))
        while left > 0:
            yield f"{word} " * min(left, WORDS_A_LINE)
            left -= WORDS_A_LINE
