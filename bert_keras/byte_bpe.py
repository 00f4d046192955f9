"""Byte-level BPE, the tokenization of GPT-2 and RoBERTa, by the `tokenizers` library.

A text is cut by GPT-2's pattern into words with their leading space, their UTF-8 bytes are written as 256 printable
characters ("Ġ" is the space), and a list of merges, in order, joins them. Every text has a tokenization, and no token
is ever unknown. `graph_byte_bpe.GraphByteBpe` is the same in a graph.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from bert_keras.tokenization import EncodedTexts

# RoBERTa's, in the order of its ids.
SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
SPACE = "Ġ"
# What GPT-2's pattern tells apart: letters, numbers and white space, each by the pattern of what it is not.
LETTER, NUMBER, WHITE_SPACE = 1, 2, 3
_NOT_OF_CLASS = {LETTER: r"\P{L}+", NUMBER: r"\P{N}+", WHITE_SPACE: r"\S+"}
_TEXTS_AT_A_TIME = 1000
_CODE_POINTS, _PAGE = 0x110000, 0x100


def words(texts: Iterable[str]) -> Iterator[str]:
    """The words that GPT-2's pattern cuts texts into, in the 256 characters for bytes: "a cat" -> "a", "Ġcat"."""
    split = _pre_tokenizer().pre_tokenize_str
    for text in texts:
        yield from (word for word, _ in split(text))


@functools.cache
def _pre_tokenizer():
    from tokenizers import pre_tokenizers

    return pre_tokenizers.ByteLevel(add_prefix_space=False)


@functools.cache
def character_classes() -> np.ndarray:
    """int8 [0x110000]: what each code point is to GPT-2's pattern (0: nothing of that), by the library itself.

    So what is served cuts words as what was trained, whatever Unicode the library knows.
    """
    from tokenizers import Regex, pre_tokenizers

    classes = np.zeros(_CODE_POINTS, np.int8)
    for number, others in _NOT_OF_CLASS.items():
        found = pre_tokenizers.Split(Regex(others), "removed")
        # In small parts: the library takes more than twice as long for twice the text.
        for first in range(0, _CODE_POINTS, _PAGE):
            if 0xD800 <= first <= 0xDFFF:  # surrogates are no characters
                continue
            for _, (start, end) in found.pre_tokenize_str("".join(map(chr, range(first, first + _PAGE)))):
                classes[first + start : first + end] = number
    return classes


def spaces_around(vocabulary: Sequence[str]) -> np.ndarray:
    """int64 [V, 2]: how many spaces each token begins and ends with; of spaces alone none."""
    bare = [token.strip(SPACE) for token in vocabulary]
    ends = [
        (token.index(rest), len(token) - token.index(rest) - len(rest)) if rest else (0, 0)
        for token, rest in zip(vocabulary, bare, strict=True)
    ]
    return np.array(ends, np.int64).reshape(-1, 2)


def check_order(merges: Sequence[tuple[str, str]]) -> None:
    """ValueError if a merge makes a token that an earlier one takes; so no algorithm learns them.

    Then the pieces of a word depend on which of two equal pairs is merged first, and the graph merges them at once.
    """
    takes: dict[str, int] = {}
    for number, token in ((n, token) for n, merge in enumerate(merges, 1) for token in merge):
        takes.setdefault(token, number)
    for number, (left, right) in enumerate(merges, 1):
        if takes.get(left + right, number) < number:
            raise ValueError(
                f"merge {number} makes {left + right!r}, which merge {takes[left + right]} takes already; give the "
                "merges in the order in which they were learned"
            )


