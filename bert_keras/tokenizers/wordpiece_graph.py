"""BERT's tokenization as a TensorFlow graph, for the SavedModel; token for token equal to `BertTokenizer`.

Both apply the frozen tables of `unicode_tables`. The graph consists of TensorFlow's own ops and the oldest op of
TensorFlow Text, `WordpieceTokenizeWithOffsets`, because TF Serving binaries often lack the newer ones.

Legend: B texts, N code points in all texts, M code points after normalization, W words.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_text

from bert_keras.tokenizers import unicode_tables as ut
from bert_keras.tokenizers.protocol import FORMATS
from bert_keras.tokenizers.wordpiece import MAX_CHARS_PER_WORD, SUFFIX_INDICATOR, check_unique
from bert_keras.tokenizers.wordpiece_offsets import token_lengths

_PAGE_MASK = ut.PAGE_SIZE - 1


def _paged_gather(pages: np.ndarray, index: np.ndarray, code_points: tf.Tensor) -> tf.Tensor:
    page = tf.gather(index, tf.bitwise.right_shift(code_points, ut.PAGE_BITS))
    rows = pages.reshape(-1, *pages.shape[2:])
    return tf.gather(rows, page * ut.PAGE_SIZE + tf.bitwise.bitwise_and(code_points, _PAGE_MASK))


def _has(kind: tf.Tensor, bit: int) -> tf.Tensor:
    return tf.bitwise.bitwise_and(kind, bit) != 0


def _overwrite(tensor: tf.Tensor, places: tf.Tensor, value: int) -> tf.Tensor:
    """`tensor` [N] with `value` at `places` int64 [any shape]."""
    places = tf.reshape(places, [-1, 1])
    return tf.tensor_scatter_nd_update(tensor, places, tf.fill(tf.shape(places)[:1], value))


def _final_sigma(code_points: tf.Tensor, kind: tf.Tensor) -> tf.Tensor:
    """`normalize._final_sigma` in TensorFlow."""
    relevant = tf.where(~_has(kind, ut.IGNORABLE))[:, 0]
    bits = tf.gather(kind, relevant)
    cased = tf.pad(_has(bits, ut.CASED), [[1, 1]])
    final = _has(bits, ut.SIGMA) & cased[:-2] & ~cased[2:]
    return _overwrite(code_points, tf.boolean_mask(relevant, final), ut.FINAL_SIGMA)


def _order_marks(
    output: tf.Tensor, source: tf.Tensor, kind: tf.Tensor, table: ut.FoldTable
) -> tuple[tf.Tensor, tf.Tensor]:
    """`normalize._order_marks` in TensorFlow; returns `output` and `source` in the new order."""
    run = tf.cumsum(tf.cast(_has(kind, ut.STARTER), tf.int64))
    places = tf.where(tf.gather(_has(kind, ut.MARK), source))[:, 0]
    marks = tf.gather(output, places)
    classes = tf.reduce_sum(tf.where(marks[:, None] == table.marks, table.mark_classes, 0), axis=1)
    run = tf.gather(run, tf.gather(source, places))
    # Combining classes end at 254.
    order = tf.argsort(run * 256 + tf.cast(classes, tf.int64), stable=True)
    moved = tf.gather(places, order)
    return tuple(tf.tensor_scatter_nd_update(x, places[:, None], tf.gather(x, moved)) for x in (output, source))


def char_class(code_points: tf.Tensor, table: ut.FoldTable) -> tf.Tensor:
    """`kind` bits (`unicode_tables`) of code points int32 [N]."""
    return tf.cast(_paged_gather(table.kind_pages, table.kind_index, code_points), tf.int32)


def _offsets(code_points: tf.Tensor, table: ut.FoldTable) -> tf.Tensor:
    """int32 [N, 3]: the differences between each code point and those of its replacement."""
    return _paged_gather(table.offset_pages, table.offset_index, code_points)


def is_space(code_points: tf.Tensor) -> tf.Tensor:
    """Bool [N]: code points int32 [N] are white space to the original, which replaces them by a space."""
    table = ut.fold_table(lower_case=False)
    length = tf.bitwise.bitwise_and(char_class(code_points, table), ut.LENGTH_MASK)
    offset = _offsets(code_points, table)[:, 0]
    return (length == 1) & (code_points + offset == ut.SPACE)


def is_punctuation(code_points: tf.Tensor) -> tf.Tensor:
    """Bool [N]: code points int32 [N] are punctuation to the original."""
    blocks = tf.constant(ut.IDEOGRAPH_BLOCKS)
    ideograph = (code_points[:, None] >= blocks[:, 0]) & (code_points[:, None] <= blocks[:, 1])
    isolated = _has(char_class(code_points, ut.fold_table(lower_case=False)), ut.ISOLATED)
    return isolated & ~tf.reduce_any(ideograph, axis=1)


def utf8_length(code_points: tf.Tensor) -> tf.Tensor:
    """Bytes of each code point, int64."""
    return 1 + sum(tf.cast(code_points >= first, tf.int64) for first in (0x80, 0x800, 0x10000))


class _Words(NamedTuple):
    """Words of texts."""

    texts: tf.Tensor  # string [W], normalized
    starts: tf.Tensor  # int64 [W], first code point of each
    sizes: tf.Tensor  # int64 [W], number of letters after normalization
    source: tf.Tensor  # int64 [letters], the code point that each letter comes from


class GraphTokens(NamedTuple):
    """Tokens of texts with their offsets."""

    ids: tf.RaggedTensor  # int32 [B, (tokens)]
    starts: tf.Tensor  # int64 [tokens], for all texts in order: first character of each, counted in its decoded text
    ends: tf.Tensor  # int64 [tokens], one past the last character
    byte_starts: tf.Tensor  # int64 [tokens], as `starts`, in bytes of the input text
    byte_ends: tf.Tensor  # int64 [tokens]


class GraphTokenizer(tf.Module):
    """Texts to wordpiece ids, in a graph that `tf.saved_model.save` stores without any other file.

    Equal to `BertTokenizer.encode` of `bytes.decode("utf-8", "ignore")`: bytes that are not UTF-8 are
    skipped, as in the original. One exception: a word with one of Unicode's 66 noncharacters (U+FFFF, ...),
    which TensorFlow does not write as UTF-8, is always "[UNK]", even if the vocabulary has such wordpieces.

    Args:
        vocabulary: one token per id. ValueError for a duplicate and for a missing special token.
        lower_case: with `further` as in `BertTokenizer`.
        preserve: a token of the vocabulary, "[MASK]", that stays whole in a text; the text between is tokenized
            separately. The original splits it into "[", "mask", "]". "": none.
        unknown: the token for a word that the vocabulary lacks.
    """

    def __init__(
        self,
        vocabulary: Sequence[str],
        lower_case: bool,
        preserve: str = "",
        unknown: str = FORMATS["bert"].unk,
        **further: Any,
    ):
        super().__init__()
        if unknown not in check_unique(vocabulary):
            raise ValueError(f"the vocabulary of {len(vocabulary)} tokens lacks {unknown}")
        self._vocabulary, self._unknown, self._preserve = tuple(vocabulary), unknown, preserve
        self._rules = ut.Normalization(lower_case, **further)
        self._table = ut.fold_table(**self._rules.fields)
        # U+FFFD in a word stands for a noncharacter (see above); a text's own U+FFFD is deleted.
        ids = {token: i for i, token in enumerate(vocabulary) if "\ufffd" not in token}
        entries = tf.lookup.KeyValueTensorInitializer(list(ids), list(ids.values()), tf.string, tf.int64)
        self._ids = tf.lookup.StaticHashTable(entries, default_value=-1)
        self._wordpiece = tensorflow_text.WordpieceTokenizer(
            self._ids,
            suffix_indicator=SUFFIX_INDICATOR,
            max_bytes_per_word=1 << 20,  # never reached: _split_words applies the limit, in characters
            max_chars_per_token=max(map(len, ids)),
            token_out_type=tf.int32,
            unknown_token=unknown,
        )

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Token ids int32 [B, (tokens)] of `texts` string [B], UTF-8, without special tokens."""
        # Strings live on the CPU; the small ops between them must not move to a GPU and back.
        with tf.device("CPU:0"):
            # Neither words nor rules cross the line end that is added to each text.
            decoded = tf.strings.unicode_decode(tf.strings.join([texts, "\n"]), "UTF-8", errors="ignore")
            words = self._split_words(decoded.values)
            return self._wordpiece_ids(words, decoded.row_splits).merge_dims(1, 2)

    def with_offsets(self, texts: tf.Tensor) -> GraphTokens:
        """Tokens and offsets of `texts` string [B], if none is preserved; equal to `encode_with_offsets` there."""
        with tf.device("CPU:0"):
            texts = tf.strings.join([texts, "\n"])
            decoded, at_byte = tf.strings.unicode_decode_with_offsets(texts, "UTF-8", errors="ignore")
            code_points = decoded.values
            words = self._split_words(code_points)
            by_word = self._wordpiece_ids(words, decoded.row_splits)
            ids, word = by_word.values.values, by_word.values.value_rowids()
            # Tokens in order use up all letters; an unknown word is one token.
            letters = tf.gather(tf.constant(token_lengths(self._vocabulary)), ids)
            letters = tf.where(ids == self._vocabulary.index(self._unknown), tf.gather(words.sizes, word), letters)
            token = tf.repeat(tf.range(tf.size(ids)), letters)  # [letters]
            starts = tf.math.segment_min(words.source, token)
            ends = tf.math.segment_max(tf.gather(self._ends(code_points), words.source), token)
            ragged = by_word.merge_dims(1, 2)
            text_start = tf.gather(decoded.row_starts(), ragged.value_rowids())
            last_bytes = tf.gather(at_byte.values, ends - 1) + utf8_length(tf.gather(code_points, ends - 1))
            return GraphTokens(
                ragged, starts - text_start, ends - text_start, tf.gather(at_byte.values, starts), last_bytes
            )

    def encode_words(self, words: tf.RaggedTensor) -> tf.RaggedTensor:
        """Token ids int32 [W, (tokens)] of words, each given as its code points, int32 [W, (code points)]."""
        with tf.device("CPU:0"):
            ended = tf.concat([words, tf.fill([words.nrows(), 1], ord("\n"))], axis=1)
            return self._wordpiece_ids(self._split_words(ended.values), ended.row_splits).merge_dims(1, 2)

    def _ends(self, code_points: tf.Tensor) -> tf.Tensor:
        """int64 [N]: the end of each code point, including the stripped accents that follow it."""
        ends = tf.range(1, tf.size(code_points, tf.int64) + 1)
        if not self._rules.strip_accents:
            return ends
        uncased, cased = (
            tf.bitwise.bitwise_and(char_class(code_points, ut.fold_table(lower_case)), ut.LENGTH_MASK)
            for lower_case in (True, False)
        )
        kept = tf.where(uncased > 0)[:, 0]
        marks = tf.where((uncased == 0) & (cased > 0))[:, 0]
        before = tf.searchsorted(kept, marks) - 1
        marks, before = tf.boolean_mask(marks, before >= 0), tf.boolean_mask(before, before >= 0)
        return tf.tensor_scatter_nd_max(ends, tf.gather(kept, before)[:, None], marks + 1)

    def _wordpiece_ids(self, words: _Words, text_splits: tf.Tensor) -> tf.RaggedTensor:
        """Ids int32 [B, (words), (tokens)]; the code points of text i begin at `text_splits[i]`, int64 [B + 1]."""
        # Looking up each prefix of a word is expensive; hashing a word is not.
        distinct, number = tf.unique(words.texts, out_idx=tf.int64)
        ids = tf.gather(self._wordpiece.tokenize(distinct), number)
        word_splits = tf.searchsorted(words.starts, text_splits, out_type=tf.int64)
        return tf.RaggedTensor.from_row_splits(ids, word_splits, validate=False)

    def _split_words(self, code_points: tf.Tensor) -> _Words:
        """Words of all texts in order, from their code points int32 [N]."""
        code_points, preserved = self._find_preserved(code_points)
        # A preserved token is one isolated sign, without effect on the rules for its neighbours.
        kind = tf.where(preserved, 1 | ut.ISOLATED | ut.STARTER, char_class(code_points, self._table))
        output, source = self._normalize(code_points, kind)

        alone = tf.gather(_has(kind, ut.ISOLATED), source)
        space = output == ut.SPACE
        after_break = tf.concat([[True], (space | alone)[:-1]], axis=0)
        letters = tf.where(~space)[:, 0]  # [letters]
        starts = tf.where(tf.gather(alone | after_break, letters))[:, 0]  # [W], in letters
        sizes = tf.concat([starts[1:], tf.size(letters, tf.int64)[None]], axis=0) - starts
        chars = tf.RaggedTensor.from_row_lengths(tf.gather(output, letters), sizes, validate=False)
        words = tf.strings.unicode_encode(chars, "UTF-8")

        words = tf.where(sizes > MAX_CHARS_PER_WORD, self._unknown, words)
        source = tf.gather(source, letters)
        starts = tf.gather(source, starts)
        texts = tf.where(tf.gather(preserved, starts), self._preserve, words)
        return _Words(texts, starts, sizes, source)

    def _find_preserved(self, code_points: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Code points [N], zeros (deleted later) at the preserved token, and bool [N]: true at its first code point."""
        preserved = tf.zeros_like(code_points, tf.bool)
        if not self._preserve:
            return code_points, preserved
        token = [ord(character) for character in self._preserve]
        padded = tf.pad(code_points, [[0, len(token)]])
        window = tf.where(code_points == token[0]) + np.arange(len(token))
        places = tf.boolean_mask(window, tf.reduce_all(tf.gather(padded, window) == token, axis=1))
        return _overwrite(code_points, places, 0), _overwrite(preserved, places[:, 0], True)

    def _normalize(self, code_points: tf.Tensor, kind: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Replace code points [N]: int32 [M], and int64 [M], the code point that each one comes from."""
        if self._rules.lower_case:
            code_points = _final_sigma(code_points, kind)
        offsets = _offsets(code_points, self._table)
        length = tf.bitwise.bitwise_and(kind, ut.LENGTH_MASK)
        places = tf.where(tf.sequence_mask(length, ut.MAX_LENGTH))  # [M, 2]
        source = places[:, 0]
        output = tf.gather_nd(code_points[:, None] + offsets, places)
        if self._rules.strip_accents:
            output, source = _order_marks(output, source, kind, self._table)
        return output, source
