"""Byte-level BPE, the tokenization of GPT-2 and RoBERTa, by the `tokenizers` library.

A text is cut by GPT-2's pattern into words with their leading space, their UTF-8 bytes are written as 256 printable
characters ("Ġ" is the space), and a list of merges, in order, joins them. Every text has a tokenization, and no token
is ever unknown.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

# RoBERTa's, in the order of its ids.
SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
SPACE = "Ġ"
_TEXTS_AT_A_TIME = 1000


def words(texts: Iterable[str]) -> Iterator[str]:
    """The words that GPT-2's pattern cuts texts into, in the 256 characters for bytes: "a cat" -> "a", "Ġcat"."""
    split = _pre_tokenizer().pre_tokenize_str
    for text in texts:
        yield from (word for word, _ in split(text))


@functools.cache
def _pre_tokenizer():
    from tokenizers import pre_tokenizers

    return pre_tokenizers.ByteLevel(add_prefix_space=False)


class ByteBpeTokenizer:
    """GPT-2's encoder with RoBERTa's special tokens; the interface is `bert_keras.tokenizer.BertTokenizer`'s.

    Special tokens in a text are text, as in fairseq.

    Args:
        vocabulary: a token for each id.
        merges: pairs of tokens, the first to be merged first: ("Ġ", "t").

    Raises:
        ValueError: a duplicate or missing token; names it.
    """

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
        if isinstance(texts, str):
            raise TypeError("encode takes an iterable of str, not one str; use encode([text])")
        ids, lengths = [np.zeros(0, np.int32)], [0]
        chunk: list[str] = []

        def flush() -> None:
            for encoding in self._encode(chunk, add_special_tokens=False):
                ids.append(np.array(encoding.ids, np.int32))
                lengths.append(len(encoding.ids))
            chunk.clear()

        for text in texts:
            # The library takes UTF-8 alone: a lone surrogate is no character.
            chunk.append(text.encode("utf-8", "replace").decode())
            if len(chunk) == _TEXTS_AT_A_TIME:
                flush()
        flush()
        return np.concatenate(ids), np.cumsum(lengths, dtype=np.int64)


def byte_alphabet() -> list[str]:
    """The 256 characters for bytes, by code point."""
    return sorted(_pre_tokenizer().alphabet())


def _encoder(ids: dict[str, int], merges: Sequence[tuple[str, str]]):
    from tokenizers import Tokenizer, models

    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=list(merges)))
    tokenizer.pre_tokenizer = _pre_tokenizer()
    return tokenizer.encode_batch
