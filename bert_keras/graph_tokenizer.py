"""BERT's tokenization as a TensorFlow graph, for the SavedModel, piece for piece that of `BertTokenizer`.

Both apply the frozen tables of `unicode_tables`. The graph consists of TensorFlow's own ops and the oldest of
TensorFlow Text, `WordpieceTokenizeWithOffsets`, because TF Serving binaries lag behind with the newer ones.

Legend: B texts, N code points in all texts, M code points after folding, W words.
"""

import re
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text

from bert_keras import unicode_tables as ut
from bert_keras.tokenizer import MAX_CHARS_PER_WORD, SUFFIX_INDICATOR, UNK, check_vocabulary

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
    """`tokenizer._final_sigma` in TensorFlow."""
    counted = tf.where(~_has(kind, ut.IGNORABLE))[:, 0]
    seen = tf.gather(kind, counted)
    cased = tf.pad(_has(seen, ut.CASED), [[1, 1]])
    final = _has(seen, ut.SIGMA) & cased[:-2] & ~cased[2:]
    return _overwrite(code_points, tf.boolean_mask(counted, final), ut.FINAL_SIGMA)


def _order_marks(output: tf.Tensor, source: tf.Tensor, kind: tf.Tensor, table: ut.FoldTable) -> tf.Tensor:
    """`tokenizer._order_marks` in TensorFlow; `source` int64 [M], as `_fold` returns it."""
    run = tf.cumsum(tf.cast(_has(kind, ut.STARTER), tf.int64))
    places = tf.where(tf.gather(_has(kind, ut.MARK), source))[:, 0]
    marks = tf.gather(output, places)
    classes = tf.reduce_sum(tf.where(marks[:, None] == table.marks, table.mark_classes, 0), axis=1)
    run = tf.gather(run, tf.gather(source, places))
    # Combining classes end at 254.
    order = tf.argsort(run * 256 + tf.cast(classes, tf.int64), stable=True)
    return tf.tensor_scatter_nd_update(output, places[:, None], tf.gather(marks, order))