class ByteBpeTokenizer:
    """GPT-2's encoder with RoBERTa's special tokens; it is a `bert_keras.tokenization.Tokenizer`.

    Special tokens in a text are text, as in fairseq. Pairs are <s> a </s></s> b </s>, without segments (FACTS D10).

    Args:
        vocabulary: a token for each id.
        merges: pairs of tokens, the first to be merged first: ("Ġ", "t").

    Raises:
        ValueError: a duplicate or missing token; names it.
    """

    pair_separators, has_segments, words_stand_alone = 2, False, False

    def __init__(self, vocabulary: Sequence[str], merges: Sequence[tuple[str, str]]):
        self.vocabulary = tuple(vocabulary)
        self.merges = tuple((left, right) for left, right in merges)
        ids = {token: i for i, token in enumerate(self.vocabulary)}
        if len(ids) < len(self.vocabulary):
            twice = next(token for i, token in enumerate(self.vocabulary) if ids[token] != i)
            raise ValueError(f"the vocabulary has the token {twice!r} twice; every line of vocab.txt must differ")
        missing = [token for token in (*SPECIAL_TOKENS, *byte_alphabet()) if token not in ids]
        if missing:
            raise ValueError(
                f"the vocabulary of {len(ids)} tokens lacks {', '.join(missing[:5])}; byte-level BPE needs all of "
                f"{', '.join(SPECIAL_TOKENS)} and the 256 characters for bytes"
            )
        self.cls_id, self.pad_id, self.sep_id, self.unk_id, self.mask_id = (ids[token] for token in SPECIAL_TOKENS)
        self._encode = _encoder(ids, self.merges)

    def __reduce__(self):
        # Without the library's object: Beam ships this to every worker.
        return ByteBpeTokenizer, (self.vocabulary, self.merges)

    @functools.cached_property
    def continues_word(self) -> np.ndarray:
        """Bool [V]: the token continues the word before it; it does not begin with a space and is not special."""
        return np.array([not token.startswith(SPACE) and token not in SPECIAL_TOKENS for token in self.vocabulary])

    def tokenize(self, text: str) -> list[str]:
        """The tokens of one text."""
        return [self.vocabulary[i] for i in self.encode([text])[0]]

    def encode(self, texts: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
        """Ids of the tokens of many texts, without special tokens.

        Returns:
            ids: int32 [tokens]; those of texts[i] are ids[row_splits[i]:row_splits[i + 1]].
            row_splits: int64 [texts + 1].

        Raises:
            TypeError: `texts` is one str.
        """
        ids, lengths = [np.zeros(0, np.int32)], [0]
        for encoding in self._encodings(texts):
            ids.append(np.array(encoding.ids, np.int32))
            lengths.append(len(encoding.ids))
        return np.concatenate(ids), np.cumsum(lengths, dtype=np.int64)

    def encode_words(self, words: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
        """`encode` of words that stand in a text with a space before each, the first too.

        So does Hugging Face, with `add_prefix_space`: the pieces of a word hold that space.
        """
        return self.encode(f" {word}" for word in words)

    def encode_with_offsets(self, texts: Iterable[str]) -> EncodedTexts:
        """The pieces of `encode`, and the characters that each comes from, without the spaces at its ends.

        A piece of spaces alone comes from them; one of a part of a character's bytes, from that character.
        """
        ids, lengths, places = [np.zeros(0, np.int32)], [0], [np.zeros((0, 2), np.int64)]
        for encoding in self._encodings(texts):
            ids.append(np.array(encoding.ids, np.int32))
            lengths.append(len(encoding.ids))
            places.append(np.array(encoding.offsets, np.int64).reshape(-1, 2))
        of_all = np.concatenate(ids)
        starts, ends = (np.concatenate(places) + self._spaces[of_all] * [1, -1]).T
        return EncodedTexts(of_all, np.cumsum(lengths, dtype=np.int64), starts, ends)

    @functools.cached_property
    def _spaces(self) -> np.ndarray:
        return spaces_around(self.vocabulary)

    def _encodings(self, texts: Iterable[str]) -> Iterator:
        """The library's, of each text."""
        if isinstance(texts, str):
            raise TypeError("encode takes an iterable of str, not one str; use encode([text])")
        # The library takes UTF-8 alone: a lone surrogate is no character.
        clean = (text.encode("utf-8", "replace").decode() for text in texts)
        while chunk := list(itertools.islice(clean, _TEXTS_AT_A_TIME)):
            yield from self._encode(chunk, add_special_tokens=False)


def byte_alphabet() -> list[str]:
    """The 256 characters for bytes, by code point."""
    return sorted(_pre_tokenizer().alphabet())


def byte_characters() -> list[str]:
    """The 256 characters for bytes, by byte: those that print are themselves, the others come from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = itertools.count(0x100)
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def _encoder(ids: dict[str, int], merges: Sequence[tuple[str, str]]):
    from tokenizers import Tokenizer, models

    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=list(merges)))
    tokenizer.pre_tokenizer = _pre_tokenizer()
    return tokenizer.encode_batch
