"""Byte-level BPE as a TensorFlow graph, for the SavedModel, piece for piece that of `byte_bpe.ByteBpeTokenizer`.

All ops are TensorFlow's own: TensorFlow Text's BPE is younger than many TensorFlow Servings, and RE2 cannot say GPT-2's
pattern, which looks ahead. That pattern is local, so it is said in closed form: where a word begins depends on the
character, the one before, and up to two after it.

Legend: B texts, N code points of all texts, Y bytes of them in UTF-8, S symbols of all words while they are merged,
W words, P pieces.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from bert_keras.byte_bpe import WHITE_SPACE, ByteBpeTokenizer, byte_characters, character_classes, spaces_around
from bert_keras.graph_tokenizer import GraphPieces, is_punctuation, is_space, utf8_length
from bert_keras.unicode_tables import fold_table

_NO_MERGE = 1 << 40  # above every rank
_APOSTROPHE, _SPACE = ord("'"), ord(" ")
# What GPT-2's pattern cuts off behind an apostrophe that begins a word.
_ONE_LETTER, _TWO_LETTERS = "stmd", (("r", "e"), ("v", "e"), ("l", "l"))


class GraphByteBpe(tf.Module):
    """Texts to ids of byte-level BPE, in a graph that `tf.saved_model.save` can store without any other file.

    Equal to `ByteBpeTokenizer.encode` of `bytes.decode("utf-8", "ignore")`. A word of n letters takes as many steps as
    different pairs are merged in it, at most n - 1, each over all words of the batch.

    Args:
        tokenizer: its merges must be in order (`byte_bpe.check_order`).
    """

    def __init__(self, tokenizer: ByteBpeTokenizer):
        super().__init__()
        vocabulary = tokenizer.vocabulary
        ids = {token: number for number, token in enumerate(vocabulary)}
        classes = character_classes()
        changes = np.flatnonzero(np.diff(classes, prepend=-1))
        self._class_from, self._class = changes.astype(np.int32), classes[changes].astype(np.int32)
        self._id_of_byte = np.array([ids[character] for character in byte_characters()], np.int32)
        self._bytes = np.array([len(token) for token in vocabulary], np.int64)
        self._spaces = spaces_around(vocabulary)
        self._merged = np.array([ids[left + right] for left, right in tokenizer.merges] or [0], np.int32)
        self._size = len(vocabulary)
        # A table must have an entry: -1 is no pair.
        ranks = {-1: _NO_MERGE} | {
            ids[left] * self._size + ids[right]: number for number, (left, right) in enumerate(tokenizer.merges)
        }
        entries = tf.lookup.KeyValueTensorInitializer(list(ranks), list(ranks.values()), tf.int64, tf.int64)
        self._ranks = tf.lookup.StaticHashTable(entries, default_value=_NO_MERGE)

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Ids int32 [B, (pieces)] of `texts` string [B], UTF-8, without special tokens."""
        # Strings live on the CPU; the small ops between them must not move to a GPU and back.
        with tf.device("CPU:0"):
            return self._pieces_of(tf.strings.unicode_decode(texts, "UTF-8", errors="ignore"))[0]

    def with_offsets(self, texts: tf.Tensor) -> GraphPieces:
        """The pieces of `texts` string [B], and where they come from, as `ByteBpeTokenizer.encode_with_offsets`."""
        with tf.device("CPU:0"):
            decoded, at_byte = tf.strings.unicode_decode_with_offsets(texts, "UTF-8", errors="ignore")
            ids, first_byte, source = self._pieces_of(decoded)
            spaces = tf.gather(self._spaces, ids.values)
            last_byte = first_byte + tf.gather(self._bytes, ids.values) - 1 - spaces[:, 1]
            starts, last = tf.gather(source, first_byte + spaces[:, 0]), tf.gather(source, last_byte)
            text_start = tf.gather(decoded.row_starts(), ids.value_rowids())
            byte_ends = tf.gather(at_byte.values, last) + utf8_length(tf.gather(decoded.values, last))
            return GraphPieces(
                ids, starts - text_start, last + 1 - text_start, tf.gather(at_byte.values, starts), byte_ends
            )

    def of_words(self, words: tf.RaggedTensor) -> tf.RaggedTensor:
        """Ids int32 [W, (pieces)] of words, of each its code points, int32 [W, (code points)], a space before each."""
        with tf.device("CPU:0"):
            space = tf.fill([words.nrows(), 1], _SPACE)
            return self._pieces_of(tf.concat([space, words], axis=1))[0]

    def is_space(self, code_points: tf.Tensor) -> tf.Tensor:
        """Whether code points int32 [N] are white space to BERT: what words of prose are is no model's matter."""
        return is_space(code_points, fold_table(lower_case=False))

    def is_punctuation(self, code_points: tf.Tensor) -> tf.Tensor:
        """Whether code points int32 [N] are punctuation to BERT."""
        return is_punctuation(code_points, fold_table(lower_case=False))

    def _pieces_of(self, decoded: tf.RaggedTensor) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """Of code points int32 [B, (code points)]: ids int32 [B, (pieces)]; int64 [P] the byte that each begins with;
        int64 [Y] the code point that each byte is of."""
        code_points, row = decoded.values, decoded.value_rowids()
        word = tf.cumsum(tf.cast(self._begins_word(code_points, row), tf.int64)) - 1  # [N]
        octets, source = _utf8(code_points)
        ids, first_byte = self._merge(tf.gather(self._id_of_byte, octets), tf.gather(word, source))
        of_text = tf.gather(row, tf.gather(source, first_byte))
        return tf.RaggedTensor.from_value_rowids(ids, of_text, decoded.nrows(), validate=False), first_byte, source

    def _begins_word(self, code_points: tf.Tensor, row: tf.Tensor) -> tf.Tensor:
        """Whether a word of GPT-2's pattern begins at code points int32 [N] of the texts `row` int64 [N]; bool [N].

        's|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+
        """

        def shifted(values, by):
            """The values so many places after (before), -1 where another text is."""
            size = tf.size(values)
            padded, rows = (tf.pad(x, [[abs(by)] * 2], constant_values=-1) for x in (values, row))
            begin = abs(by) + by
            return tf.where(rows[begin : begin + size] == row, padded[begin : begin + size], -1)

        kind = tf.gather(self._class, tf.searchsorted(self._class_from, code_points, side="right") - 1)
        before, after = shifted(kind, -1), shifted(kind, 1)
        # Of a run of white space the last character is left to the word behind it, which a space alone begins.
        space_begins = (before != WHITE_SPACE) | ((after != WHITE_SPACE) & (after >= 0))
        other_begins = (shifted(code_points, -1) != _SPACE) & (kind != before)
        begins = tf.where(kind == WHITE_SPACE, space_begins, other_begins)
        next_1, next_2 = shifted(code_points, 1), shifted(code_points, 2)
        apostrophe = begins & (code_points == _APOSTROPHE)
        short = apostrophe & _any([next_1 == ord(letter) for letter in _ONE_LETTER])
        long = apostrophe & _any([(next_1 == ord(a)) & (next_2 == ord(b)) for a, b in _TWO_LETTERS])
        inside, behind = _later(short | long, 1), _later(short, 2) | _later(long, 3)
        # Behind the last letter a word begins: another one, or the next text.
        return (begins & ~inside) | behind

    def _merge(self, ids: tf.Tensor, word: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Merges symbols int32 [S] of words int64 [S], first the bytes; ids int32 [P] and int64 [P], each one's first.

        A step merges in each word all pairs of the lowest rank that it has.
        """

        def ranks_of(ids, word):
            """int64 [S]: the rank of each symbol with the next of its word; _NO_MERGE if there is none."""
            pair = tf.cast(ids[:-1], tf.int64) * self._size + tf.cast(ids[1:], tf.int64)
            ranks = tf.where(word[:-1] == word[1:], self._ranks.lookup(pair), _NO_MERGE)
            return tf.pad(ranks, [[0, tf.minimum(tf.size(ids), 1)]], constant_values=_NO_MERGE)

        def step(ids, word, first, ranks):
            lowest = tf.gather(tf.math.segment_min(ranks, word), word)
            place = tf.where((ranks == lowest) & (ranks < _NO_MERGE))[:, 0]
            # Of pairs that share a symbol, as in "aaa", every second one, from the left.
            begins = tf.concat([[True], place[1:] > place[:-1] + 1], axis=0)[: tf.size(place)]
            of_run = tf.gather(tf.boolean_mask(place, begins), tf.cumsum(tf.cast(begins, tf.int32)) - 1)
            place = tf.boolean_mask(place, (place - of_run) % 2 == 0)[:, None]
            merged = tf.gather(self._merged, tf.gather_nd(ranks, place))
            ids = tf.tensor_scatter_nd_update(ids, place, merged)
            gone = tf.scatter_nd(place + 1, tf.ones(tf.size(place), tf.int32), tf.shape(ids, tf.int64))
            ids, word, first = (tf.boolean_mask(values, gone == 0) for values in (ids, word, first))
            return ids, word, first, ranks_of(ids, word)

        first = tf.range(tf.size(ids, tf.int64))
        state = ids, word, first, ranks_of(ids, word)
        ids, _, first, _ = tf.while_loop(
            lambda ids, word, first, ranks: tf.reduce_any(ranks < _NO_MERGE),
            step,
            state,
            shape_invariants=tuple(tf.TensorShape([None]) for _ in state),
        )
        return ids, first


def _any(conditions: list[tf.Tensor]) -> tf.Tensor:
    return tf.reduce_any(tf.stack(conditions), axis=0)


def _later(condition: tf.Tensor, by: int) -> tf.Tensor:
    """A condition bool [N], so many places later."""
    return tf.pad(condition, [[by, 0]])[: tf.size(condition)]


def _utf8(code_points: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The bytes of code points int32 [N] in UTF-8, int32 [Y], and the number of the code point of each, int64 [Y]."""
    length = utf8_length(code_points)
    source = tf.repeat(tf.range(tf.size(code_points, tf.int64)), length)
    number = tf.range(tf.size(source, tf.int64)) - tf.gather(tf.cumsum(length, exclusive=True), source)
    length = tf.gather(length, source)
    bits = tf.bitwise.right_shift(tf.gather(code_points, source), tf.cast(6 * (length - 1 - number), tf.int32))
    lead = tf.gather([0, 0, 0b11000000, 0b11100000, 0b11110000], length)
    return tf.where(number == 0, lead + bits, 0b10000000 + tf.bitwise.bitwise_and(bits, 0b111111)), source