class GraphTokenizer(tf.Module):
    """Texts to ids of word pieces, in a graph that `tf.saved_model.save` can store without any other file.

    Equal to `BertTokenizer.encode` of `bytes.decode("utf-8", "ignore")`: bytes that are not UTF-8 are
    skipped, as in the original. One exception: a word with one of Unicode's 66 noncharacters (U+FFFF, ...),
    which TensorFlow does not write as UTF-8, is always "[UNK]", even if the vocabulary has such pieces.

    Args:
        vocabulary: a token for each id. ValueError for a duplicate and for a missing special token.
        lower_case: lower-case and strip accents; must be what the vocabulary was made with.
        preserve: tokens such as "[MASK]" that stay whole where a text spells them out, while the text between
            them is tokenized by itself; the original splits them into "[", "mask", "]". ValueError for one
            that is not in the vocabulary or not of the form "[...]" (others could overlap).
    """

    def __init__(self, vocabulary: Sequence[str], lower_case: bool, preserve: Sequence[str] = ()):
        super().__init__()
        check_vocabulary(vocabulary)
        for token in preserve:
            if token not in vocabulary:
                raise ValueError(f"cannot preserve {token!r}: it is not in the vocabulary")
            if not re.fullmatch(r"\[[^\[\]\s]+\]", token):
                raise ValueError(f'cannot preserve {token!r}: it is not of the form "[...]", without spaces')
        self._table = ut.fold_table(lower_case)
        self._lower_case = lower_case
        self._preserve = tuple(preserve)
        # U+FFFD in a word stands for a noncharacter, see above; in a text it is deleted.
        ids = {token: i for i, token in enumerate(vocabulary) if "\ufffd" not in token}
        entries = tf.lookup.KeyValueTensorInitializer(list(ids), list(ids.values()), tf.string, tf.int64)
        self._ids = tf.lookup.StaticHashTable(entries, default_value=-1)
        self._wordpiece = tensorflow_text.WordpieceTokenizer(
            self._ids,
            suffix_indicator=SUFFIX_INDICATOR,
            max_bytes_per_word=1 << 20,  # never: the limit is in characters, and _split_words sees to it
            max_chars_per_token=max(map(len, ids)),
            token_out_type=tf.int32,
            unknown_token=UNK,
        )

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Ids int32 [B, (pieces)] of `texts` string [B], UTF-8, without special tokens."""
        pieces, starts, code_points = self.words(texts)
        with tf.device("CPU:0"):
            word_splits = tf.searchsorted(starts, code_points.row_splits, out_type=tf.int64)
            return tf.RaggedTensor.from_row_splits(pieces, word_splits, validate=False).merge_dims(1, 2)

    def words(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor, tf.RaggedTensor]:
        """Ids by word, and where each word begins, of `texts` string [B].

        Returns:
            pieces: int32 [W, (pieces)], of the words of all texts in order.
            starts: int64 [W], in `code_points.values`.
            code_points: int32 [B, (code points)], each text with a line end behind it.
        """
        # Strings live on the CPU; the small ops between them must not move to a GPU and back.
        with tf.device("CPU:0"):
            # A line end after each text: no word and no rule reaches across.
            code_points = tf.strings.unicode_decode(tf.strings.join([texts, "\n"]), "UTF-8", errors="ignore")
            words, starts = self._split_words(code_points.values)
            # A look-up of each prefix of a word is dear; hashing a word is not.
            distinct, number = tf.unique(words, out_idx=tf.int64)
            return tf.gather(self._wordpiece.tokenize(distinct), number), starts, code_points

    def is_space(self, code_points: tf.Tensor) -> tf.Tensor:
        """Whether code points int32 [N] are white space to the original, that is, become a space; bool [N]."""
        length = tf.bitwise.bitwise_and(self._kind(code_points), ut.LENGTH_MASK)
        return (length == 1) & (code_points + self._offsets(code_points)[:, 0] == ut.SPACE)

    def is_punctuation(self, code_points: tf.Tensor) -> tf.Tensor:
        """Whether code points int32 [N] are punctuation to the original; bool [N]."""
        blocks = tf.constant(ut.IDEOGRAPH_BLOCKS)
        ideograph = (code_points[:, None] >= blocks[:, 0]) & (code_points[:, None] <= blocks[:, 1])
        return _has(self._kind(code_points), ut.ISOLATED) & ~tf.reduce_any(ideograph, axis=1)

    def _kind(self, code_points: tf.Tensor) -> tf.Tensor:
        return tf.cast(_paged_gather(self._table.kind_pages, self._table.kind_index, code_points), tf.int32)

    def _offsets(self, code_points: tf.Tensor) -> tf.Tensor:
        return _paged_gather(self._table.offset_pages, self._table.offset_index, code_points)

    def _split_words(self, code_points: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Words of all texts in order, from their code points int32 [N].

        Returns (words, starts): string [W], and int64 [W], where in the code points each word begins.
        """
        code_points, preserved = self._find_preserved(code_points)
        # A preserved token is one sign that nothing else in the text can see.
        kind = self._kind(code_points)
        kind = tf.where(preserved > 0, 1 | ut.ISOLATED | ut.STARTER, kind)
        output, source = self._fold(code_points, kind)

        alone = tf.gather(_has(kind, ut.ISOLATED), source)
        space = output == ut.SPACE
        after_break = tf.concat([[True], (space | alone)[:-1]], axis=0)
        letters = tf.where(~space)[:, 0]  # [letters]
        starts = tf.where(tf.gather(alone | after_break, letters))[:, 0]  # [W], in letters
        sizes = tf.concat([starts[1:], tf.size(letters, tf.int64)[None]], axis=0) - starts
        chars = tf.RaggedTensor.from_row_lengths(tf.gather(output, letters), sizes, validate=False)
        words = tf.strings.unicode_encode(chars, "UTF-8")

        words = tf.where(sizes > MAX_CHARS_PER_WORD, UNK, words)
        starts = tf.gather(source, tf.gather(letters, starts))
        named = tf.gather(preserved, starts)
        return tf.where(named > 0, tf.gather(("", *self._preserve), named), words), starts

    def _find_preserved(self, code_points: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Finds preserved tokens in code points [N].

        Returns the code points with zeros, which folding deletes, in place of those tokens, and int32 [N]:
        where one begins, its number from 1, else 0.
        """
        preserved = tf.zeros_like(code_points)
        if not self._preserve:
            return code_points, preserved
        brackets = tf.where(code_points == ord("["))
        padded = tf.pad(code_points, [[0, max(map(len, self._preserve))]])
        for number, token in enumerate(self._preserve, 1):
            window = brackets + np.arange(len(token))
            same = tf.reduce_all(tf.gather(padded, window) == [ord(char) for char in token], axis=1)
            places = tf.boolean_mask(window, same)
            code_points = _overwrite(code_points, places, 0)
            preserved = _overwrite(preserved, places[:, 0], number)
        return code_points, preserved

    def _fold(self, code_points: tf.Tensor, kind: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Replaces code points [N] by the table and the two rules.

        Returns (output, source): int32 [M], and int64 [M], which code point each one comes from.
        """
        if self._lower_case:
            code_points = _final_sigma(code_points, kind)
        offsets = self._offsets(code_points)  # [N, 3]
        length = tf.bitwise.bitwise_and(kind, ut.LENGTH_MASK)
        places = tf.where(tf.sequence_mask(length, ut.MAX_LENGTH))  # [M, 2]
        source = places[:, 0]
        output = tf.gather_nd(code_points[:, None] + offsets, places)
        if self._lower_case:
            output = _order_marks(output, source, kind, self._table)
        return output, source
