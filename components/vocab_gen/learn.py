"""Learns a vocabulary from word counts with the trainers of the `tokenizers` library."""

import hashlib
import io
import json
import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from bert_keras.errors import InputError
from bert_keras.tokenizers import byte_bpe
from bert_keras.tokenizers.sentencepiece import SPACE, model_with_ids
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, UNK, BertTokenizer
from bert_keras.tokenizers.wordpiece_extension import choose_words, extend
from components.vocab_gen.settings import VocabularySettings

# The trainer takes text, not counts: counts are scaled down to at most this many words.
MAX_WORDS_SHOWN = 50_000_000
WORDS_A_LINE = 10_000
_TRAINER: dict[str, Any] = {"min_frequency": 1, "show_progress": False}
# For byte-level BPE, whose trainer takes some 105 bytes of memory for each byte of a distinct word, and for one word a
# time that grows with the square of its length: longer words are cut.
MAX_BYTES_LEARNED = 20_000_000
MAX_WORD_BYTES = 1000


def least_count(total: int, settings: VocabularySettings, parts: int = 1) -> int:
    """Minimum count of a word to learn from, in a text of `total` words, or parts of a word.

    Rarer words, scaled down, would occur less than half a time in the trainer's text. Rounded up to once, they would be
    a third of it for 3e10 words, although they are a hundredth of the corpus. At most 2 * MAX_WORDS_SHOWN words reach
    the minimum, however long the text is.
    """
    minimum = settings.min_word_count if settings.algorithm == "wordpiece" else 1
    return max(minimum, -(-total // (2 * MAX_WORDS_SHOWN * parts)))


def sample(counts: Mapping[str, int], threshold: int, key: str = "") -> Iterator[tuple[str, int]]:
    """Words and counts; no more than total / `threshold` are expected, and the total stays in the mean.

    A word with a lower count is left out, or has the count `threshold`, with the probability count / threshold. Draws
    are hashes of the word and `key`.
    """
    for word, count in counts.items():
        if count >= threshold:
            yield word, count
        elif int(hashlib.blake2b(f"{key} {word}".encode(), digest_size=7).hexdigest(), 16) < (count << 56) // threshold:
            yield word, threshold


def learn_wordpiece(
    counts: Mapping[str, int], vocab_size: int, settings: VocabularySettings, *, exact: bool
) -> list[str]:
    """Learn a WordPiece vocabulary of `vocab_size` tokens from counted basic tokens, the same for the same counts.

    In order: special tokens, the alphabet, its "##x", then wordpieces in the order of learning, the most useful first.
    InputError: the words need more tokens for their characters alone, or yield fewer and it must be `exact`.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    words = _frequent(counts, settings)
    alphabet = _alphabet(words, settings.character_coverage)
    words = {w: c for w, c in words.items() if alphabet.issuperset(w)}
    # Passed as special tokens, in a fixed order: otherwise the trainer numbers the "##x" in the order of a hash map
    # with a random seed, and breaks ties between merges by these numbers.
    inside = {f"##{character}" for word in words for character in word[1:]}
    pieces = [*SPECIAL_TOKENS, *sorted(alphabet), *sorted(inside)]
    if len(pieces) > vocab_size:
        raise InputError(
            f"the corpus needs a vocabulary of {len(pieces):,} tokens for its {len(alphabet):,} characters alone, "
            f"but vocab_size is {vocab_size:,}: --set model.vocab_size={len(pieces)} (--vocab-size of bert-tfx "
            "examples) or more, or a smaller vocabulary.character_coverage"
        )
    tokenizer = Tokenizer(models.WordPiece(unk_token=UNK))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size, special_tokens=pieces, limit_alphabet=max(1, len(alphabet)), **_TRAINER
    )
    tokenizer.train_from_iterator(_lines(words), trainer)
    ids = tokenizer.get_vocab()
    vocabulary = sorted(ids, key=ids.__getitem__)
    _check_size(len(vocabulary), vocab_size, len(words), exact)
    return vocabulary


def add_words(
    counts: Mapping[str, int], initial: BertTokenizer, settings: VocabularySettings
) -> tuple[list[str], dict[str, float]]:
    """Add `settings.extend` words to a vocabulary, the same for the same counts; InputError if fewer save a token.

    Returns the vocabulary, and tokens per word of the counted text before and after.
    """
    words = _frequent(counts, settings)
    chosen = choose_words(words, initial, settings.extend)
    if len(chosen) < settings.extend:
        raise InputError(
            f"the corpus has only {len(chosen):,} words that the vocabulary cuts into several tokens and that occur at "
            f"least {least_count(sum(counts.values()), settings)} times: --set vocabulary.extend={len(chosen)} or less"
        )
    vocabulary = extend(initial.vocabulary, chosen)
    after = BertTokenizer(vocabulary, **initial.normalization.fields)
    rates = {"tokens_per_word_before": initial, "tokens_per_word": after}
    return vocabulary, {name: _tokens_per_word(words, tokenizer) for name, tokenizer in rates.items()}


def _tokens_per_word(counts: Mapping[str, int], tokenizer: BertTokenizer) -> float:
    _, splits = tokenizer.wordpiece_ids(list(counts))
    tokens = sum(map(operator.mul, counts.values(), np.diff(splits).tolist()))
    return round(tokens / max(1, sum(counts.values())), 4)


def learn_byte_bpe(
    counts: Mapping[str, int], vocab_size: int, settings: VocabularySettings, *, exact: bool
) -> tuple[list[str], list[tuple[str, str]]]:
    """Learn a byte-level BPE vocabulary of `vocab_size` tokens and its merges, the same for the same counts.

    In order: special tokens, the 256 characters for bytes, then tokens in the order of learning. Errors as in
    `learn_wordpiece`; words are those of `bert_keras.tokenizers.byte_bpe.words`.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    words = _bounded(_frequent(counts, settings))
    needed = len(byte_bpe.SPECIAL_TOKENS) + len(byte_bpe.byte_alphabet())
    if vocab_size < needed:
        raise InputError(f"byte-level BPE needs at least {needed} tokens for its bytes, but vocab_size is {vocab_size}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = [*byte_bpe.SPECIAL_TOKENS, *byte_bpe.byte_alphabet()]
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=special, **_TRAINER)
    tokenizer.train_from_iterator(_lines(words), trainer)
    # The library exposes merges only in its own format.
    model = json.loads(tokenizer.to_str())["model"]
    vocabulary = sorted(model["vocab"], key=model["vocab"].__getitem__)
    _check_size(len(vocabulary), vocab_size, len(words), exact)
    return vocabulary, [tuple(pair.split(" ") if isinstance(pair, str) else pair) for pair in model["merges"]]


def learn_sentencepiece(
    counts: Mapping[str, int], vocab_size: int, settings: VocabularySettings, *, exact: bool
) -> bytes:
    """Learn a SentencePiece model of `vocab_size` pieces, the same for the same counts; errors as in `learn_wordpiece`.

    Its options are those of ALBERT's (google-research/albert, README.md). The words are those between blanks: within
    them it learns its pieces from sentences, too.
    """
    import sentencepiece
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

    def trained(lines: Iterable[str], **options: Any) -> ModelProto:
        written = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=written, hard_vocab_limit=False, minloglevel=2, **options
        )
        return ModelProto.FromString(written.getvalue())

    # Only a trained model has the table of replacements.
    rules = trained("a", model_type="char", normalization_rule_name="nmt_nfkc")
    folding = settings.lower_case, not settings.normalization.strip_accents
    folds = ModelProto(pieces=rules.pieces, normalizer_spec=rules.normalizer_spec)
    normalizer = sentencepiece.SentencePieceNormalizer(
        model_proto=model_with_ids(folds.SerializeToString(), "albert", *folding)
    )
    folded: Counter[str] = Counter()
    for text, count in zip(normalizer.normalize(list(counts)), counts.values(), strict=True):
        for word in text.replace(SPACE, " ").split():
            folded[word] += count
    words = sorted(_bounded(folded).items())
    _check_size(len(words), 1, 0, exact=True)
    try:
        model = trained(
            (f"{word}\t{count}" for word, count in words),
            input_format="tsv",
            vocab_size=vocab_size,
            character_coverage=settings.character_coverage,
            **{"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1},
            control_symbols=["[CLS]", "[SEP]", "[MASK]"],
            user_defined_symbols=[*'()"-.\u2013£€'],
            normalization_rule_name="identity",  # the words are folded
            num_threads=16,  # the rounding of sums depends on it
        )
    except RuntimeError as error:
        needed = str(error).partition(" vs ")[2].partition(".")[0]
        if not needed:
            raise
        raise InputError(
            f"the corpus needs a vocabulary of {needed} tokens for its characters alone, but vocab_size is "
            f"{vocab_size:,}: --set model.vocab_size={needed} (--vocab-size of bert-tfx examples) or more, or a "
            "smaller vocabulary.character_coverage"
        ) from error
    _check_size(len(model.pieces), vocab_size, len(words), exact)
    model.normalizer_spec.CopyFrom(rules.normalizer_spec)
    return model_with_ids(model.SerializeToString(), "albert", *folding)


def _frequent(counts: Mapping[str, int], settings: VocabularySettings) -> dict[str, int]:
    least = least_count(sum(counts.values()), settings)
    return {word: count for word, count in counts.items() if count >= least}


def _bounded(counts: Mapping[str, int]) -> dict[str, int]:
    """Cut long words, and of very many words draw a sample, to bound the memory and time of the trainer of BPE."""
    cut: Counter[str] = Counter()
    for word, count in counts.items():
        for start in range(0, len(word), MAX_WORD_BYTES):
            cut[word[start : start + MAX_WORD_BYTES]] += count
    threshold = 1
    while sum(len(word) * min(1.0, count / threshold) for word, count in cut.items()) > MAX_BYTES_LEARNED:
        threshold *= 2
    return dict(sample(cut, threshold))


def _check_size(size: int, wanted: int, num_words: int, exact: bool) -> None:
    if exact and size < wanted:
        raise InputError(
            f"the corpus supports a vocabulary of {size:,} tokens ({num_words:,} distinct words), "
            f"but vocab_size is {wanted:,}: give more text, or --set model.vocab_size={size} or less"
        )


def _alphabet(words: Mapping[str, int], coverage: float) -> set[str]:
    """Fewest characters that cover this share of the text; ties are broken by code point."""
    characters: dict[str, int] = {}
    for word, count in words.items():
        for character in word:
            characters[character] = characters.get(character, 0) + count
    uncovered = sum(characters.values()) * coverage
    alphabet: set[str] = set()
    for character in sorted(characters, key=lambda c: (-characters[c], c)):
        if uncovered <= 0:
            break
        alphabet.add(character)
        uncovered -= characters[character]
    return alphabet


def _lines(words: Mapping[str, int]) -> Iterator[str]:
    """Text in which every word occurs as often as counted (scaled, at least once)."""
    scale = min(1.0, MAX_WORDS_SHOWN / max(1, sum(words.values())))
    for word, count in words.items():
        copies = max(1, round(count * scale))
        for start in range(0, copies, WORDS_A_LINE):
            yield f"{word} " * min(copies - start, WORDS_A_LINE)
